"""Kopf events → cache → queue. Low-level events only: they write nothing into the user's objects (decision 1)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
    """Kopf, watching VLLMServices until ``stop`` is set. ``reclaim_signals`` is called when it has taken them."""

    cache: Cache
    queue: WorkQueue[Key]
    access: Callable[[], Awaitable[Access]]
    namespaces: Sequence[str]
    request_timeout_seconds: float
    reclaim_signals: Callable[[], None]

    async def run(self, stop: asyncio.Event) -> None:
        """Watch; a normal end without ``stop`` means that Kopf caught our signal."""
        ready = asyncio.Event()
        chosen = registry(self.cache, self.queue)
        kopf.on.login(registry=chosen, id="credentials")(self._login)
        signals = asyncio.create_task(self._reclaim(ready))
        try:
            await kopf.operator(
                registry=chosen,
                settings=settings(self.request_timeout_seconds),
                clusterwide=not self.namespaces,
                namespaces=self.namespaces,
                standalone=True,
                stop_flag=stop,
                ready_flag=ready,
            )
        finally:
            signals.cancel()
            self.reclaim_signals()

    async def _login(self, **_: object) -> kopf.ConnectionInfo:
        access = await self.access()
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

    async def _reclaim(self, ready: asyncio.Event) -> None:
        """Kopf takes SIGTERM and SIGINT for itself at each start; the operator outlives Kopf."""
        await ready.wait()
        self.reclaim_signals()


def registry(cache: Cache, queue: WorkQueue[Key]) -> kopf.OperatorRegistry:
    """One handler, for VLLMServices; what they own is watched by ``control/watch.py``."""
    handlers = kopf.OperatorRegistry()

    async def on_event(event: kopf.RawEvent, **_: Any) -> None:  # noqa: ANN401 - Kopf's keyword arguments
        remember(SERVICES, Change(event.get("type") == "DELETED", event["object"]), cache, queue)

    watch = kopf.on.event(
        group=SERVICES.group, version=SERVICES.version, plural=SERVICES.plural, id="vllmservice", registry=handlers
    )
    watch(on_event)
    return handlers


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
    chosen.process.ultimate_exiting_timeout = 30
    chosen.persistence.finalizer = f"{names.GROUP}/unused"
    return chosen
