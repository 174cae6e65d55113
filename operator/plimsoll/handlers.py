"""Kopf events → cache → queue. Low-level events only: they write nothing into the user's objects (decision 1)."""

from typing import Any

import kopf

from plimsoll.adapters.ports import SERVICES, Change
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.remember import remember
from plimsoll.control.workqueue import WorkQueue


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


def settings(request_timeout_seconds: float, *, clusterwide: bool) -> kopf.OperatorSettings:
    """Kopf's settings; each differs from the default for a measured reason (operator-practice, part A.2)."""
    chosen = kopf.OperatorSettings()
    chosen.networking.request_timeout = request_timeout_seconds
    chosen.networking.connect_timeout = 5
    chosen.watching.server_timeout = 240
    chosen.watching.client_timeout = 300
    chosen.watching.chunk_size = 500
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = not clusterwide
    chosen.process.ultimate_exiting_timeout = 30
    chosen.persistence.finalizer = f"{names.GROUP}/unused"
    return chosen
