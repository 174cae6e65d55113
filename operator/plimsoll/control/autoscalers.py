"""Who else sets replicas: HorizontalPodAutoscalers that target what we made, found before anybody is fought.

They are listed now and then, all at once; and at once where somebody else has written a count of ours, so that an
autoscaler is never answered with a repair. Nothing is watched: their status changes every few seconds.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll.adapters.ports import AUTOSCALERS, Cluster, ClusterError, ForbiddenError
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.autoscaler import Autoscaler, Scaled, scaled_by
from plimsoll.core.manifests.workload import Workload, workloads

log = logging.getLogger("plimsoll.autoscalers")

LOOK_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 5.0
"""While a count stays edited, they are listed again so often."""


@dataclass
class Autoscalers:
    """Autoscalers by what they scale. Without the right to list them none is known, and that is logged once."""

    cluster: Cluster
    cache: Cache
    queue: WorkQueue[Key]
    namespaces: Sequence[str]
    monotonic: Callable[[], float]
    _known: dict[str | None, tuple[float, dict[Scaled, Autoscaler]]] = field(default_factory=dict)
    _edited: dict[Scaled, tuple[int, float]] = field(default_factory=dict)
    """Somebody else's count, and since when it is seen."""
    _told: str = ""

    async def run(self) -> None:
        """List them for ever; services whose autoscaler came or went are looked at."""
        while True:
            for namespace in self.namespaces or (None,):
                await self._list(namespace)
            await asyncio.sleep(LOOK_SECONDS)

    async def of(self, fleet: Workload, key: Key, edited: int | None = None) -> Autoscaler | None:
        """Who scales this workload of the service. ``edited``: the count that somebody else gave it.

        Then only a listing counts that was made since that count was seen: the autoscaler may be as new as that.
        """
        scope, now = (key.namespace if self.namespaces else None), self.monotonic()
        target = Scaled(key.namespace, fleet.kind, fleet.name)
        at, known = self._known.get(scope, (float("-inf"), {}))
        if edited is None:
            self._edited.pop(target, None)
        elif at < self._seen_since(target, edited, now) or now - at > AGAIN_SECONDS:
            await self._list(scope)
            _, known = self._known.get(scope, (at, known))
        return known.get(target)

    def _seen_since(self, target: Scaled, count: int, now: float) -> float:
        before, since = self._edited.get(target, (None, now))
        self._edited[target] = (count, since if before == count else now)
        return self._edited[target][1]

    async def _list(self, scope: str | None) -> None:
        """What cannot be listed now stays as it was known: an autoscaler does not go because nobody may look."""
        _, before = self._known.get(scope, (0.0, {}))
        began = self.monotonic()
        try:
            found = scaled_by([hpa async for hpa in self.cluster.list(AUTOSCALERS, scope)])
        except ClusterError as error:
            self._tell(error)
            found = before
        self._known[scope] = (began, found)
        changed = {target for target in {**before, **found} if before.get(target) != found.get(target)}
        for key in self.cache.services() if changed else ():
            if any(Scaled(key.namespace, fleet.kind, fleet.name) in changed for fleet in workloads(key.name)):
                self.queue.add(key)

    def _tell(self, error: ClusterError) -> None:
        level = logging.WARNING if isinstance(error, ForbiddenError) else logging.INFO
        if error.message != self._told:
            log.log(level, "autoscalers of others are not seen, and their counts are repaired: %s", error.message)
        self._told = error.message
