"""A crash at a write: before it is sent, with its reply lost, or just after; then the process is started anew.

The end must be that of the undisturbed run. Only what came before is lost, so no object is written more than once more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal

from tests.faults.rig.at_write import leader
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.run import CALM, Disturbance, Outcome, counts
from tests.faults.world.connection import Call, Calm, Fate, reset
from tests.faults.world.process import Process
from tests.faults.world.world import World

Point = Literal["before", "lost", "after"]
POINTS: Final[tuple[Point, ...]] = ("before", "lost", "after")
Crash = tuple[int, Point]
"""The write, counted from the act or from the start of the process, and where it breaks."""


@dataclass
class Crashing(Calm):
    """The process ends at one write. ``lost``: it lives on, having heard of a broken connection."""

    process: Process
    index: int
    point: Point
    done: bool = False
    _seen: int = -1
    _last: Call | None = None

    def before(self, call: Call) -> Fate:
        if self.done or not counts(call):
            return Fate()
        self._seen += 1
        return self._strike(call) if self._seen == self.index else Fate()

    def _strike(self, call: Call) -> Fate:
        self.done = True
        if self.point == "lost":
            return Fate(error=reset(call))
        if self.point == "before":
            self.process.kill()
        else:
            self._last = call
        return Fate()

    def after(self, call: Call) -> None:
        if call is self._last:
            self.process.kill()


def crashing(*crashes: Crash) -> Disturbance:
    """The first crash befalls the operator that leads, each further one the process that is started next."""
    left = [*crashes]

    def begin(world: World) -> float:
        meet(world, leader(world))
        return 0.0

    def meet(_: World, process: Process) -> None:
        if left:
            index, point = left.pop(0)
            process.connection.interference = Crashing(process, index, point)

    name = ", then ".join(f"{point} write {index}" for index, point in crashes)
    return Disturbance(name, begin, meet, extra_writes=len(crashes))


def single(calm: Outcome) -> Iterator[Disturbance]:
    """A crash at every write."""
    return (crashing(crash) for crash in product(range(calm.calls), POINTS))


campaign(Campaign("nothing goes wrong", lambda _: [CALM], concerns=lambda _: True))
campaign(Campaign("crash at a write", single, concerns=lambda _: True, always=True))
