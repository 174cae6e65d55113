"""Kopf events → cache → queue. Low-level events only: they write nothing into the user's objects (decision 1)."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf

from plimsoll.adapters.ports import CHILDREN, PODS, SERVICES, Kind
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue

WATCHED: Final = (SERVICES, *CHILDREN, PODS)

CHILD_DELAY_SECONDS: Final = 0.25
"""Children change in bursts (Deployment, its pods, their conditions): one look at what came of it is enough."""


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
    for kind in (*CHILDREN, PODS):
        chosen.watching.label_selectors[kind.group, kind.version, kind.plural] = (
            f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
        )
    return chosen


def _handler(kind: Kind, cache: Cache, queue: WorkQueue[Key]) -> Callable[..., Awaitable[None]]:
    async def on_event(event: dict[str, Any], **_: Any) -> None:  # noqa: ANN401 - Kopf's keyword arguments
        remember(kind, event, cache, queue)

    return on_event


def remember(kind: Kind, event: dict[str, Any], cache: Cache, queue: WorkQueue[Key]) -> None:
    """Put one watch event into the cache, and the service it concerns in line."""
    forget = event.get("type") == "DELETED"
    key = cache.drop(kind, event["object"]) if forget else cache.put(kind, event["object"])
    if key is None:
        return
    if kind is SERVICES:
        queue.add(key)
    else:
        queue.add_after(key, CHILD_DELAY_SECONDS)
