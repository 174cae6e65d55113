"""A fleet as the law of replicas reads it, in as many figures for a thousand pods as for one. Pure.

The law adds up signals over engines, or takes their mean, and counts pods: a fleet with the same sums over as many
engines is the same to it.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

from plimsoll.core.signals import FleetView, PodView, Sample, Signal

READ: Final = (
    Signal.USAGE,
    Signal.USAGE_PEAK,
    Signal.RUNNING,
    Signal.WAITING,
    Signal.PREEMPTIONS,
    Signal.REQUESTS,
    Signal.FINISHED,
    Signal.PROMPT_TOKENS,
    Signal.HIT_RATIO,
)
"""Signals that the law reads, as sums or means over the engines."""


@dataclass(frozen=True)
class FleetSum:
    """A fleet as the law reads it: pods by their state, and each signal as (sum, engines seen, engines expected)."""

    settled: int
    fresh: int
    """Ready for less than the law's ``settle_seconds``."""
    loading: int
    failing: int
    engines_per_pod: int
    signals: dict[str, tuple[float | None, int, int]]
    error: str = ""
    partial: str = ""

    @classmethod
    def of(cls, view: FleetView, settle_seconds: float) -> Self:
        """The sums of a view."""
        settled = sum(pod.ready_seconds >= settle_seconds for pod in view.serving)
        totals = {signal: view.total(signal) for signal in READ}
        return cls(
            settled,
            len(view.serving) - settled,
            view.count("loading"),
            view.count("failing"),
            view.engines_per_pod,
            {signal.name: (reach.value, reach.seen, reach.expected) for signal, reach in totals.items()},
            view.error,
            view.partial,
        )

    def view(self) -> FleetView:
        """A fleet that adds up to the same."""
        serving = self.settled + self.fresh
        engines = self._engines()
        # Every pod has as many engines as it should; one more, where a pod reports too many, is the first one's.
        more = max(0, len(engines) - self.engines_per_pod * serving)
        ends = [more + self.engines_per_pod * (at + 1) for at in range(serving)]
        pods = []
        for at, (start, end) in enumerate(pairwise([0, *ends])):
            mine = {str(n): each for n, each in enumerate(engines[start:end])}
            pods.append(PodView(f"p{at}", "ready", math.inf if at < self.settled else 0.0, mine))
        pods += [PodView(f"l{at}", "loading") for at in range(self.loading)]
        pods += [PodView(f"f{at}", "failing") for at in range(self.failing)]
        return FleetView(tuple(pods), self.engines_per_pod, self.error, self.partial)

    def _engines(self) -> list[dict[Signal, Sample]]:
        """The first engine that was seen carries the sum, the others that were seen nothing."""
        engines: list[dict[Signal, Sample]] = [{} for _ in range(max(each[2] for each in self.signals.values()))]
        for name, (value, seen, _) in self.signals.items():
            for at in range(seen):
                engines[at][Signal[name]] = Sample((value or 0.0) if at == 0 else 0.0)
        return engines
