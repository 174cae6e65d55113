"""Knative's KPA: concurrency per pod, with a panic mode.

Source: knative/serving ``pkg/autoscaler/scaling/autoscaler.go``, ``config/core/configmaps/autoscaler.yaml``.
"""

import math
from typing import Final

from plimsoll.sim.observe import Observation
from plimsoll.sim.policies.windows import Window

TICK_SECONDS: Final = 2.0
STABLE_SECONDS: Final = 60.0
PANIC_SECONDS: Final = 6.0
PANIC_RATIO: Final = 2.0
UTILISATION: Final = 0.7
MOST_UP: Final = 1000
MOST_DOWN: Final = 2


class Knative:
    """Sees requests at the pods' proxies, every two seconds."""

    interval_seconds = TICK_SECONDS
    live = True

    def __init__(self, container_concurrency: float = 100) -> None:
        self._target = UTILISATION * container_concurrency
        self._stable, self._panic = Window(STABLE_SECONDS), Window(PANIC_SECONDS)
        self._panicking_since: float | None = None
        self._most = 0

    def decide(self, seen: Observation) -> int:
        """The stable window's need, or in a panic the largest need since it began."""
        ready = max(1, sum(pod.state == "ready" for pod in seen.pods))
        inside = sum(p.sample.running + p.sample.waiting for p in seen.pods if p.sample) + seen.held
        for window in (self._stable, self._panic):
            window.add(seen.seconds, inside)
        stable, panic = (self._clamped(window.mean, ready) for window in (self._stable, self._panic))
        self._watch(seen.seconds, math.ceil(self._panic.mean / self._target) / ready)
        if self._panicking_since is None:
            return stable
        self._most = max(self._most, stable, panic)
        return self._most

    def _clamped(self, value: float, ready: int) -> int:
        return min(max(math.ceil(value / self._target), ready // MOST_DOWN), MOST_UP * ready)

    def _watch(self, now: float, ratio: float) -> None:
        if ratio >= PANIC_RATIO:
            if self._panicking_since is None:
                self._most = 0
            self._panicking_since = now
        elif self._panicking_since is not None and now - self._panicking_since >= STABLE_SECONDS:
            self._panicking_since = None
