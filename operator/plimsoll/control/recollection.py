"""What earlier processes learned of engines, read back from the statuses before the first plan is made.

Without it whoever is planned first would be told another plan than a minute later, when all have been looked at once.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from plimsoll.adapters.ports import SERVICES
from plimsoll.control.cache import Cache
from plimsoll.control.children import kept_revisions
from plimsoll.control.observer import Observer
from plimsoll.core.manifests.revision import current


async def recollect(cache: Cache, observer: Observer) -> None:
    """Let every service teach what its status tells of the revision that runs. One of another shape teaches nothing."""
    for key in tuple(cache.services()):
        await asyncio.sleep(0)  # others have their turn, however many services there are
        service = cache.get(SERVICES, *key) or {}
        observed: Mapping[str, Any] = (service.get("status") or {}).get("observed") or {}
        running = current(kept_revisions(cache.children(key))) if observed else None
        if running is not None:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                observer.recall(key, service["spec"]["model"]["id"], running, observed)
