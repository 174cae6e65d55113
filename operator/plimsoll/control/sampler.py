"""Asks Prometheus what all fleets do, once a tick for all services together, and puts those that run in line.

Answers are kept by pod; a service's view is joined with the cache's own pods when it is asked for: a pod that only one
of the two knows is missing or left out, never counted wrongly.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.pods import Phase, PodState
from plimsoll.core.signals import FleetView, Look, PodView, Reading, Signal

State = Literal["loading", "ready", "failing", "terminating"]

STATES: Final[Mapping[Phase, State]] = {
    "pending": "loading",
    "loading": "loading",
    "ready": "ready",
    "unready": "failing",
    "failing": "failing",
    "terminating": "terminating",
}

Engines = Mapping[str, Mapping[Signal, Reading]]


@dataclass(frozen=True)
class Sampling:
    """What one tick found: readings by (namespace, pod) and engine, at a moment of the monotonic clock."""

    at_seconds: float
    pods: Mapping[tuple[str, str], Engines] = field(default_factory=dict)
    error: str = ""
    """Why nothing could be read, in the backend's own words."""


class Sampler:
    """The newest sampling, and the loop that takes it."""

    def __init__(
        self, cache: Cache, queue: WorkQueue[Key], monotonic: Callable[[], float], interval_seconds: float
    ) -> None:
        self._cache = cache
        self._queue = queue
        self._monotonic = monotonic
        self._interval_seconds = interval_seconds
        self._sampling: Sampling | None = None

    def look(self, key: Key) -> Look | None:
        """The service's fleet at the newest tick; None when no Prometheus is configured or none was sampled yet."""
        found = self._sampling
        if found is None:
            return None
        pods = tuple(self._pod(key.namespace, pod, found) for pod in self._cache.pods(key))
        return Look(FleetView(pods, error=found.error), found.at_seconds)

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            if self._sampling is not None:
                self.tick()
            await asyncio.sleep(self._interval_seconds)

    def tick(self) -> None:
        """Put every service in line whose fleet serves or loads."""
        for key in self._cache.services():
            if any(STATES[pod.phase] in ("ready", "loading") for pod in self._cache.pods(key)):
                self._queue.add(key)

    def _pod(self, namespace: str, pod: PodState, found: Sampling) -> PodView:
        return PodView(pod.name, STATES[pod.phase], engines=found.pods.get((namespace, pod.name), {}))
