"""Something happens just as the operator that leads is about to write for the n-th time."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.rig.run import counts
from tests.faults.world.connection import Call, Calm, Fate
from tests.faults.world.process import Process
from tests.faults.world.world import World


@dataclass
class AtWrite(Calm):
    """``happens`` is called once, before the write with this number (from 0) is sent."""

    index: int
    happens: Callable[[], object]
    _seen: int = -1

    def before(self, call: Call) -> Fate:
        if counts(call):
            self._seen += 1
            if self._seen == self.index:
                self.happens()
        return Fate()


def leader(world: World) -> Process:
    """The operator that leads now."""
    return next(process for process in world.alive if process.leads)


def at_write(index: int, happens: Callable[[World, Process], object]) -> Callable[[World], float]:
    """The beginning of a disturbance that waits for a write of the present leader."""

    def begin(world: World) -> float:
        process = leader(world)
        process.connection.interference = AtWrite(index, lambda: happens(world, process))
        return 0.0

    return begin
