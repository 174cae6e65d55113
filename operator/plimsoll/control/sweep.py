"""Full listings: the first one opens the gate for writes, later ones find what every watch may miss.

A watch can lose deletions (a 410 and a fresh list say nothing of what is gone), so only a listing may forget.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll import metrics
from plimsoll.adapters.ports import CHILDREN, PODS, SERVICES, Cluster, ClusterError, ForbiddenError, Kind
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue

log = logging.getLogger("plimsoll.sweep")

JITTER: Final = 0.2
RETRY_SECONDS: Final = 5.0
RIGHTS_SECONDS: Final = 30.0
LISTED: Final = (SERVICES, *CHILDREN, PODS)
OWNED: Final = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"


@dataclass
class Sweep:
    """Lists everything now and then. ``attempted_seconds`` (monotonic) says when it last tried, well or not."""

    cluster: Cluster
    cache: Cache
    queue: WorkQueue[Key]
    namespaces: Sequence[str]
    interval_seconds: float
    monotonic: Callable[[], float]
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    attempted_seconds: float = 0.0
    optional: Callable[[], Iterable[tuple[Kind, str | None]]] = lambda: ()
    """Kinds to list as well, and where; what becomes of that decides nothing for the others."""
    _unlisted: dict[tuple[Kind, str | None], str] = field(default_factory=dict)
    _since: dict[tuple[Kind, str | None], str] = field(default_factory=dict)
    _listed_at: dict[tuple[Kind, str | None], float] = field(default_factory=dict)

    async def run(self) -> None:
        """Sweep until cancelled; a failed listing is tried again soon."""
        while True:
            ok = await self.once()
            wait = self.interval_seconds if ok else min(RETRY_SECONDS, self.interval_seconds)
            await self._rest(wait * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311 - jitter, not a secret

    async def _rest(self, seconds: float) -> None:
        """Until the next sweep. What may not be listed is tried more often: no event says that a right was granted."""
        end = self.monotonic() + seconds
        while (left := end - self.monotonic()) > 0:
            await asyncio.sleep(min(left, RIGHTS_SECONDS) if self._unlisted else left)
            for kind, namespace in tuple(self._unlisted):
                await self._try(kind, namespace)

    async def take_over(self, seconds: float) -> None:
        """Queue every service, as listed after ``seconds`` (monotonic): the leader before us acted on newer ones.

        Those whose owners wait for an answer come first: their spec has changed since somebody last acted on it.
        Only they are listed: what they own was listed once and is watched since.
        """
        await self.synced.wait()
        for namespace in self.namespaces or (None,):
            while self._listed_at.get((SERVICES, namespace), 0.0) < seconds:
                if not await self._try(SERVICES, namespace):
                    await asyncio.sleep(RETRY_SECONDS)
        self._queue_all()
        for key in self._unanswered():
            self.queue.put_first(key)

    async def once(self) -> bool:
        """One full listing; whether all of it succeeded. A kind that cannot be listed forgets nothing and stops none.

        The first success opens the gate for writes: nobody decides on half a picture. A right that is missing for a
        child's kind is part of the picture: every service says so (``unlisted``), and nothing of that kind is written.
        """
        self.attempted_seconds = self.monotonic()
        results = [await self._try(kind, namespace) for kind in LISTED for namespace in self.namespaces or (None,)]
        ok = all(results)
        metrics.SWEEPS.labels("ok" if ok else "failed").inc()
        if not ok:
            return False
        self.synced.set()
        for kind, namespace in tuple(self.optional()):
            await self._try(kind, namespace)
        self._queue_all()
        return True

    def _queue_all(self) -> None:
        """Level-triggered: whatever was missed in between, each service is looked at again, behind all that happens."""
        for key in self.cache.services():
            self.queue.add_behind(key)

    def _unanswered(self) -> Iterator[Key]:
        for key in self.cache.services():
            service = self.cache.get(SERVICES, *key) or {}
            answered = (service.get("status") or {}).get("observedGeneration")
            if service.get("metadata", {}).get("generation") != answered:
                yield key

    def unlisted(self, kind: Kind, namespace: str) -> str:
        """The API server's sentence when the operator may not list this kind there, or empty."""
        return self._unlisted.get((kind, None)) or self._unlisted.get((kind, namespace), "")

    async def _try(self, kind: Kind, namespace: str | None) -> bool:
        try:
            version = await self._list(kind, namespace)
        except ForbiddenError as error:
            if self._unlisted.get((kind, namespace)) != error.message:
                log.warning("listing %s failed: %s", kind.plural, error.message)
            self._unlisted[kind, namespace] = error.message
            return kind is not SERVICES
        except ClusterError as error:
            log.warning("listing %s failed, trying again in a few seconds: %s", kind.plural, error.message)
            return False
        if not self.synced.is_set():
            self._since[kind, namespace] = version
        return True

    async def listed_since(self, kind: Kind, namespace: str | None) -> str:
        """A version to watch from: that of the first sweep for the first who asks, later of a listing made now."""
        return self._since.pop((kind, namespace), "") or await self._list(kind, namespace)

    async def _list(self, kind: Kind, namespace: str | None) -> str:
        """Put what is there, forget what is not; the version that the listing is at least as new as."""
        began = self.monotonic()
        version = await self.cluster.version(kind, namespace)
        since, seen = self.cache.mark(), []
        async for obj in self.cluster.list(kind, namespace, "" if kind is SERVICES else OWNED):
            meta = obj["metadata"]
            seen.append(Key(meta.get("namespace", ""), meta["name"]))
            changed = self.cache.put(kind, obj)
            if changed is not None:
                self.queue.add(changed)
        for key in self.cache.prune(kind, seen, since, namespace):
            self.queue.add(key)
        self._listed_at[kind, namespace] = began
        if self._unlisted.pop((kind, namespace), None):
            self._queue_all()
        return version
