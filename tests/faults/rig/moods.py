"""A Prometheus that is away, slow, wrong or tells half of it, for longer than the way down looks back.

Meanwhile nothing shrinks, restarts or is tuned, and the service says what is the matter; within a minute after it is
over everything is as without it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS
from plimsoll.api import metrics_reasons as reasons
from plimsoll.api import names
from plimsoll.api.reason import Reason
from plimsoll.core import promql
from plimsoll.core.sampling import Answer, Fault, FaultKind, Series
from plimsoll.core.signals import Signal
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.lifecycle import NAME, offered, running, told
from tests.faults.rig.run import Disturbance, Outcome
from tests.faults.rig.scenario import Scenario, scenario
from tests.faults.world.prometheus import UP, Mood
from tests.faults.world.world import SETTINGS, World

LASTS_SECONDS: Final = 1.2 * SETTINGS.scale_down_seconds
ASKED_AT: Final = 0.9
"""When the service is asked what it says, as a share of that."""
WITHIN_SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 5.0
TOLD_MORE: Final = 20
"""Statuses in that time: one a minute for figures, and that metrics are missing and are there again."""
HOURS_OLD_SECONDS: Final = 7200.0
CONCERNS: Final = ("demand that stays", "scale up with demand", "create", "roll-out", "restart")

Says = Callable[[str, Answer, float], Answer | Fault]


def _fault(kind: FaultKind, *concerned: str) -> Says:
    """No answer to these queries, or to any."""
    fault = Fault(kind, "as arranged")
    return lambda name, answer, _: fault if not concerned or name in concerned else answer


def _series(change: Callable[[Series], Series | None], *concerned: str, **said: Any) -> Says:
    """Every series of these queries (or of all) becomes another one, or is left out."""

    def says(name: str, answer: Answer, _: float) -> Answer:
        if concerned and name not in concerned:
            return answer
        return replace(answer, series=tuple(filter(None, map(change, answer.series))), **said)

    return says


def _but(*signals: Signal) -> Callable[[Series], Series | None]:
    unwanted = {signal.name for signal in signals}
    return lambda series: None if series.labels.get(promql.SIGNAL_LABEL) in unwanted else series


def _value(value: float) -> Callable[[Series], Series]:
    return lambda series: replace(series, value=value)


def _older(series: Series) -> Series:
    return replace(series, value=series.value + HOURS_OLD_SECONDS)


def _renamed(series: Series) -> Series:
    """What a scrape job does that has ``honor_labels`` and labels of its own."""
    labels = {f"exported_{key}" if key in ("pod", "namespace") else key: value for key, value in series.labels.items()}
    return replace(series, labels=labels)


def _half(series: Series) -> Series | None:
    """Of some pods nothing is told: of those whose names end in the first half of the alphabet of suffixes."""
    return series if series.labels["pod"][-1] > "m" else None


def _twice(_: str, answer: Answer, __: float) -> Answer:
    copies = (replace(series, labels={**series.labels, "prometheus": "b"}) for series in answer.series)
    return replace(answer, series=(*answer.series, *copies))


def _every_other_tick(_: str, answer: Answer, now: float) -> Answer | Fault:
    away = int(now // SETTINGS.metrics_interval_seconds) % 2
    return Fault("unreachable", "as arranged") if away else answer


def _nothing(_: str, answer: Answer, __: float) -> Answer:
    """Its storage is gone, or the operator asks another one."""
    return replace(answer, series=())


def _not_scraped(name: str, answer: Answer, _: float) -> Answer:
    """Targets are there, and their scrapes fail."""
    return replace(answer, series=tuple(map(_value(0.0), answer.series)) if name == UP else ())


@dataclass(frozen=True)
class Case:
    """A mood, and the reason of MetricsAvailable that follows from it."""

    mood: Mood
    reason: Reason
    begins: Callable[[World], None] = lambda _: None
    """What happens to engines at its begin."""


def _case(says: Says, reason: Reason, late_seconds: float = 0.0) -> Case:
    return Case(Mood(says, late_seconds), reason)


def _counters_begin_anew(world: World) -> None:
    for engine in world.kubelet.engines.values():
        for counter in ("arrived", "finished", "prompt_tokens", "generation_tokens", "preemptions"):
            setattr(engine, counter, 0.0)


_UNREACHABLE: Final = _fault("unreachable")
_COMPLETE: Final = reasons.METRICS_COMPLETE
CASES: Final[Mapping[str, Case]] = {
    "away": _case(_UNREACHABLE, reasons.PROMETHEUS_UNREACHABLE),
    "hanging": _case(_UNREACHABLE, reasons.PROMETHEUS_UNREACHABLE, TIMEOUT_SECONDS),
    "slow": Case(Mood(late_seconds=TIMEOUT_SECONDS - 1), _COMPLETE),
    "away at every other tick": _case(_every_other_tick, _COMPLETE),
    "refusing": _case(_fault("auth"), reasons.PROMETHEUS_REFUSES),
    "rejecting": _case(_fault("rejected"), reasons.QUERY_REJECTED),
    "a web page": _case(_fault("invalid"), reasons.ANSWER_INVALID),
    "without rates": _case(_fault("unreachable", promql.RATES), reasons.PROMETHEUS_UNREACHABLE),
    "without latencies": _case(_fault("unreachable", promql.TTFT, promql.ITL), reasons.PROMETHEUS_UNREACHABLE),
    "partial": _case(_series(_half, warnings=("a store is away",)), reasons.PARTIAL_ANSWER),
    "empty": _case(_nothing, reasons.NO_SCRAPE_TARGET),
    "scrapes fail": _case(_not_scraped, reasons.SCRAPE_FAILS),
    **{
        f"no {signal.value}": _case(_series(_but(signal)), reasons.METRICS_MISSING)
        for signal in (Signal.USAGE, Signal.RUNNING, Signal.WAITING, Signal.PREEMPTIONS, Signal.PROMPT_TOKENS)
    },
    "no ages": _case(_series(lambda _: None, promql.AGE), reasons.METRICS_MISSING),
    "NaN": _case(_series(_value(nan), promql.NOW, promql.RATES), reasons.METRICS_INVALID),
    "infinite": _case(_series(_value(inf), promql.NOW), reasons.METRICS_INVALID),
    "negative": _case(_series(_value(-1.0), promql.RATES), reasons.METRICS_INVALID),
    "ages NaN": _case(_series(_value(nan), promql.AGE), reasons.METRICS_STALE),
    "old scrapes": _case(_series(_older, promql.AGE), reasons.METRICS_STALE),
    "a cache's old answers": _case(_series(lambda s: s, age_seconds=HOURS_OLD_SECONDS), reasons.METRICS_STALE),
    "labels renamed": _case(_series(_renamed), reasons.NO_SCRAPE_TARGET),
    "every series twice": _case(_twice, _COMPLETE),
    "counters begin anew": Case(Mood(), _COMPLETE, _counters_begin_anew),
}


def moody(name: str) -> Disturbance:
    """Prometheus is so disposed for a while."""
    case, wrong = CASES[name], list[str]()

    def begin(world: World) -> float:
        count = _count(world)
        calm, world.prometheus.mood = world.prometheus.mood, case.mood
        case.begins(world)
        world.agenda.after(LASTS_SECONDS, lambda: setattr(world.prometheus, "mood", calm))
        world.agenda.after(ASKED_AT * LASTS_SECONDS, lambda: wrong.extend(_unsaid(world, case)))
        ends = world.agenda.now + LASTS_SECONDS
        world.watchers.append(lambda: wrong.extend(_shrunk(world, count)) if world.agenda.now < ends else None)
        return LASTS_SECONDS

    def check(_: World) -> list[str]:
        return wrong[:1]

    return Disturbance(
        f"Prometheus: {name}", begin, check=check, extra_writes=0, told_more=TOLD_MORE, within_seconds=WITHIN_SECONDS
    )


def _count(world: World) -> int:
    found = world.find(DEPLOYMENTS, NAME)
    return int(found["spec"]["replicas"]) if found else 0


def _shrunk(world: World, count: int) -> Iterator[str]:
    if (found := _count(world)) < count:
        yield f"{count} replicas became {found} at {world.agenda.now:.0f} s"


def _unsaid(world: World, case: Case) -> Iterator[str]:
    said = world.condition(NAME, names.METRICS_AVAILABLE)
    if said.get("reason") != case.reason.name:
        yield f"MetricsAvailable says {said.get('reason')} instead of {case.reason.name}: {said.get('message')}"


def _pods_that_stay() -> tuple[Callable[[World], None], Callable[[World], Any]]:
    """Three replicas by demand; and that the same pods serve still, and everything is known of them."""
    before: dict[int, set[str]] = {}

    def prepare(world: World) -> None:
        running()(world)
        offered(30.0)(world)
        world.run(300)
        before[id(world)] = _uids(world)

    def done(world: World) -> Any:
        known = world.condition(NAME, names.METRICS_AVAILABLE).get("status") == "True"
        return known and _uids(world) == before[id(world)] and told(3)(world)

    return prepare, done


def _uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.pods(NAME)}


def _cases(_: Outcome) -> Iterator[Disturbance]:
    return map(moody, CASES)


_PREPARE, _DONE = _pods_that_stay()
# An old view shows fewer pods, and the demand that comes to those: that is told, and all of it once more later.
scenario(Scenario("demand that stays", _PREPARE, lambda _: None, _DONE, told_more=1))
campaign(Campaign("Prometheus away, late or wrong", _cases, lambda each: each.name in CONCERNS, always=True))
