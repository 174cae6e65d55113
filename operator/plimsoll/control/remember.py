"""A change seen by a watch → the cache, and the service it concerns in line."""

from typing import Final

from plimsoll.adapters.ports import SERVICES, Change, Kind
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue

CHILD_DELAY_SECONDS: Final = 0.25
"""Children change in bursts (Deployment, its pods, their conditions): one look at what came of it is enough."""


def remember(kind: Kind, change: Change, cache: Cache, queue: WorkQueue[Key]) -> None:
    """Services are looked at at once, children a moment later; noise is not looked at."""
    key = cache.drop(kind, change.object) if change.deleted else cache.put(kind, change.object)
    if key is None:
        return
    if kind is SERVICES:
        queue.add(key)
    else:
        queue.add_after(key, CHILD_DELAY_SECONDS)
