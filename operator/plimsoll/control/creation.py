"""Reads the events of a pod whose container does not come, or of a claim it waits for; never those of others."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.adapters.ports import EVENTS, Cluster, ClusterError, ForbiddenError
from plimsoll.core import creation
from plimsoll.core.creation import Event
from plimsoll.core.hindrance import LOOKED_INTO_AFTER_SECONDS, UNBOUND
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.pods import PodState

log = logging.getLogger("plimsoll.creation")

FRESH_SECONDS: Final = 10.0
FORBIDDEN_SECONDS: Final = 30.0
REMEMBERED: Final = 512


@dataclass
class Creation:
    """What events say of pods that wait; asked at most every ten seconds a pod, and less where that is forbidden."""

    cluster: Cluster
    monotonic: Callable[[], float]
    _known: OrderedDict[tuple[str, str], tuple[float, Obstacle | None]] = field(default_factory=OrderedDict)
    _forbidden_until: float = float("-inf")

    async def told(
        self, namespace: str, pods: Iterable[PodState], template: Mapping[str, Any], now_seconds: float
    ) -> Obstacle | None:
        """Why the pod that waits longest does so, as far as events tell. ``now_seconds``: of the wall clock."""
        waiting = [
            (pod.since_seconds, pod)
            for pod in pods
            if pod.phase == "pending" and pod.since_seconds is not None and _looked_into(pod)
        ]
        since, pod = min(waiting, key=lambda each: (each[0], each[1].name), default=(now_seconds, None))
        if pod is None or now_seconds - since < LOOKED_INTO_AFTER_SECONDS:
            return None
        if not pod.unplaced:
            return await self._of_pod(namespace, pod)
        found = [await self._of_claim(namespace, claim) for claim in creation.claims(template)]
        return next((obstacle for obstacle in found if obstacle), None)

    async def _of_pod(self, namespace: str, pod: PodState) -> Obstacle | None:
        where = f"involvedObject.kind=Pod,involvedObject.uid={pod.uid}"
        return await self._read((namespace, pod.uid), where, lambda events: creation.of_pod(events, namespace))

    async def _of_claim(self, namespace: str, claim: str) -> Obstacle | None:
        where = f"involvedObject.kind=PersistentVolumeClaim,involvedObject.name={claim}"
        return await self._read((namespace, claim), where, lambda events: creation.of_claim(claim, events))

    async def _read(
        self, key: tuple[str, str], fields: str, read: Callable[[list[Event]], Obstacle | None]
    ) -> Obstacle | None:
        now = self.monotonic()
        at, known = self._known.get(key, (float("-inf"), None))
        if now - at < FRESH_SECONDS or now < self._forbidden_until:
            return known
        try:
            found = read([event async for event in self.cluster.list(EVENTS, key[0], "", fields)])
        except ForbiddenError as error:
            log.warning("why containers are not created is not known: %s", error.message)
            self._forbidden_until = now + FORBIDDEN_SECONDS
            return None
        except ClusterError as error:
            log.info("events of %s: %s", fields, error.message)
            return known
        self._known.pop(key, None)
        self._known[key] = (now, found)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return found


def _looked_into(pod: PodState) -> bool:
    return not pod.unplaced or UNBOUND in pod.unplaced
