"""Workers: take a key, reconcile it, put it back when it failed. One bad service never holds up another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from plimsoll import metrics
from plimsoll.adapters.ports import ClusterError, ConflictError
from plimsoll.control.cache import Key
from plimsoll.control.workqueue import CONFLICT_BASE_SECONDS, WorkQueue

log = logging.getLogger("plimsoll.loop")

Reconcile = Callable[[Key], Awaitable[float | None]]


class Loop:
    """Runs reconciles. ``beat`` is when a worker last took or finished a key, or found none to take."""

    def __init__(self, queue: WorkQueue[Key], reconcile: Reconcile, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._reconcile = reconcile
        self._monotonic = monotonic

    async def run(self, workers: int) -> None:
        """Work until cancelled; what is in work then may finish its current call."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self.once(key)
            finally:
                self._queue.done(key)
            # A look that had nothing to wait for gave nobody a turn, and thousands follow each other after a sweep:
            # meanwhile the Lease has to be renewed and probes to be answered.
            await asyncio.sleep(0)

    async def once(self, key: Key) -> None:
        """Reconcile one key; expected faults are one log line, unexpected ones carry their traceback."""
        started = self._monotonic()
        extra = {"service": str(key)}
        try:
            again = await self._reconcile(key)
        except ConflictError as error:
            # What it was decided on has changed: no fault, and soon known.
            metrics.RECONCILES.labels("conflict").inc()
            self._queue.retry(key, base_seconds=CONFLICT_BASE_SECONDS)
            log.debug("deciding again: %s", error.message, extra=extra)
        except ClusterError as error:
            metrics.API_ERRORS.labels(str(error.status or "none")).inc()
            self._failed(key, "api_error", error.retry_after_seconds)
            log.warning("will try again: %s", error.message, extra=extra)
        except Exception:  # a fault of ours in one service must not end the others
            self._failed(key, "fault", None)
            log.exception("reconcile failed", extra=extra)
        else:
            self._queue.forget(key)
            metrics.RECONCILES.labels("ok").inc()
            if again is not None:
                self._queue.add_after(key, again)
        metrics.RECONCILE_SECONDS.observe(self._monotonic() - started)

    def _failed(self, key: Key, result: str, retry_after_seconds: float | None) -> None:
        metrics.RECONCILES.labels(result).inc()
        self._queue.retry(key, retry_after_seconds)
