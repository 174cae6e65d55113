"""Time that passes only when nothing is left to do: an agenda for the world, an event loop for each process in it."""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

EPOCH_SECONDS: Final = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
"""The wall clock when a world begins."""
COMPUTING_SECONDS: Final = 1e-6
"""Of one round of an event loop, by the clock of its process: the world does not wait for whoever computes."""
NEVER: Final = float("inf")


@dataclass
class Agenda:
    """What happens when. Of several things at one moment, the first one entered happens first."""

    now: float = 0.0
    _entries: list[tuple[float, int, Callable[[], object]]] = field(default_factory=list)
    _order: "itertools.count[int]" = field(default_factory=itertools.count)

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Let something happen so many seconds from now."""
        self.at(self.now + seconds, action)

    def at(self, moment: float, action: Callable[[], object]) -> None:
        """Let something happen at a moment."""
        heapq.heappush(self._entries, (moment, next(self._order), action))

    @property
    def next_seconds(self) -> float:
        """When the next thing happens."""
        return self._entries[0][0] if self._entries else NEVER

    def run_due(self) -> None:
        """Do all that is due, and what it makes due at once."""
        while self._entries and self._entries[0][0] <= self.now:
            heapq.heappop(self._entries)[2]()

    def wall(self) -> datetime:
        """The wall clock."""
        return datetime.fromtimestamp(EPOCH_SECONDS + self.now, UTC)

    def stamp(self) -> str:
        """RFC 3339, whole seconds, as the API server writes it."""
        return self.wall().strftime("%Y-%m-%dT%H:%M:%SZ")


class ProcessLoop(asyncio.BaseEventLoop):
    """The event loop of one process: it runs until it would have to wait, and is told what time it is."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]
    _stopping: bool

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._computed_to = agenda.now
        super().__init__()

    def time(self) -> float:
        """The virtual clock: it goes on while the process is stopped, as CLOCK_BOOTTIME does."""
        return max(self._agenda.now, self._computed_to)

    @property
    def next_seconds(self) -> float:
        """When this process has something to do: now, when its next timer ends, or never."""
        if self._ready:
            return self._agenda.now
        timers = self._scheduled
        while timers and timers[0].cancelled():
            self._next_timer()
        return timers[0].when() if timers else NEVER

    def run_until_idle(self) -> None:
        """Run everything that can run at this moment."""
        self.run_forever()

    def _run_once(self) -> None:
        """One round of asyncio's own loop, without a selector: whoever would wait there has nothing to do now.

        Computing takes time, if little: whoever waits for less than a clock can tell would wait for ever.
        """
        ready, timers, now = self._ready, self._scheduled, self.time()
        while timers and (timers[0].cancelled() or timers[0].when() <= now):
            ready.append(self._next_timer())
        if not ready:
            self._stopping = True
            return
        self._computed_to = now + COMPUTING_SECONDS
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _next_timer(self) -> asyncio.TimerHandle:
        timer = heapq.heappop(self._scheduled)
        timer._scheduled = False  # type: ignore[attr-defined]
        return timer

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ARG002
        """Threads would make two runs differ: what is given to one is done at once."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - a thread hands over whatever was raised
            done.set_exception(error)
        return done

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""


@dataclass
class ProcessClock:
    """Clock port of one process. ``ahead_seconds``: by how much its wall clock is wrong."""

    loop: ProcessLoop
    ahead_seconds: float = 0.0

    def now(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%SZ")

    def stamp(self) -> str:
        return self._wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def wall_seconds(self) -> float:
        return EPOCH_SECONDS + self.loop.time() + self.ahead_seconds

    def monotonic(self) -> float:
        return self.loop.time()

    def _wall(self) -> datetime:
        return datetime.fromtimestamp(self.wall_seconds(), UTC)
