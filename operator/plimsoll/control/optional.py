"""Kinds that a cluster may have or not: found by polling, watched while they are there, missed by nobody who does not
want them.

Each kind stands for itself: one that is missing, forbidden or broken stops neither the others nor the operator, and it
is asked for again and again, since CRDs and rights come and go at run time.
"""

import asyncio
import logging
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from plimsoll import metrics
from plimsoll.adapters.ports import OPTIONAL, Cluster, ClusterError, ForbiddenError, Kind, NotFoundError
from plimsoll.control.cache import Cache, Key
from plimsoll.control.sweep import Sweep
from plimsoll.control.watch import Watch
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.kinds import Availability, Kinds

log = logging.getLogger("plimsoll.optional")

JITTER: Final = 0.2
RETRY_SECONDS: Final = 5.0

_USABLE: Final = Availability("usable")
Place = tuple[Kind, str | None]
"""A kind, in one namespace or in all."""


@dataclass
class OptionalKinds:
    """What is known of the optional kinds. ``known`` is set once each was looked at, whatever came of it."""

    cluster: Cluster
    cache: Cache
    queue: WorkQueue[Key]
    sweep: Sweep
    namespaces: Sequence[str]
    interval_seconds: float
    wanted: Collection[str] = tuple(kind.kind for kind in OPTIONAL)
    """Names of the kinds to look for; the others are left alone."""
    known: asyncio.Event = field(default_factory=asyncio.Event)
    _found: dict[Place, Availability] = field(default_factory=dict)
    _following: dict[Place, asyncio.Task[None]] = field(default_factory=dict)

    def of(self, namespace: str) -> Kinds:
        """What a service in the namespace may use."""
        scope = namespace if self.namespaces else None
        off = {kind.kind: _off(kind) for kind in OPTIONAL if kind.kind not in self.wanted}
        return Kinds(off | {kind.kind: found for (kind, where), found in self._found.items() if where == scope})

    def usable(self) -> Iterator[Place]:
        """Kinds that can be listed now, and where."""
        return (place for place, found in self._found.items() if found.access == "usable")

    async def run(self) -> None:
        """Look for the kinds until cancelled; what follows a kind ends with it, or with us."""
        if not self._places():
            self.known.set()
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    wait_seconds = await self._poll(group)
                    await asyncio.sleep(wait_seconds)
            finally:
                self._following.clear()

    async def _poll(self, group: asyncio.TaskGroup) -> float:
        """One look at what is served; the seconds until the next. No answer changes nothing."""
        try:
            served = await self.cluster.which_served(OPTIONAL)
        except ForbiddenError as error:
            for place in self._places():
                self._set(place, Availability("forbidden", f"the operator may not ask what is served: {error.message}"))
            return self.interval_seconds
        except ClusterError as error:
            log.info("cannot ask which kinds are served: %s", error.message)
            return self.interval_seconds if self.known.is_set() else RETRY_SECONDS
        for place in self._places():
            if place[0] not in served:
                self._lose(place)
            elif place not in self._following or self._following[place].done():
                self._following[place] = group.create_task(self._follow(place))
        return self.interval_seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - jitter, not a secret

    def _places(self) -> list[Place]:
        kinds = [kind for kind in OPTIONAL if kind.kind in self.wanted]
        return [(kind, namespace) for kind in kinds for namespace in self.namespaces or (None,)]

    async def _follow(self, place: Place) -> None:
        """Watch a kind that is served. Ends when it may not be read or is gone: the next poll begins anew."""
        kind, namespace = place
        watch = Watch(
            self.cluster, self.sweep, self.cache, self.queue, kind, namespace, partial(self._set, place, _USABLE)
        )
        while True:
            try:
                await watch.run()
            except ForbiddenError:
                self._set(place, Availability("forbidden", _forbidden(kind, namespace)))
                return
            except NotFoundError:
                self._set(place, Availability("absent", absent(kind)))
                return
            except ClusterError as error:
                log.info("watching %s ended, trying again: %s", kind.plural, error.message)
                if self._found.get(place) != _USABLE:
                    self._set(place, Availability("unreadable", f"{kind.kind}s cannot be listed: {error.message}"))
            await asyncio.sleep(RETRY_SECONDS)

    def _lose(self, place: Place) -> None:
        task = self._following.pop(place, None)
        if task is not None:
            task.cancel()
        self._set(place, Availability("absent", absent(place[0])))

    def _set(self, place: Place, found: Availability) -> None:
        """Remember what was found; when that is news, every service is looked at again."""
        before, self._found[place] = self._found.get(place), found
        if len(self._found) == len(self._places()):
            self.known.set()
        kind, namespace = place
        metrics.OPTIONAL_KINDS.labels(kind.kind).set(any(usable == kind for usable, _ in self.usable()))
        if found == before:
            return
        if before is not None or found.access != "absent":
            log.info("%s: %s", kind.kind, found.why or "served and watched")
        if found.access != "usable":
            self.cache.prune(kind, (), self.cache.mark(), namespace)
        for key in self.cache.services():
            self.queue.add(key)


def absent(kind: Kind) -> str:
    """Why a kind that is not served cannot be used."""
    return f"{kind.kind} ({kind.api_version}) is not served by this cluster: its CRD is not installed"


def _off(kind: Kind) -> Availability:
    return Availability("off", f"{kind.kind} is left out of the operator's setting PLIMSOLL_OPTIONAL_KINDS")


def _forbidden(kind: Kind, namespace: str | None) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    return (
        f"{kind.kind} ({kind.api_version}) is served, but the operator may not list and watch "
        f"{kind.plural}.{kind.group}{where}; grant it the chart's rules for the kind"
    )
