"""What is known of a fleet, and how well. Missing is not zero: unknown data is a value of its own.

A *reading* is one signal of one engine: a number, or why there is none. A *reach* is a signal over the fleet: what
the engines seen so far add up to, and how many of them were seen. Comparisons answer True only when what was seen
suffices, so that a check or a decision can never rest on data that is not there.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal


class Signal(StrEnum):
    """What is read of every engine. Rates are per second over the window of their query; times are seconds."""

    USAGE = "KV use"
    USAGE_PEAK = "KV use, highest of a minute"
    RUNNING = "running requests"
    WAITING = "waiting requests"
    PREEMPTIONS = "preemptions a second"
    REQUESTS = "arriving requests a second"
    FINISHED = "finished requests a second"
    PROMPT_TOKENS = "prompt tokens a second"
    GENERATION_TOKENS = "generated tokens a second"
    HIT_RATIO = "prefix hit ratio"
    REJECTED = "rejected requests a second"
    TTFT = "time to first token"
    ITL = "inter-token latency"
    TPOT = "time per output token"
    ITL_MEAN = "mean inter-token latency"
    RUNNING_MEAN = "running requests, mean of the latencies' window"
    NUM_BLOCKS = "blocks of the pool"
    BLOCK_TOKENS = "tokens of a block"
    POOL_TOKENS = "tokens of the pool"


NEEDED: Final = (Signal.USAGE, Signal.RUNNING, Signal.WAITING, Signal.PREEMPTIONS, Signal.PROMPT_TOKENS)
"""Without these an engine's need is not known: what it lacks could only add to it. The others refine."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A number that can be used."""

    value: float


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such series."""


@dataclass(frozen=True, slots=True)
class NotANumber:
    """The series says NaN or an infinity, or something that this signal cannot be."""

    text: str


@dataclass(frozen=True, slots=True)
class Stale:
    """The last scrape is too long ago."""

    age_seconds: float


Reading = Sample | Missing | NotANumber | Stale
MISSING: Final = Missing()


def read_value(signal: Signal, value: float, age_seconds: float, stale_after_seconds: float) -> Reading:
    """A reading of what Prometheus answered; a KV use outside [0, 1] or a negative figure is no number (case B10)."""
    if not math.isfinite(value) or value < 0 or (signal in _SHARES and value > 1):
        return NotANumber(f"{value:g}")
    if not age_seconds <= stale_after_seconds:
        return Stale(age_seconds)  # also when the age itself is no number
    return Sample(value)


_SHARES: Final = (Signal.USAGE, Signal.USAGE_PEAK, Signal.HIT_RATIO)


@dataclass(frozen=True, slots=True)
class Reach:
    """A signal over the fleet: ``value`` of the ``seen`` engines out of ``expected``; None when none was seen."""

    value: float | None
    seen: int
    expected: int

    @property
    def complete(self) -> bool:
        """Every engine that should report does."""
        return 0 < self.expected == self.seen

    def at_least(self, limit: float) -> bool:
        """Certainly not below: more engines could only add to a sum or to a maximum of what is never negative."""
        return self.value is not None and self.value >= limit

    def at_most(self, limit: float) -> bool:
        """Certainly not above: this needs every engine."""
        return self.complete and self.value is not None and self.value <= limit

    @property
    def positive(self) -> bool:
        """Certainly more than nothing."""
        return self.value is not None and self.value > 0

    def __format__(self, spec: str) -> str:
        if self.value is None:
            return "unknown"
        text = format(self.value, spec)
        return text if self.complete else f"{text} ({self.seen} of {self.expected} engines)"


@dataclass(frozen=True)
class PodView:
    """One pod and the engines in it: ``engines`` maps the label ``engine`` to its readings."""

    name: str
    state: Literal["loading", "ready", "failing", "terminating"]
    ready_seconds: float = math.inf
    """How long it has been ready."""
    engines: Mapping[str, Mapping[Signal, Reading]] = field(default_factory=dict)
    new: bool = False
    """It became ready a moment ago, and has not reported everything yet: that is no fault."""


@dataclass(frozen=True)
class FleetView:
    """A service's pods of the main track, and what is known of them at one moment."""

    pods: tuple[PodView, ...]
    engines_per_pod: int = 1
    error: str = ""
    """Why nothing at all could be read: the backend's own words."""
    partial: str = ""
    """Why something may be missing from what was read: the backend's own words."""

    @property
    def serving(self) -> tuple[PodView, ...]:
        """Pods that take requests: those that should report."""
        return tuple(pod for pod in self.pods if pod.state == "ready")

    def count(self, state: str) -> int:
        """Pods in a state."""
        return sum(pod.state == state for pod in self.pods)

    def total(self, signal: Signal) -> Reach:
        """The sum over all engines that serve."""
        return self._reach(signal, sum)

    def most(self, signal: Signal) -> Reach:
        """The largest of all engines that serve."""
        return self._reach(signal, max)

    def mean(self, signal: Signal) -> Reach:
        """The mean of those engines that say."""
        return self._reach(signal, lambda values: sum(values) / len(values))

    def readings(self, signal: Signal) -> list[Reading]:
        """What each engine that serves says; as many as there should be, and no more."""
        found: list[Reading] = []
        for pod in self.serving:
            said = [engine.get(signal, MISSING) for engine in pod.engines.values()]
            found += (said + [MISSING] * self.engines_per_pod)[: max(self.engines_per_pod, len(said))]
        return found

    @property
    def complete(self) -> bool:
        """Everything that is needed is known of every engine that serves."""
        return not self.error and not self.partial and all(self.total(signal).complete for signal in NEEDED)

    @property
    def why_incomplete(self) -> str:
        """What is not known, of which pods, in words; empty when all is."""
        return self.error or "; ".join(self.gaps()) or self.partial

    def gaps(self) -> list[str]:
        """What is needed and not known, a sentence for each kind and set of pods."""
        kinds: dict[str, dict[Signal, list[str]]] = {}
        for signal in NEEDED:
            for pod in self.serving:
                for word in self._unknown(pod, signal):
                    kinds.setdefault(word, {}).setdefault(signal, []).append(pod.name)
        return [_gap(word, signals, pods) for word, by in sorted(kinds.items()) for pods, signals in _alike(by).items()]

    def _unknown(self, pod: PodView, signal: Signal) -> set[str]:
        """Why the signal is not known of the pod; of a rank that does not show at all, that it is missing."""
        said = [engine.get(signal, MISSING) for engine in pod.engines.values()]
        said += [MISSING] * (self.engines_per_pod - len(said))
        return {_word(reading) for reading in said if not isinstance(reading, Sample)}

    def _reach(self, signal: Signal, over: Callable[[Sequence[float]], float]) -> Reach:
        readings = self.readings(signal)
        values = [reading.value for reading in readings if isinstance(reading, Sample)]
        return Reach(over(values) if values else None, len(values), len(readings))


@dataclass(frozen=True)
class Look:
    """A fleet at one tick: ``at_seconds`` of the monotonic clock its samples were taken."""

    view: FleetView
    at_seconds: float


def _word(reading: Reading) -> str:
    if isinstance(reading, NotANumber):
        return f"reads {reading.text}"
    return "stale" if isinstance(reading, Stale) else "missing"


def _alike(by_signal: Mapping[Signal, list[str]]) -> dict[tuple[str, ...], list[Signal]]:
    """Signals that the same pods lack, together."""
    found: dict[tuple[str, ...], list[Signal]] = {}
    for signal, pods in by_signal.items():
        found.setdefault(tuple(pods), []).append(signal)
    return found


def _gap(word: str, signals: Sequence[Signal], pods: Iterable[str]) -> str:
    what = "all metrics" if len(signals) == len(NEEDED) else ", ".join(signals)
    return f"{what}: {word} on {_names(pods)}"


_NAMED: Final = 3


def _names(pods: Iterable[str]) -> str:
    found = sorted(set(pods))
    rest = len(found) - _NAMED
    return ", ".join(found[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
