"""What Prometheus answered → readings of every engine, and from them the view of one fleet. Pure.

An answer is a value or a fault with the backend's own words, never an exception and never an empty success: what an
answer does not hold is missing, and missing is not zero.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.core import promql
from plimsoll.core.pods import Phase, PodState
from plimsoll.core.signals import FleetView, NotANumber, PodView, Reading, Sample, Signal, read_value

FaultKind = Literal["unreachable", "auth", "rejected", "invalid"]
"""No answer in time; may not ask; asked in a way the backend does not take; an answer that is none."""


@dataclass(frozen=True, slots=True)
class Series:
    """One element of an answer."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query found. ``age_seconds``: how long before the answer was sent it was evaluated (a cache's doing)."""

    series: tuple[Series, ...]
    age_seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    """The answer may be partial, in the backend's words."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a query has no answer."""

    kind: FaultKind
    message: str


PodKey = tuple[str, str]
"""Namespace and name."""
Asked = tuple[Signal, int]
"""A signal, and the percentile it is of; 0 for one that has none."""
Engine = dict[Asked, Reading]


@dataclass(frozen=True)
class Sampling:
    """What one tick found, at a moment of the monotonic clock."""

    tick: int
    at_seconds: float
    pods: Mapping[PodKey, Mapping[str, Engine]] = field(default_factory=dict)
    faults: Mapping[str, Fault] = field(default_factory=dict)
    """By the query's name."""
    warnings: tuple[str, ...] = ()
    asked_about: frozenset[PodKey] = frozenset()
    """Pods that something is missing of, whose scrape targets were looked for."""
    scraped: Mapping[PodKey, bool] | None = None
    """Of those, the ones that Prometheus has a target for, and whether its scrape works. None: not asked, no answer."""

    @property
    def error(self) -> Fault | None:
        """Why nothing is known at all."""
        return next((self.faults[name] for name in promql.ESSENTIAL if name in self.faults), None)


def read(answers: Mapping[str, Answer], stale_after_seconds: float) -> dict[PodKey, dict[str, Engine]]:
    """The readings of every engine in the answers to ``promql.queries``."""
    ages = _ages(answers.get(promql.AGE))
    found: dict[PodKey, dict[str, Engine]] = {}
    for name, answer in answers.items():
        if name == promql.AGE:
            continue
        for series in answer.series:
            pod, engine = _address(series)
            age = ages.get((pod, engine))
            if age is None:
                continue  # nothing is known of when this was scraped, or the engine is gone by now
            said = found.setdefault(pod, {}).setdefault(engine, {})
            for asked, value in _said(name, series):
                said[asked] = read_value(asked[0], value, max(age, answer.age_seconds), stale_after_seconds)
    for engines in found.values():
        for said in engines.values():
            _cross_check(said)
    return found


def view(
    pods: Iterable[PodState],
    namespace: str,
    sampling: Sampling,
    *,
    engines_per_pod: int = 1,
    percentile: int = 95,
    ready_seconds: Callable[[str], float] = lambda _: 0.0,
    is_new: Callable[[str], bool] = lambda _: False,
) -> FleetView:
    """A fleet's pods as the API server shows them, with what was sampled of each; others' samples are left out.

    A further node of a replica has no port of its own: the first one speaks for all engines of the replica.
    By a pod's uid: ``ready_seconds``, how long it has been ready, and whether it ``is_new``.
    """
    asked = promql.percentile_asked(percentile)
    seen = tuple(
        PodView(
            pod.name,
            STATES[pod.phase],
            ready_seconds(pod.uid),
            {
                engine: {signal: reading for (signal, of), reading in said.items() if of in (0, asked)}
                for engine, said in sampling.pods.get((namespace, pod.name), {}).items()
            },
            is_new(pod.uid),
        )
        for pod in pods
        if pod.serves
    )
    error = sampling.error
    return FleetView(seen, engines_per_pod, error.message if error else "", "; ".join(sampling.warnings))


STATES: Final[Mapping[Phase, Literal["loading", "ready", "failing", "terminating"]]] = {
    "pending": "loading",
    "loading": "loading",
    "ready": "ready",
    "unready": "failing",
    "failing": "failing",
    "terminating": "terminating",
}


def _ages(answer: Answer | None) -> dict[tuple[PodKey, str], float]:
    if answer is None:
        return {}
    # An age that is no number makes every comparison with it false: then nothing counts as fresh.
    return {_address(series): series.value for series in answer.series}


def _address(series: Series) -> tuple[PodKey, str]:
    labels = series.labels
    return (labels.get("namespace", ""), labels.get("pod", "")), labels.get("engine") or "0"


def _said(name: str, series: Series) -> Iterable[tuple[Asked, float]]:
    labels = series.labels
    if name == promql.POOL:
        for signal, label in promql.POOL_LABELS.items():
            if labels.get(label, "").isdecimal():
                yield (signal, 0), float(labels[label])
    elif (signal_name := labels.get(promql.SIGNAL_LABEL, "")) in Signal.__members__:
        percentile = labels.get(promql.PERCENTILE_LABEL, "0")
        yield (Signal[signal_name], int(percentile) if percentile.isdecimal() else 0), series.value


def _cross_check(said: Engine) -> None:
    """A request that runs holds a block at least: a KV use of exactly 0 beside it is no figure (cases B04, B09)."""
    usage, running = said.get((Signal.USAGE, 0)), said.get((Signal.RUNNING, 0))
    if isinstance(usage, Sample) and isinstance(running, Sample) and usage.value == 0 and running.value >= 1:
        said[Signal.USAGE, 0] = NotANumber("0 while requests run")
