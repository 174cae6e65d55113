"""Two crashes in a row: one that ends an operator at a write, and one at a write that is made after it.

Every pair that can happen, as one tree: the scenario is played once, and at each write a copy of everything goes on in
which the process ends there. The copy is copied again in the same way, at the writes that follow.

Two moments at which a process may end leave the same world if it has sent the same writes before them and is followed
at the same moment: reading changes nothing, and no time passes for others while it computes. One copy stands for both.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Final

from tests.faults.rig.at_write import all_calm, all_watched, watched
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.crash import POINTS, Crash, Point, crashing
from tests.faults.rig.run import Disturbance, Outcome, Verdict, counts, judge, restart_seconds
from tests.faults.rig.scenario import Scenario
from tests.faults.rig.snapshot import Branches, each_in_a_copy
from tests.faults.world.connection import Call, Fate, reset
from tests.faults.world.process import Process
from tests.faults.world.world import World

DEADLY: Final[tuple[Point, ...]] = ("before", "after")
WRITES: Final = 2
"""Of one child more than undisturbed, after two crashes."""
MANY_WRITES: Final = 30
SOME: Final = 53
"""Of a scenario with more writes than that (an experiment has some fifty, and ten thousand pairs) every 53rd pair."""


@dataclass
class Crossroads:
    """At every write, copies are made in which whoever writes ends there. ``crashed`` is called in each."""

    points: tuple[Point, ...]
    branches: Branches[list[Verdict]]
    crashed: Callable[[Crash], None]
    cases: list[int] = field(default_factory=list)
    """For how many points each copy stands."""
    _numbered: list[Call] = field(default_factory=list)
    _sent: int = 0
    """Writes, those of the Lease among them."""
    _left: object = None
    """What made the last end what it was."""

    def before(self, process: Process, call: Call) -> Fate:
        if not call.is_write:
            return Fate()
        if counts(call):
            number = len(self._numbered)
            if self._ends(process, "before", number):
                return Fate()
            if "lost" in self.points and self._copied("lost", number):
                return Fate(error=reset(call))
            self._numbered.append(call)
        self._sent += 1
        return Fate()

    def after(self, process: Process, call: Call) -> None:
        if counts(call):
            self._ends(process, "after", next(number for number, each in enumerate(self._numbered) if each is call))

    def _ends(self, process: Process, point: Point, number: int) -> bool:
        """True in the copy in which the process has just ended."""
        left = (process.name, self._sent, restart_seconds(process.connection.agenda.now), random.getstate())
        if left == self._left:
            self.cases[-1] += 1
            return False
        self._left = left
        if not self._copied(point, number):
            return False
        process.kill()
        return True

    def _copied(self, point: Point, number: int) -> bool:
        """True in the copy."""
        if self.branches.here():
            self.crashed((number, point))
            return True
        self.cases.append(1)
        return False


@dataclass
class Tree:
    """Of one scenario: what this copy has gone through, and the crossroads that it is at."""

    at_once: int
    crashes: list[Crash] = field(default_factory=list)
    at: Crossroads | None = None

    def __post_init__(self) -> None:
        self.disturbance = Disturbance("", self._begin, self._meet, extra_writes=WRITES)

    def _begin(self, world: World) -> float:
        self._wait(world, DEADLY, self.at_once)
        return 0.0

    def _meet(self, _: World, process: Process) -> None:
        if self.at is not None:
            watched(process, self.at)

    def _wait(self, world: World, points: tuple[Point, ...], at_once: int) -> None:
        def crashed(crash: Crash) -> None:
            self.crashes.append(crash)
            self.disturbance.name = crashing(*self.crashes).name
            self.at = None
            if len(self.crashes) == 1:
                self._wait(world, POINTS, 1)
            else:
                all_calm(world)

        self.at = Crossroads(points, Branches(at_once), crashed)
        all_watched(world, self.at)

    def verdicts(self, own: Verdict) -> Iterator[Verdict]:
        """Of every pair that is within this copy; ``own`` is that of the copy itself."""
        if len(self.crashes) == 2:
            yield own
        if self.at is not None:
            for cases, found in zip(self.at.cases, self.at.branches.results(), strict=True):
                yield from (replace(verdict, cases=cases * verdict.cases) for verdict in found)


def every_pair(world: World, scenario: Scenario, calm: Outcome, at_once: int) -> list[Verdict]:
    """All pairs of crashes that a scenario can meet with; of one with many writes, some."""
    if calm.calls > MANY_WRITES:
        some = [*pairs(calm)][::SOME]
        return [*each_in_a_copy([partial(judge, world, scenario, case, calm) for case in some], at_once)]
    tree = Tree(at_once)
    return [*tree.verdicts(judge(world, scenario, tree.disturbance, calm))]


def pairs(calm: Outcome) -> Iterator[Disturbance]:
    """Single pairs, to choose some of. After the first crash as many writes are counted as without one: where fewer
    are made, there is no second.
    """
    first: list[Crash] = [*product(range(calm.calls), DEADLY)]
    second: list[Crash] = [*product(range(calm.calls), POINTS)]
    return (crashing(*both) for both in product(first, second))


campaign(Campaign("two crashes in a row", pairs, whole=every_pair))
