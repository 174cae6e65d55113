"""What Prometheus answered, read: a fault of any kind is a reading of its own, and never a small number."""

import math

import pytest

from plimsoll.core import promql
from plimsoll.core.pods import Phase, PodState
from plimsoll.core.sampling import Answer, Fault, Sampling, Series, read, view
from plimsoll.core.signals import MISSING, NotANumber, Reading, Sample, Signal, Stale

NOW, AGE = promql.NOW, promql.AGE


def series(signal: Signal | None, value: float, pod: str = "a", **labels: str) -> Series:
    tag = {promql.SIGNAL_LABEL: signal.name} if signal else {}
    return Series({"namespace": "llm", "pod": pod, "engine": "0", **tag, **labels}, value)


def answers(*found: Series, age: float = 5.0, **others: Answer) -> dict[str, Answer]:
    """Readings of pod a, scraped so long ago."""
    return {NOW: Answer(found), AGE: Answer((series(None, age),)), **others}


@pytest.mark.parametrize(
    ("value", "age", "answer_age", "expect"),
    [
        pytest.param(0.5, 5, 0, Sample(0.5), id="fresh"),
        pytest.param(0.0, 5, 0, Sample(0.0), id="zero"),
        pytest.param(math.nan, 5, 0, NotANumber("nan"), id="NaN"),
        pytest.param(math.inf, 5, 0, NotANumber("inf"), id="infinite"),
        pytest.param(1.5, 5, 0, NotANumber("1.5"), id="out of range"),
        pytest.param(0.5, 600, 0, Stale(600), id="an old scrape"),
        pytest.param(0.5, 5, 600, Stale(600), id="an old answer"),
        pytest.param(0.5, math.inf, 0, Stale(math.inf), id="an endless age"),
        pytest.param(0.5, -3, 0, Sample(0.5), id="stamped ahead of Prometheus' clock"),
    ],
)
def test_a_reading_is_a_value_or_why_there_is_none(
    value: float, age: float, answer_age: float, expect: Reading
) -> None:
    found = answers(age=age)
    found[NOW] = Answer((series(Signal.USAGE, value),), age_seconds=answer_age)
    assert read(found, 90)["llm", "a"]["0"][Signal.USAGE, 0] == expect


def test_an_age_that_is_no_number_makes_all_stale() -> None:
    reading = read(answers(series(Signal.USAGE, 0.5), age=math.nan), 90)["llm", "a"]["0"][Signal.USAGE, 0]
    assert isinstance(reading, Stale)


def test_what_has_no_age_is_not_believed() -> None:
    assert read(answers(series(Signal.USAGE, 0.5, pod="b")), 90) == {}
    assert read({NOW: Answer((series(Signal.USAGE, 0.5),))}, 90) == {}


@pytest.mark.parametrize(
    ("running", "expect"),
    [(3, NotANumber("0 while requests run")), (0, Sample(0.0)), (math.nan, Sample(0.0))],
    ids=["requests run", "idle", "running is unknown"],
)
def test_no_use_of_the_cache_beside_running_requests_is_no_figure(running: float, expect: Reading) -> None:
    found = read(answers(series(Signal.USAGE, 0), series(Signal.RUNNING, running)), 90)
    assert found["llm", "a"]["0"][Signal.USAGE, 0] == expect


def test_ranks_are_engines_of_their_own_and_a_page_without_ranks_is_one() -> None:
    ranks = {NOW: Answer((series(Signal.WAITING, 1), series(Signal.WAITING, 2, engine="1")))}
    ranks[AGE] = Answer((series(None, 1), series(None, 1, engine="1")))
    assert {rank: said[Signal.WAITING, 0] for rank, said in read(ranks, 90)["llm", "a"].items()} == {
        "0": Sample(1),
        "1": Sample(2),
    }
    old = {NOW: Answer((series(Signal.WAITING, 1, engine=""),)), AGE: Answer((series(None, 1, engine=""),))}
    assert list(read(old, 90)["llm", "a"]) == ["0"]


def test_a_pools_size_stands_in_labels_and_an_empty_one_is_no_size() -> None:
    labels = {"num_gpu_blocks": "512", "block_size": "16", "kv_cache_size_tokens": "None"}
    said = read(answers(pool=Answer((series(None, 1, **labels),))), 90)["llm", "a"]["0"]
    assert said == {(Signal.NUM_BLOCKS, 0): Sample(512), (Signal.BLOCK_TOKENS, 0): Sample(16)}


def test_unknown_labels_of_an_answer_say_nothing() -> None:
    odd = Series({"pod": "a", "namespace": "llm", promql.SIGNAL_LABEL: "LUCK"}, 1)
    assert not read(answers(odd), 90)["llm", "a"]["0"]


def pod(name: str, phase: Phase = "ready") -> PodState:
    return PodState(phase, name, uid=f"uid-{name}")


def sampled(*found: Series, **more: object) -> Sampling:
    return Sampling(tick=1, at_seconds=0.0, pods=read(answers(*found), 90), **more)  # type: ignore[arg-type]


def test_only_pods_of_the_api_are_seen_and_those_prometheus_does_not_know_are_missing() -> None:
    found = view([pod("b")], "llm", sampled(series(Signal.USAGE, 0.5, pod="a")))
    assert [p.name for p in found.pods] == ["b"]
    assert found.total(Signal.USAGE).value is None
    assert not found.complete


def test_a_further_node_of_a_replica_reports_through_the_first() -> None:
    found = view([pod("a"), PodState("ready", "a-1", serves=False)], "llm", sampled(series(Signal.USAGE, 0.5)))
    assert [p.name for p in found.serving] == ["a"]
    assert found.total(Signal.USAGE).complete


def test_a_pod_of_the_same_name_elsewhere_is_another() -> None:
    found = view([pod("a")], "other", sampled(series(Signal.USAGE, 0.5)))
    assert found.total(Signal.USAGE).value is None


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("ready", "ready"),
        ("loading", "loading"),
        ("pending", "loading"),
        ("unready", "failing"),
        ("failing", "failing"),
        ("terminating", "terminating"),
    ],
)
def test_only_ready_pods_are_expected_to_report(phase: Phase, state: str) -> None:
    found = view([pod("a", phase)], "llm", sampled())
    assert found.pods[0].state == state
    assert bool(found.serving) is (phase == "ready")


@pytest.mark.parametrize(("percentile", "expect"), [(50, 1.0), (60, MISSING), (95, 2.0), (93, 2.0)])
def test_a_percentile_is_that_of_the_services_targets_or_the_next_higher(
    percentile: int, expect: float | Reading
) -> None:
    found = sampled(series(Signal.TTFT, 1.0, percentile="50"), series(Signal.TTFT, 2.0, percentile="95"))
    (engine,) = view([pod("a")], "llm", found, percentile=percentile).pods[0].engines.values()
    assert engine.get(Signal.TTFT, MISSING) == (Sample(expect) if isinstance(expect, float) else expect)


def test_a_fault_of_what_is_essential_is_the_views_error_and_one_of_the_rest_is_not() -> None:
    fault = Fault("rejected", "no such function")
    assert view([pod("a")], "llm", sampled(faults={promql.NOW: fault})).error == "no such function"
    assert view([pod("a")], "llm", sampled(faults={promql.ITL: fault})).error == ""


def test_warnings_make_a_view_partial() -> None:
    assert view([pod("a")], "llm", sampled(warnings=("a store is down",))).partial == "a store is down"
