"""A keyed work queue: each key at most once in line, at most once in work; first come first served, save who is urgent
or has time.

The rules are those of a level-triggered controller: an add while the key is in work makes it run once more after,
never twice at a time; a failing key waits longer each time and nobody waits for it.
"""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

BACKOFF_BASE_SECONDS = 1.0
CONFLICT_BASE_SECONDS = 0.05
BACKOFF_MAX_SECONDS = 60.0
SOONEST_SECONDS = 0.001
"""A time that is all but over by a rounding error ends by then; asked for again at once it might be asked for ever."""
MOST_BEHIND_SECONDS = 300.0
"""So long at most who has time waits behind all others."""
EVENT_GAP_SECONDS = 1.0
"""So long after a failure nothing makes a key run again, however much happens around it."""


class WorkQueue(Generic[Key]):
    """Keys to work on, with delays and per-key back-off. ``monotonic`` gives seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._ready: deque[Key] = deque()
        self._behind: dict[Key, None] = {}
        self._since: dict[Key, float] = {}
        self._working: set[Key] = set()
        self._again: set[Key] = set()
        self._later: list[tuple[float, int, Key]] = []
        self._due: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._held_until: dict[Key, float] = {}
        self._order = itertools.count()
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Keys in line now, those that wait for their time not counted."""
        return len(self._since)

    @property
    def oldest_seconds(self) -> float:
        """How long the first in line has waited, those who have time left out."""
        return self._monotonic() - self._since[self._ready[0]] if self._ready else 0.0

    def add_behind(self, key: Key) -> None:
        """Put the key in line for when nobody else is: nothing has happened to it. Failed just now: it comes anyway."""
        if key not in self._since and key not in self._working and key not in self._held_until:
            self._since[key] = self._monotonic()
            self._behind[key] = None
            self._wake.set()

    def add(self, key: Key) -> None:
        """Put the key in line, unless it is there already. In work: once more afterwards. Failed just now: later."""
        held = self._held_until.get(key, float("-inf")) - self._monotonic()
        if key in self._working:
            self._again.add(key)
        elif held > 0:
            self.add_after(key, held)
        else:
            self._line_up(key)

    def _line_up(self, key: Key) -> None:
        if key not in self._since or key in self._behind:
            self._behind.pop(key, None)
            self._since[key] = self._monotonic()
            self._ready.append(key)
            self._wake.set()

    def put_first(self, key: Key) -> None:
        """Let a key that is in line pass all others."""
        if key in self._since:
            if key in self._behind:
                del self._behind[key]
            else:
                self._ready.remove(key)
            self._ready.appendleft(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Put the key in line later; of several wishes the earliest counts."""
        due = self._monotonic() + max(seconds, SOONEST_SECONDS)
        if due >= self._due.get(key, float("inf")):
            return
        self._due[key] = due
        heapq.heappush(self._later, (due, next(self._order), key))
        self._wake.set()

    def retry(
        self, key: Key, at_least_seconds: float | None = None, base_seconds: float = BACKOFF_BASE_SECONDS
    ) -> float:
        """Put the key in line after its back-off (1, 2, 4 … 60 times the base, at most 60 s); the seconds it waits.

        Before ``at_least_seconds``, the server's own wish, nothing else makes it run either.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._held_until[key] = self._monotonic() + max(EVENT_GAP_SECONDS, at_least_seconds or 0.0)
        wait = min(base_seconds * float(1 << min(failures, 16)), BACKOFF_MAX_SECONDS)
        wait = max(wait, at_least_seconds or 0.0)
        self.add_after(key, wait)
        return wait

    def failing(self, key: Key) -> bool:
        """Whether the key's last try failed."""
        return key in self._failures

    def forget(self, key: Key) -> None:
        """The key succeeded: its back-off starts anew."""
        self._failures.pop(key, None)
        self._held_until.pop(key, None)

    def done(self, key: Key) -> None:
        """The work on the key ended, well or not."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def get(self) -> Key:
        """The next key; it is in work until ``done``."""
        while True:
            self._promote()
            if self._since:
                key = self._next()
                del self._since[key]
                # Whoever works on it now says anew when it is to come again.
                self._due.pop(key, None)
                self._working.add(key)
                if self._since:
                    self._wake.set()
                return key
            self._wake.clear()
            try:
                async with asyncio.timeout(self._next_due_seconds()):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _next(self) -> Key:
        """Of those in line; there is one."""
        behind = next(iter(self._behind), None)
        if behind is None or (self._ready and self._monotonic() - self._since[behind] < MOST_BEHIND_SECONDS):
            return self._ready.popleft()
        del self._behind[behind]
        return behind

    def _promote(self) -> None:
        now = self._monotonic()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)

    def _next_due_seconds(self) -> float | None:
        return max(self._later[0][0] - self._monotonic(), SOONEST_SECONDS) if self._later else None
