"""What a container runs, as the kubelet sees it: a log, an exit, SIGTERM and SIGKILL."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Protocol

from e2e.fleet.gpus import Gpu

LOG_LINES = 4000
SIGKILL_EXIT = 137
SIGTERM_EXIT = 143


@dataclass(frozen=True)
class Exit:
    """How a container ended; ``message`` is what it left in its termination-message file."""

    code: int
    reason: str = ""
    message: str = ""

    @property
    def shown_reason(self) -> str:
        return self.reason or ("Error" if self.code else "Completed")


@dataclass(frozen=True)
class LogLine:
    at: datetime
    text: str


class Log:
    """The last lines of a container's output; followers wait for ``changed``."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=LOG_LINES)
        self._written = 0
        self.closed = False
        self._changed = asyncio.Event()

    def write(self, text: str) -> None:
        for line in text.splitlines() or [""]:
            self._lines.append(LogLine(datetime.now(UTC), line))
            self._written += 1
        self._wake()

    def close(self) -> None:
        self.closed = True
        self._wake()

    @property
    def written(self) -> int:
        """Lines ever written: where a follower that has read all stands."""
        return self._written

    def since(self, position: int) -> Iterator[LogLine]:
        """Lines from ``position`` on, as far as they are kept."""
        first_kept = self._written - len(self._lines)
        return islice(self._lines, max(0, position - first_kept), None)

    async def wait_for_more(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@dataclass
class Faults:
    """What an outside hand does to one pod; survives container restarts unless the kubelet clears it."""

    metrics: str | None = None
    hang: bool = False
    slow_load_factor: float = 1.0
    image_absent: bool = False
    stale_page: str | None = None


@dataclass(frozen=True)
class Launch:
    """Everything a container is started with."""

    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Mapping[str, str]
    address: str
    gpu: Gpu | None
    visible_gpus: int
    log: Log
    faults: Faults = field(default_factory=Faults)


class Process(Protocol):
    """A started container."""

    @property
    def listens(self) -> bool:
        """Whether probes can reach it; what only pretends to run is taken as healthy."""
        ...

    async def wait(self) -> Exit: ...
    def terminate(self) -> None: ...
    def kill(self, reason: str = "") -> None: ...
    def crash(self) -> None: ...


class TaskProcess:
    """A process that is an asyncio task: ``main`` gets the SIGTERM event and returns the exit code."""

    listens = True

    def __init__(self, main: Callable[[asyncio.Event], Awaitable[int]]) -> None:
        self._terminated = asyncio.Event()
        self._killed = Exit(SIGKILL_EXIT)
        self._task = asyncio.ensure_future(main(self._terminated))

    async def wait(self) -> Exit:
        await asyncio.wait({self._task})
        if self._task.cancelled():
            return self._killed
        error = self._task.exception()
        return Exit(1, "Error", f"fleet: {error!r}") if error else Exit(self._task.result())

    def terminate(self) -> None:
        self._terminated.set()

    def kill(self, reason: str = "") -> None:
        self._killed = Exit(SIGKILL_EXIT, reason)
        self._task.cancel()

    def crash(self) -> None:
        self._killed = Exit(1)
        self._task.cancel()


class IdleProcess(TaskProcess):
    """Runs and does nothing, as a pause container or a sidecar nobody asks."""

    listens = False

    def __init__(self) -> None:
        super().__init__(_idle)


async def _idle(terminated: asyncio.Event) -> int:
    await terminated.wait()
    return 0
