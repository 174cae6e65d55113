"""Kopf events → cache → queue. Low-level events only: they write nothing into the user's objects (decision 1)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf

from plimsoll.adapters.ports import CHILDREN, SERVICES, Change, Kind
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.remember import remember
from plimsoll.control.workqueue import WorkQueue

WATCHED: Final = (SERVICES, *CHILDREN)
"""Pods come through ``control/podwatch.py``: they are many and chatty, and an event costs Kopf milliseconds."""


def registry(cache: Cache, queue: WorkQueue[Key]) -> kopf.OperatorRegistry:
    """Handlers for everything watched."""
    handlers = kopf.OperatorRegistry()
    for kind in WATCHED:
        watch = kopf.on.event(
            group=kind.group, version=kind.version, plural=kind.plural, id=kind.plural, registry=handlers
        )
        watch(_handler(kind, cache, queue))
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
    for kind in CHILDREN:
        chosen.watching.label_selectors[kind.group, kind.version, kind.plural] = (
            f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        )
    return chosen


def _handler(kind: Kind, cache: Cache, queue: WorkQueue[Key]) -> Callable[..., Awaitable[None]]:
    async def on_event(event: dict[str, Any], **_: Any) -> None:  # noqa: ANN401 - Kopf's keyword arguments
        remember(kind, Change(event.get("type") == "DELETED", event["object"]), cache, queue)

    return on_event
