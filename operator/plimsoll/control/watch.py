"""Watches children and pods without Kopf: they are many, and an event costs Kopf milliseconds (docs/adr/0010)."""

from collections.abc import Callable
from dataclasses import dataclass

from plimsoll.adapters.ports import Cluster, GoneError, Kind
from plimsoll.control.cache import Cache, Key
from plimsoll.control.remember import remember
from plimsoll.control.sweep import OWNED, Sweep
from plimsoll.control.workqueue import WorkQueue


@dataclass(frozen=True)
class Watch:
    """What the operator owns of one kind, in one namespace or in all."""

    cluster: Cluster
    sweep: Sweep
    cache: Cache
    queue: WorkQueue[Key]
    kind: Kind
    namespace: str | None
    listed: Callable[[], None] = lambda: None
    """Called whenever the kind was listed: from then on the cache holds what is there."""

    async def run(self) -> None:
        """Follow changes for ever, listing anew when a version is too old. Raises ClusterError when the API is away."""
        await self.sweep.synced.wait()
        while True:
            since = await self.sweep.listed_since(self.kind, self.namespace)
            self.listed()
            try:
                await self._follow(since)
            except GoneError:
                continue

    async def _follow(self, since: str) -> None:
        while True:
            async for change in self.cluster.watch(self.kind, self.namespace, OWNED, since):
                since = change.object["metadata"]["resourceVersion"]
                remember(self.kind, change, self.cache, self.queue)
