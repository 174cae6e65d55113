"""What was written into which object when, so that nobody is fought and nothing refused is tried without end.

Only in memory: after a restart the first difference is again the first one (``core/contention.py``).
"""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from plimsoll.adapters.ports import Cluster, Kind, NotFoundError
from plimsoll.control.cache import Key
from plimsoll.core import contention
from plimsoll.core.conditions import Contest, Problem
from plimsoll.core.contention import WHOLE, History
from plimsoll.core.drift import Path
from plimsoll.core.managers import Setter, setter

REFUSED_PAUSE_SECONDS: Final = 5.0
"""So long an object that was refused is not tried again with the same intent, whatever happens around it."""

JUST_SECONDS: Final = 3.0
"""So long a controller that is alive needs at most to look at what we wrote."""


class Slot(NamedTuple):
    """One object as one field manager writes it."""

    service: Key
    kind: Kind
    name: str
    manager: str

    def __str__(self) -> str:
        """The object, as people write it."""
        return f"{self.kind.kind} {self.service.namespace}/{self.name}"


@dataclass(frozen=True)
class Stop:
    """Why a child cannot be written: a human is needed, or something has to pass first."""

    problem: Problem | None = None
    waiting: str = ""

    @property
    def text(self) -> str:
        """The reason as a sentence."""
        return self.problem.message if self.problem else self.waiting


@dataclass
class _Memory:
    """What is remembered of one object."""

    history: History | None = None
    contest: Contest | None = None
    setter: Setter | None = None
    stop: Stop | None = None
    stopped_intent: str = ""
    stopped_until_seconds: float = 0.0


class Turns:
    """Whose turn it is: ours to write, or ours to wait."""

    def __init__(self, cluster: Cluster, monotonic: Callable[[], float]) -> None:
        self._cluster = cluster
        self._monotonic = monotonic
        self._memories: dict[Key, dict[Slot, _Memory]] = {}

    def forget(self, service: Key) -> None:
        """The service is gone, and what it owned with it."""
        self._memories.pop(service, None)

    def just_wrote(self, service: Key, kind: Kind) -> bool:
        """Whether an object of this kind was written a moment ago."""
        now = self._monotonic()
        memories = self._memories.get(service, {}).items()
        written = (memory.history.written_seconds for slot, memory in memories if slot.kind is kind and memory.history)
        return any(now - at < JUST_SECONDS for at in written)

    def stopped(self, slot: Slot, intent: str) -> Stop | None:
        """Why this was refused a moment ago; None when it may be tried."""
        memory = self._of(slot)
        fresh = memory.stopped_intent == intent and self._monotonic() < memory.stopped_until_seconds
        return memory.stop if fresh else None

    def stop(self, slot: Slot, intent: str, why: Stop) -> None:
        """The API server refused a write."""
        memory = self._of(slot)
        memory.stop, memory.stopped_intent = why, intent
        memory.stopped_until_seconds = self._monotonic() + REFUSED_PAUSE_SECONDS

    def contest(self, slot: Slot) -> Contest | None:
        """Who keeps changing the object, or did a moment ago."""
        memory = self._of(slot)
        return memory.contest if contention.contested(memory.history, self._monotonic()) else None

    async def wait_seconds(self, slot: Slot, intent: str, changed: Collection[Path]) -> float:
        """0 when the object may be written now because of ``changed``, else the seconds until then."""
        memory, now = self._of(slot), self._monotonic()
        history = memory.history
        if history is None or history.intent != intent:
            return 0.0
        if history.repairs + 1 >= contention.BURST and await self._gave_up(slot, memory, changed):
            history = contention.won(history)
        memory.history = contention.differs(history, now)
        return contention.wait_seconds(history, intent, changed, now)

    def wrote(self, slot: Slot, intent: str, changed: Collection[Path], left: Collection[Path]) -> None:
        """The object was written because of ``changed``; in the answer, ``left`` still differed."""
        memory, now = self._of(slot), self._monotonic()
        memory.history, memory.stop = contention.wrote(memory.history, intent, changed, now), None
        if left:
            memory.history = contention.overruled(memory.history, left, now)
            _blame(slot, memory, left, Setter("admission"))

    async def _gave_up(self, slot: Slot, memory: _Memory, changed: Collection[Path]) -> bool:
        """Ask the API server who is behind the changes; whether a manager that was has let go of the field."""
        before, found, path = memory.setter, Setter("nobody"), min(changed)
        if path != WHOLE:
            with contextlib.suppress(NotFoundError):
                found = setter(await self._cluster.get(slot.kind, slot.service.namespace, slot.name), path)
        _blame(slot, memory, changed, found)
        return before is not None and before.cause == "manager" and found.cause == "nobody"

    def _of(self, slot: Slot) -> _Memory:
        return self._memories.setdefault(slot.service, {}).setdefault(slot, _Memory())


def _blame(slot: Slot, memory: _Memory, changed: Collection[Path], by: Setter) -> None:
    memory.setter = by
    memory.contest = contention.contest(str(slot), min(changed), len(changed) - 1, by)
