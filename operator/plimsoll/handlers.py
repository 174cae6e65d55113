"""Kopf events → cache → queue. Low-level events only: they write nothing into the user's objects (decision 1)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import kopf

from plimsoll.adapters.kube import Access
from plimsoll.adapters.ports import SERVICES, Change
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.remember import remember
from plimsoll.control.workqueue import WorkQueue

CREDENTIALS_SECONDS: Final = 600.0


@dataclass(frozen=True)
class Watching:
    """Kopf, watching VLLMServices, on a thread and an event loop of its own (docs/adr/0030).

    Kopf takes a loop for its own: when it ends it cancels every task in it that is younger than itself.
    """

    cache: Cache
    queue: WorkQueue[Key]
    access: Callable[[], Coroutine[None, None, Access]]
    namespaces: Sequence[str]
    request_timeout_seconds: float

    async def run(self) -> None:
        """Watch until cancelled; raises what ended Kopf."""
        runner, over = asyncio.Runner(), asyncio.Event()
        its_loop, ours = runner.get_loop(), asyncio.get_running_loop()
        thread = asyncio.ensure_future(asyncio.to_thread(_run, runner, self._until(over, ours)))
        try:
            await asyncio.shield(thread)
        except asyncio.CancelledError:
            with silent_kopf():
                with contextlib.suppress(RuntimeError):  # it ended by itself just now
                    its_loop.call_soon_threadsafe(over.set)
                await asyncio.gather(thread, return_exceptions=True)
            raise

    async def _until(self, over: asyncio.Event, ours: asyncio.AbstractEventLoop) -> None:
        """On Kopf's loop: until it ends by itself, or is ended by ours."""
        ending = asyncio.create_task(over.wait())
        watching = asyncio.create_task(self._watch(ours))
        await asyncio.wait([ending, watching], return_when=asyncio.FIRST_COMPLETED)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    async def _watch(self, ours: asyncio.AbstractEventLoop) -> None:
        chosen = registry(lambda change: ours.call_soon_threadsafe(remember, SERVICES, change, self.cache, self.queue))
        kopf.on.login(registry=chosen, id="credentials")(partial(self._login, ours))
        await kopf.operator(
            registry=chosen,
            settings=settings(self.request_timeout_seconds),
            clusterwide=not self.namespaces,
            namespaces=self.namespaces,
            standalone=True,
        )

    async def _login(self, ours: asyncio.AbstractEventLoop, **_: object) -> kopf.ConnectionInfo:
        access = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.access(), ours))
        return kopf.ConnectionInfo(
            server=access.server,
            ca_path=access.ca_path,
            insecure=not access.verify,
            scheme=access.scheme,
            token=access.token,
            certificate_path=access.certificate_path,
            private_key_path=access.key_path,
            # Service account tokens rotate on disk; asking again now and then finds the new one.
            expiration=datetime.now(UTC) + timedelta(seconds=CREDENTIALS_SECONDS),
        )


def _run(runner: asyncio.Runner, watching: Coroutine[None, None, None]) -> None:
    with runner:
        runner.run(watching)


@contextmanager
def silent_kopf() -> Iterator[None]:
    """Let Kopf end without a word: it closes its session under requests of its own and calls each an error."""
    logger = logging.getLogger("kopf")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def registry(tell: Callable[[Change], object]) -> kopf.OperatorRegistry:
    """One handler, for VLLMServices; what they own is watched by ``control/watch.py``."""
    handlers = kopf.OperatorRegistry()

    async def on_event(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401 - Kopf's keyword arguments
        tell(Change(event.get("type") == "DELETED", event["object"]))

    watch = kopf.on.event(
        group=SERVICES.group, version=SERVICES.version, plural=SERVICES.plural, id="vllmservice", registry=handlers
    )
    watch(on_event)
    return handlers


class NothingKept(kopf.DiffBaseStorage):
    """Kopf copies the whole object at every event, to compare it with what change handlers have seen. We have none."""

    def build(self, *, body: kopf.Body, extra_fields: Iterable[Any] | None = None) -> kopf.BodyEssence:
        """Nothing of it."""
        del body, extra_fields
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> None:
        """Nothing was kept."""
        del body

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Keep nothing: annotations are the user's."""
        del body, patch, essence


def settings(request_timeout_seconds: float) -> kopf.OperatorSettings:
    """Kopf's settings; each differs from the default for a measured reason (operator-practice, part A.2)."""
    chosen = kopf.OperatorSettings()
    chosen.networking.request_timeout = request_timeout_seconds
    chosen.networking.connect_timeout = 5
    chosen.watching.server_timeout = 240
    chosen.watching.client_timeout = 300
    chosen.watching.chunk_size = 500
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    # Whether our kind is served is asked by control/discovery.py, which needs no right on CRDs and namespaces.
    chosen.scanning.disabled = True
    # Kopf would SIGKILL the whole process so long after it was ended, also when only the lead was lost.
    chosen.process.ultimate_exiting_timeout = None
    chosen.persistence.finalizer = f"{names.GROUP}/unused"
    chosen.persistence.diffbase_storage = NothingKept()
    return chosen
