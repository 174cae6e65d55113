"""A crash at a write: before it is sent, with its reply lost, or just after; then the process is started anew.

The end must be that of the undisturbed run. Only what came before is lost, so no object is written more than once more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from tests.faults.rig.at_write import all_watched, watched
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.run import CALM, Disturbance, Outcome, counts
from tests.faults.world.connection import Call, Fate, reset
from tests.faults.world.process import Process
from tests.faults.world.world import World

Point = Literal["before", "lost", "after"]
POINTS: Final[tuple[Point, ...]] = ("before", "lost", "after")
Crash = tuple[int, Point]
"""The write, counted from the act or from the crash before, and where it breaks."""


@dataclass
class Crashing:
    """The process that makes one write ends at it. ``lost``: it lives on, having heard of a broken connection.

    ``struck`` is called when it has happened.
    """

    index: int
    point: Point
    struck: Callable[[], None]
    _seen: int = -1
    _last: Call | None = None

    def before(self, process: Process, call: Call) -> Fate:
        if not counts(call):
            return Fate()
        self._seen += 1
        if self._seen != self.index:
            return Fate()
        if self.point == "after":
            self._last = call
            return Fate()
        if self.point == "before":
            process.kill()
        self.struck()
        return Fate(error=reset(call)) if self.point == "lost" else Fate()

    def after(self, process: Process, call: Call) -> None:
        if call is self._last:
            process.kill()
            self.struck()


def crashing(*crashes: Crash) -> Disturbance:
    """One crash after the other, each further one at a write after the one before."""
    left, watch = [*crashes], list[Crashing]()

    def begin(world: World) -> float:
        wait(world)
        return 0.0

    def wait(world: World) -> None:
        if left:
            watch.append(Crashing(*left.pop(0), lambda: wait(world)))
            all_watched(world, watch[-1])

    def meet(_: World, process: Process) -> None:
        watched(process, watch[-1])

    name = ", then ".join(f"{point} write {index}" for index, point in crashes)
    return Disturbance(name, begin, meet, extra_writes=len(crashes))


def single(calm: Outcome) -> Iterator[Disturbance]:
    """A crash at every write."""
    return (crashing(crash) for crash in product(range(calm.calls), POINTS))


campaign(Campaign("nothing goes wrong", lambda _: [CALM], concerns=lambda _: True))
campaign(Campaign("crash at a write", single, concerns=lambda _: True, always=True))
