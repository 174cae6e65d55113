"""Whether users are served within the targets of ``spec.slo``, by the engines' own histograms. Pure.

The fleet's figure is the mean of its engines' percentiles, weighted by the tokens they make: exact where engines are
loaded alike, and near it where not (a percentile of all requests would need every bucket of every engine at each tick).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plimsoll.api import metrics_reasons as reasons
from plimsoll.api.reasons import NO_OBSERVATION
from plimsoll.core.signals import FleetView, Sample, Signal
from plimsoll.core.steady import Verdict

PATIENCE_TICKS: Final = 2


@dataclass(frozen=True)
class Targets:
    """What users are promised. ``speculative``: one output of the engine is several tokens."""

    ttft_seconds: float | None = None
    itl_seconds: float | None = None
    percentile: int = 95
    speculative: bool = False

    @property
    def token_signal(self) -> Signal:
        """Where the time between two tokens is read."""
        return Signal.TPOT if self.speculative else Signal.ITL


@dataclass(frozen=True)
class Latency:
    """One latency of the fleet beside its target."""

    name: str
    seconds: float
    target_seconds: float
    percentile: int

    @property
    def ratio(self) -> float:
        """1 is on target."""
        return self.seconds / self.target_seconds

    @property
    def late(self) -> bool:
        """Whether the target is missed."""
        return self.ratio > 1

    def __str__(self) -> str:
        return f"p{self.percentile} of {self.name} is {_time(self.seconds)} (target {_time(self.target_seconds)})"


def measured(view: FleetView, targets: Targets) -> tuple[Latency | None, Latency | None]:
    """TTFT and ITL of the fleet; None where there is no target, or not every engine with requests says."""
    return (
        _latency(view, Signal.TTFT, targets.ttft_seconds, targets.percentile),
        _latency(view, targets.token_signal, targets.itl_seconds, targets.percentile),
    )


def judge(view: FleetView, targets: Targets) -> Verdict:
    """What SLOMet is, by one tick."""
    if targets.ttft_seconds is None and targets.itl_seconds is None:
        return Verdict(reasons.NO_TARGETS.name, "Unknown", "spec.slo sets neither ttft nor itl")
    if not view.serving and not view.error:
        return Verdict(reasons.NOTHING_SERVES.name, "Unknown", "no replica serves")
    ttft, itl = measured(view, targets)
    told = [found for found in (ttft, itl) if found is not None]
    late = next((found for found in told if found.late), None)
    figures = tuple(found.ratio for found in told)
    if late is not None:
        reason = reasons.TTFT_ABOVE_TARGET if late is ttft else reasons.ITL_ABOVE_TARGET
        return Verdict(reason.name, "False", "; ".join(map(str, told)), figures, PATIENCE_TICKS)
    wanted = (targets.ttft_seconds is not None) + (targets.itl_seconds is not None)
    if len(told) == wanted:
        return Verdict(reasons.TARGETS_MET.name, "True", "; ".join(map(str, told)), figures, PATIENCE_TICKS)
    if _quiet(view):
        return Verdict(reasons.NO_REQUESTS.name, "Unknown", "no request was served of late", patience=PATIENCE_TICKS)
    missing = "its latencies are not known" if view.complete else view.why_incomplete
    return Verdict(NO_OBSERVATION.name, "Unknown", missing, patience=PATIENCE_TICKS)


def _latency(view: FleetView, signal: Signal, target: float | None, percentile: int) -> Latency | None:
    if not target:
        return None
    weighed = [
        (_requests(engine.get), reading.value)
        for pod in view.serving
        for engine in pod.engines.values()
        if isinstance(reading := engine.get(signal), Sample)
    ]
    silent = any(
        _requests(engine.get) > 0 and not isinstance(engine.get(signal), Sample)
        for pod in view.serving
        for engine in pod.engines.values()
    )
    total = sum(weight for weight, _ in weighed)
    if silent or total <= 0 or view.error or any(not pod.engines for pod in view.serving):
        return None
    seconds = sum(weight * value for weight, value in weighed) / total
    return Latency(str(signal), seconds, target, percentile)


def _requests(reading: Callable[[Signal], object]) -> float:
    """How much an engine's percentile weighs: tokens that it makes, so that long answers count from the first."""
    found = reading(Signal.GENERATION_TOKENS)
    return found.value if isinstance(found, Sample) else 0.0


def _quiet(view: FleetView) -> bool:
    """Certainly nothing was served."""
    busy = (Signal.RUNNING, Signal.WAITING, Signal.GENERATION_TOKENS)
    return view.complete and all(view.total(signal).at_most(0) for signal in busy)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
