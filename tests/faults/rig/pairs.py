"""Two crashes in a row: one that ends the process at a write, and one at a write of the process that is started next.

Every pair that can happen, as one tree: the scenario is played once, and at each write a copy of everything goes on in
which the process ends there. The copy is copied again in the same way, at the writes of the process that follows.

Two moments at which a process may end leave the same world if it has sent the same writes before them and is followed
at the same moment: reading changes nothing, and no time passes for others while it computes. One copy stands for both.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Final

from tests.faults.rig.at_write import leader
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.crash import POINTS, Crash, Point, crashing
from tests.faults.rig.run import Disturbance, Outcome, Verdict, counts, judge, restart_seconds
from tests.faults.rig.scenario import Scenario
from tests.faults.rig.snapshot import Branches
from tests.faults.world.connection import Call, Calm, Fate, reset
from tests.faults.world.process import Process
from tests.faults.world.world import World

DEADLY: Final[tuple[Point, ...]] = ("before", "after")
WRITES: Final = 2
"""Of one child more than undisturbed, after two crashes."""


@dataclass
class Crossroads(Calm):
    """At every write of one process, copies are made in which it ends there. ``crashed`` is called in each."""

    process: Process
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

    def before(self, call: Call) -> Fate:
        if not call.is_write:
            return Fate()
        if counts(call):
            number = len(self._numbered)
            if self._ends("before", number):
                return Fate()
            if "lost" in self.points and self._copied("lost", number):
                return Fate(error=reset(call))
            self._numbered.append(call)
        self._sent += 1
        return Fate()

    def after(self, call: Call) -> None:
        if counts(call):
            self._ends("after", next(number for number, each in enumerate(self._numbered) if each is call))

    def _ends(self, point: Point, number: int) -> bool:
        """True in the copy in which the process has just ended."""
        left = (self._sent, restart_seconds(self.process.connection.agenda.now), random.getstate())
        if left == self._left:
            self.cases[-1] += 1
            return False
        self._left = left
        if not self._copied(point, number):
            return False
        self.process.kill()
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
        self._wait_at(leader(world), DEADLY, self.at_once)
        return 0.0

    def _meet(self, _: World, process: Process) -> None:
        if len(self.crashes) == 1 and self.at is None:
            self._wait_at(process, POINTS, 1)

    def _wait_at(self, process: Process, points: tuple[Point, ...], at_once: int) -> None:
        def crashed(crash: Crash) -> None:
            self.at, process.connection.interference = None, Calm()
            self.crashes.append(crash)
            self.disturbance.name = crashing(*self.crashes).name

        self.at = Crossroads(process, points, Branches(at_once), crashed)
        process.connection.interference = self.at

    def verdicts(self, own: Verdict) -> Iterator[Verdict]:
        """Of every pair that is within this copy; ``own`` is that of the copy itself."""
        if len(self.crashes) == 2:
            yield own
        if self.at is not None:
            for cases, found in zip(self.at.cases, self.at.branches.results(), strict=True):
                yield from (replace(verdict, cases=cases * verdict.cases) for verdict in found)


def every_pair(world: World, scenario: Scenario, calm: Outcome, at_once: int) -> list[Verdict]:
    """All pairs of crashes that a scenario can meet with."""
    tree = Tree(at_once)
    return [*tree.verdicts(judge(world, scenario, tree.disturbance, calm))]


def pairs(calm: Outcome) -> Iterator[Disturbance]:
    """Single pairs, to choose some of. As many writes are counted of the second process as of the first: where it
    makes fewer, it ends well.
    """
    first: list[Crash] = [*product(range(calm.calls), DEADLY)]
    second: list[Crash] = [*product(range(calm.calls), POINTS)]
    return (crashing(*both) for both in product(first, second))


campaign(Campaign("two crashes in a row", pairs, whole=every_pair))
