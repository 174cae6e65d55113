"""The writes of all operators together, numbered from the act on (from 0), and what happens at one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tests.faults.rig.run import counts
from tests.faults.world.connection import Call, Calm, Fate
from tests.faults.world.process import Process
from tests.faults.world.world import World


class Watch(Protocol):
    """Sees what every operator sends, and may interfere with it."""

    def before(self, process: Process, call: Call) -> Fate:
        """A call is about to be sent."""

    def after(self, process: Process, call: Call) -> None:
        """Its answer has been handed over."""


@dataclass
class _Line(Calm):
    """One operator among those that are watched together."""

    process: Process
    watch: Watch

    def before(self, call: Call) -> Fate:
        return self.watch.before(self.process, call)

    def after(self, call: Call) -> None:
        self.watch.after(self.process, call)


def watched(process: Process, watch: Watch) -> None:
    """Let an operator be watched."""
    process.connection.interference = _Line(process, watch)


def all_watched(world: World, watch: Watch) -> None:
    """Let all operators be watched that are there."""
    for process in world.alive:
        watched(process, watch)


def all_calm(world: World) -> None:
    """Let nothing interfere any more."""
    for process in world.alive:
        process.connection.interference = Calm()


@dataclass
class AtWrite:
    """``happens`` is called once, with who writes, before the write with this number is sent."""

    index: int
    happens: Callable[[Process], object]
    _seen: int = -1

    def before(self, process: Process, call: Call) -> Fate:
        if counts(call):
            self._seen += 1
            if self._seen == self.index:
                self.happens(process)
        return Fate()

    def after(self, process: Process, call: Call) -> None:
        """Nothing."""


def leader(world: World) -> Process:
    """The operator that leads now."""
    return next(process for process in world.alive if process.leads)


def at_write(index: int, happens: Callable[[World, Process], object]) -> Callable[[World], float]:
    """The beginning of a disturbance that waits for a write."""

    def begin(world: World) -> float:
        all_watched(world, AtWrite(index, lambda process: happens(world, process)))
        return 0.0

    return begin
