"""What a diagnosis rests on: a fleet's engines one by one, beside what a replica can take and users are promised."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.latencies import Latency, Targets, measured
from plimsoll.core.promql import DEFAULT_WINDOWS, Windows
from plimsoll.core.signals import FleetView, Reading, Sample, Signal

FULL: Final = 0.95
"""KV use at its highest within the window, from which a pool counts as full (``autoscaling.md`` 2)."""
LEAST_FULL: Final = 0.5
PREEMPTING_PER_SECOND: Final = 0.05


@dataclass(frozen=True)
class EngineRow:
    """One engine that serves, and what it says."""

    name: str
    readings: Mapping[Signal, Reading]

    def value(self, signal: Signal) -> float | None:
        """A number, or None when there is none."""
        reading = self.readings.get(signal)
        return reading.value if isinstance(reading, Sample) else None

    def least(self, signal: Signal) -> float:
        """What is certain: 0 of what is not known, since no signal is negative."""
        return self.value(signal) or 0.0

    def certainly_none(self, *signals: Signal) -> bool:
        """All of these are known, and 0."""
        return all(self.value(signal) == 0 for signal in signals)

    @property
    def peak(self) -> float:
        """The pool's use at its highest within the window, as far as it is known."""
        return max(self.least(Signal.USAGE), self.least(Signal.USAGE_PEAK))

    @property
    def preempts(self) -> bool:
        """Requests are thrown out for want of blocks, more than now and then."""
        return self.least(Signal.PREEMPTIONS) >= PREEMPTING_PER_SECOND

    def capped(self, sequences: float) -> bool:
        """As many requests run as may."""
        return sequences > 0 and self.least(Signal.RUNNING) >= sequences


@dataclass(frozen=True)
class Case:
    """What a diagnosis rests on."""

    view: FleetView
    capacity: ReplicaCapacity
    targets: Targets = field(default_factory=Targets)
    windows: Windows = DEFAULT_WINDOWS

    @property
    def engines(self) -> Iterator[EngineRow]:
        """Engines that serve, with what they say."""
        for pod in self.view.serving:
            for rank, readings in sorted(pod.engines.items()):
                yield EngineRow(pod.name if self.view.engines_per_pod == 1 else f"{pod.name}/{rank}", readings)

    @property
    def sequences(self) -> float:
        """Requests that one engine may run; 0 when it is not known."""
        return self.capacity.max_num_seqs / max(1, self.view.engines_per_pod)

    @property
    def full(self) -> float:
        """The use from which a further request does not fit: a prompt is admitted whole or not at all."""
        blocks = self.capacity.usable_blocks / max(1, self.view.engines_per_pod)
        return min(FULL, max(LEAST_FULL, 1 - self.capacity.request_blocks / blocks))

    @property
    def latencies(self) -> tuple[Latency | None, Latency | None]:
        """TTFT and ITL of the fleet beside their targets."""
        return measured(self.view, self.targets)

    @property
    def rate_window(self) -> str:
        """The window of rates and peaks, as people write it."""
        return f"{self.windows.rate_seconds:.0f} s"
