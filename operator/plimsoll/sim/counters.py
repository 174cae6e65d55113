"""What one engine reports about itself: the figures of a ``/metrics`` page, as vLLM counts them."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

TTFT_BOUNDS_SECONDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BOUNDS_SECONDS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
"""Bounds of vLLM 0.32's ``time_to_first_token_seconds`` and ``inter_token_latency_seconds``."""


class Histogram:
    """Counts by upper bound, the last beyond all bounds; not cumulative."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """``times`` observations of the same value."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """Interpolated in its bucket, as Prometheus does; of what lies beyond all bounds it knows the last one."""
    wanted, below = share * sum(counts), 0
    for at, count in enumerate(counts):
        if count and below + count >= wanted:
            if at == len(bounds):
                break
            low = bounds[at - 1] if at else 0.0
            return low + (bounds[at] - low) * (wanted - below) / count
        below += count
    return bounds[-1]


@dataclass(slots=True)
class Counters:
    """Totals since the engine started. Tokens of prompts count once a request, at its first token, as in vLLM."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefilled_tokens: int = 0
    """Prompt tokens computed: recomputation included, prefix hits not. vLLM has no such counter."""
    preemptions: int = 0
    finished: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    queue_seconds: float = 0.0
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS_SECONDS))
    itl: Histogram = field(default_factory=lambda: Histogram(ITL_BOUNDS_SECONDS))
