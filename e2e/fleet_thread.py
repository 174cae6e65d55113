"""The fleet on an event loop of its own: it goes on while a test blocks, whatever loop the test runs in."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from e2e.fleet import Fleet

Answer = TypeVar("Answer")

STOP_SECONDS: Final = 20.0


class FleetThread:
    """Enters `make()` in a thread and leaves it at `stop`; `fleet` is what it gave."""

    fleet: Fleet

    def __init__(self, make: Callable[[], AbstractAsyncContextManager[Fleet]]) -> None:
        self._make = make
        self._ready: Future[None] = Future()
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    def start(self) -> None:
        """Return when the fleet is there; its failure to start is raised here."""
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        self._ready.result()

    def submit(self, coroutine: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Have the fleet's loop run this; `cancel` of what is returned ends it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Have the fleet's loop run this, and wait for its result."""
        return self.submit(coroutine).result()

    def stop(self) -> None:
        """Leave the fleet, also in the middle of its start."""
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop closed just now
                self._loop.call_soon_threadsafe(self._leave)
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._live())
            except BaseException as error:
                if self._ready.done():
                    raise
                self._ready.set_exception(error)

    async def _live(self) -> None:
        self._task = asyncio.current_task()
        with contextlib.suppress(asyncio.CancelledError):
            async with self._make() as self.fleet:
                self._ready.set_result(None)
                await asyncio.Event().wait()

    def _leave(self) -> None:
        if self._task:
            self._task.cancel()
