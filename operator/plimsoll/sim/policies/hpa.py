"""The HorizontalPodAutoscaler, v2: its replica rules and its behaviour (stabilisation, rates).

Source: kubernetes ``pkg/controller/podautoscaler/replica_calculator.go``, ``horizontal.go`` and
``pkg/apis/autoscaling/v2/defaults.go``.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll.sim.observe import Observation, PodSample

TOLERANCE: Final = 0.1
SYNC_SECONDS: Final = 15.0


def by_pods(current: int, values: Sequence[float], missing: int, unready: int, target: float) -> int:
    """Replicas for a metric of each pod. ``missing`` pods are ready without a value, ``unready`` ones still load.

    Missing pods count as exactly the target on the way down and as 0 on the way up, unready ones as 0 on the way up;
    if that turns the direction or ends inside the tolerance, nothing moves.
    """
    if not values:
        return current
    ratio = sum(values) / len(values) / target
    assumed = _assumed(ratio, missing, unready, target)
    if not assumed:
        return current if abs(ratio - 1) <= TOLERANCE else math.ceil(ratio * len(values))
    counted = [*values, *assumed]
    again = sum(counted) / len(counted) / target
    if abs(again - 1) <= TOLERANCE or (ratio < 1) != (again < 1):
        return current
    wanted = math.ceil(again * len(counted))
    turned = (again < 1 and wanted > current) or (again > 1 and wanted < current)
    return current if turned else wanted


def _assumed(ratio: float, missing: int, unready: int, target: float) -> list[float]:
    if ratio < 1:
        return [target] * missing
    return [0.0] * (missing + unready) if ratio > 1 else []


def by_total(current: int, total: float, target: float) -> int:
    """Replicas for an external metric with an AverageValue target: each replica may have ``target`` of the total."""
    if current and abs(1 - total / (target * current)) <= TOLERANCE:
        return current
    return math.ceil(total / target)


@dataclass
class Behaviour:
    """What an HPA does with a recommendation: it waits for the window, and moves no faster than its policies allow."""

    up_window_seconds: float = 0.0
    down_window_seconds: float = 300.0
    up_pods: int = 4
    up_share: float = 1.0
    down_share: float = 1.0
    period_seconds: float = 15.0
    _wishes: deque[tuple[float, int]] = field(default_factory=deque)
    _moves: deque[tuple[float, int]] = field(default_factory=deque)

    def apply(self, now: float, current: int, wanted: int) -> int:
        """The replicas to set now."""
        wanted = self._stabilised(now, current, wanted)
        moved = self._limited(now, current, wanted)
        if moved != current:
            self._moves.append((now, moved - current))
        return moved

    def _stabilised(self, now: float, current: int, wanted: int) -> int:
        """Up no further than the least, down no further than the most, that was asked within the window."""
        self._wishes.append((now, wanted))
        longest = max(self.up_window_seconds, self.down_window_seconds)
        while self._wishes[0][0] < now - longest:
            self._wishes.popleft()
        up = min(wish for at, wish in self._wishes if at >= now - self.up_window_seconds)
        down = max(wish for at, wish in self._wishes if at >= now - self.down_window_seconds)
        return up if current < up else min(current, down)

    def _limited(self, now: float, current: int, wanted: int) -> int:
        while self._moves and self._moves[0][0] <= now - self.period_seconds:
            self._moves.popleft()
        before = current - sum(change for _, change in self._moves)
        if wanted > current:
            most = max(before + self.up_pods, math.ceil(before * (1 + self.up_share)))
            return max(current, min(wanted, most))
        least = math.floor(before * (1 - self.down_share))
        return min(current, max(wanted, least))


class HpaKv:
    """An HPA on the mean of ``vllm:kv_cache_usage_perc``."""

    interval_seconds = SYNC_SECONDS
    live = False

    def __init__(self, target: float) -> None:
        self._target, self._behaviour = target, Behaviour()

    def decide(self, seen: Observation) -> int:
        """Replicas by the ratio of mean use to target."""
        wanted = by_pods(seen.wanted, *values(seen, lambda sample: sample.usage), self._target)
        return self._behaviour.apply(seen.seconds, seen.wanted, wanted)


class KedaWaiting:
    """A KEDA ScaledObject on the sum of ``vllm:num_requests_waiting``: between 1 and N an HPA with AverageValue."""

    interval_seconds = SYNC_SECONDS
    live = False

    def __init__(self, threshold: float = 5) -> None:
        self._threshold, self._behaviour = threshold, Behaviour()

    def decide(self, seen: Observation) -> int:
        """Replicas so that each has ``threshold`` waiting requests."""
        found, _, _ = values(seen, lambda sample: sample.waiting)
        wanted = by_total(seen.wanted, sum(found) + seen.held, self._threshold)
        return self._behaviour.apply(seen.seconds, seen.wanted, wanted)


def values(seen: Observation, read: Callable[[PodSample], float]) -> tuple[list[float], int, int]:
    """A metric's values, and how many pods are ready without one, and not ready."""
    found = [read(pod.sample) for pod in seen.pods if pod.state == "ready" and pod.sample]
    ready = sum(pod.state == "ready" for pod in seen.pods)
    return found, ready - len(found), sum(pod.state == "loading" for pod in seen.pods)
