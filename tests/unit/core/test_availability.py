"""What is missing, on which pods, and probably why."""

from typing import Any

import pytest

from plimsoll.core import promql
from plimsoll.core.availability import judge
from plimsoll.core.sampling import Fault, Sampling
from plimsoll.core.signals import FleetView, NotANumber, PodView, Stale
from tests.unit.core.fleets import busy

NEW = PodView("n", "ready", new=True)


def sampling(**more: Any) -> Sampling:
    return Sampling(1, 0.0, **more)


def asked(**scraped: bool) -> Sampling:
    """Targets of pods a and b were looked for; these were found, and whether their scrape works."""
    pods = frozenset({("llm", "a"), ("llm", "b")})
    return sampling(asked_about=pods, scraped={("llm", name): up for name, up in scraped.items()})


@pytest.mark.parametrize(
    ("pods", "taken", "status", "reason", "words"),
    [
        pytest.param([busy()], sampling(), "True", "MetricsComplete", "every replica", id="all is there"),
        pytest.param([], sampling(), "True", "NothingServes", "nothing to measure", id="no pods (B15)"),
        pytest.param([PodView("a", "loading")], sampling(), "Unknown", "NoObservation", "no replica serves", id="load"),
        pytest.param([PodView("a", "ready")], asked(), "False", "NoScrapeTarget", "no scrape target for a", id="none"),
        pytest.param([PodView("a", "ready")], asked(a=False), "False", "ScrapeFails", "scrapes of a fail", id="down"),
        pytest.param(
            [PodView("a", "ready")], asked(a=True), "False", "MetricsMissing", "all metrics: missing on", id="no page"
        ),
        pytest.param(
            [busy("a", USAGE=None)], asked(a=True), "False", "MetricsMissing", "KV use: missing on a", id="renamed"
        ),
        pytest.param([busy("a", USAGE=Stale(600))], sampling(), "False", "MetricsStale", "KV use: stale", id="old"),
        pytest.param(
            [busy("a", USAGE=Stale(60), PREEMPTIONS=None)], asked(a=True), "False", "MetricsStale", "", id="no rates"
        ),
        pytest.param(
            [busy("a", USAGE=NotANumber("nan"))], sampling(), "False", "MetricsInvalid", "KV use: reads nan", id="NaN"
        ),
        pytest.param(
            [busy("a", USAGE=NotANumber("-1"))], sampling(), "False", "MetricsInvalid", "reads -1", id="negative (B10)"
        ),
        pytest.param(
            [PodView("a", "ready"), PodView("b", "ready"), busy("c", USAGE=Stale(600))],
            asked(),
            "False",
            "NoScrapeTarget",
            "no scrape target for a, b",
            id="what concerns most pods is the reason, all is told",
        ),
        pytest.param([busy("a"), NEW], sampling(), "True", "MetricsComplete", "", id="a new pod has time"),
        pytest.param([NEW], sampling(), "Unknown", "NoObservation", "just become ready", id="only new pods"),
        pytest.param(
            [busy("a", USAGE=None), NEW], asked(a=True), "False", "MetricsMissing", "missing on a.", id="not of the new"
        ),
        pytest.param([PodView("a", "ready")], sampling(), "False", "MetricsMissing", "missing on", id="not told"),
    ],
)  # fmt: skip
def test_gaps(pods: list[PodView], taken: Sampling, status: str, reason: str, words: str) -> None:
    found = judge(FleetView(tuple(pods)), taken, "llm")
    assert (found.status, found.word) == (status, reason)
    assert words in found.message


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("unreachable", "PrometheusUnreachable"),
        ("auth", "PrometheusRefuses"),
        ("rejected", "QueryRejected"),
        ("invalid", "AnswerInvalid"),
    ],
)
@pytest.mark.parametrize("query", [promql.NOW, promql.AGE, promql.ITL])
@pytest.mark.parametrize("pods", [(busy(),), ()])
def test_faults_are_told_in_the_servers_words(kind: Any, reason: str, query: str, pods: tuple[PodView, ...]) -> None:
    taken = sampling(faults={query: Fault(kind, "its own words")})
    found = judge(FleetView(pods), taken, "llm")
    if query == promql.ITL and not pods:
        assert found.status == "True"  # nobody needs a latency of nothing
        return
    assert (found.status, found.word) == ("False", reason)
    assert "its own words" in found.message


def test_a_partial_answer_is_told() -> None:
    found = judge(FleetView((busy(),), partial="store 3 is away"), sampling(warnings=("store 3 is away",)), "llm")
    assert (found.status, found.word) == ("False", "PartialAnswer")


def test_a_missing_rank_is_missing() -> None:
    assert judge(FleetView((busy(),), engines_per_pod=2), asked(a=True), "llm").word == "MetricsMissing"


def test_one_bad_tick_is_no_outage() -> None:
    bad = judge(FleetView((PodView("a", "ready"),)), asked(), "llm")
    good = judge(FleetView((busy(),)), sampling(), "llm")
    assert (bad.patience, good.patience) == (2, 1)


@pytest.mark.parametrize(
    ("pods", "taken", "message"),
    [
        pytest.param(
            [busy("a"), PodView("b", "ready")],
            asked(),
            "all metrics: missing on b. Prometheus has no scrape target for b",
            id="only those that lack something are named",
        ),
        pytest.param(
            [PodView("a", "ready"), PodView("b", "ready")],
            asked(a=False),
            "all metrics: missing on a, b. Prometheus has no scrape target for b",
            id="each with its own cause",
        ),
        pytest.param(
            [PodView(name, "ready") for name in "abcd"],
            Sampling(1, 0.0, asked_about=frozenset(("llm", name) for name in "abcd"), scraped={}),
            "all metrics: missing on a, b, c and 1 more. Prometheus has no scrape target for a, b, c",
            id="three are named",
        ),
        pytest.param(
            [PodView("c", "ready")],
            asked(),
            "all metrics: missing on c. c is scraped, and its page does not have it",
            id="whose target nobody looked for",
        ),
        pytest.param(
            [busy("a", USAGE=NotANumber("nan"), WAITING=None)],
            sampling(),
            "waiting requests: missing on a; KV use: reads nan on a. a reports what cannot be",
            id="what cannot be is worse",
        ),
    ],
)
def test_what_lacks_is_told_with_its_cause(pods: list[PodView], taken: Sampling, message: str) -> None:
    found = judge(FleetView(tuple(pods)), taken, "llm").message
    assert found.startswith(message)
    assert found.removeprefix(message)[:1] in ("", ":", ";", " ")
