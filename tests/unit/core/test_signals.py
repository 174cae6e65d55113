"""Unknown data is a value of its own: what can be said of a fleet that is seen in part."""

import math

import pytest

from plimsoll.core.signals import (
    MISSING,
    FleetView,
    NotANumber,
    PodView,
    Reading,
    Sample,
    Signal,
    Stale,
    read_value,
)


def pod(name: str, state: str = "ready", **readings: Reading | float) -> PodView:
    """A pod with one engine, its readings by the signal's name."""
    named = {Signal[key]: Sample(v) if isinstance(v, int | float) else v for key, v in readings.items()}
    return PodView(name, state, engines={"0": named} if named else {})  # type: ignore[arg-type]


def whole(name: str, usage: float = 0.5, waiting: float = 0.0) -> PodView:
    return pod(name, USAGE=usage, RUNNING=3, WAITING=waiting, PREEMPTIONS=0, PROMPT_TOKENS=900)


@pytest.mark.parametrize(
    ("signal", "value", "age", "expect"),
    [
        pytest.param(Signal.USAGE, 0.0, 1, Sample(0.0), id="zero is a number"),
        pytest.param(Signal.USAGE, math.nan, 1, NotANumber("nan"), id="NaN"),
        pytest.param(Signal.TTFT, math.inf, 1, NotANumber("inf"), id="an infinite quantile"),
        pytest.param(Signal.USAGE, -0.1, 1, NotANumber("-0.1"), id="negative use"),
        pytest.param(Signal.USAGE, 1.2, 1, NotANumber("1.2"), id="use above one"),
        pytest.param(Signal.WAITING, 1.2, 1, Sample(1.2), id="only shares end at one"),
        pytest.param(Signal.USAGE, 1.0, 1, Sample(1.0), id="all is in use"),
        pytest.param(Signal.USAGE, 0.5, 45, Sample(0.5), id="just young enough"),
        pytest.param(Signal.USAGE, 0.5, 50, Stale(50), id="an old sample"),
        pytest.param(Signal.USAGE, 0.5, math.nan, Stale(math.nan), id="an age that is no number"),
    ],
)
def test_what_prometheus_answers_becomes_a_reading(signal: Signal, value: float, age: float, expect: Reading) -> None:
    assert repr(read_value(signal, value, age, stale_after_seconds=45)) == repr(expect)


def test_a_fleet_seen_whole_can_be_compared_both_ways() -> None:
    usage = FleetView((whole("a", 0.4), whole("b", 0.6))).most(Signal.USAGE)
    assert usage.complete
    assert usage.at_least(0.6)
    assert usage.at_most(0.6)
    assert not usage.at_most(0.5)


def test_a_missing_engine_leaves_upper_bounds_open_and_lower_bounds_as_they_are() -> None:
    view = FleetView((whole("a", 0.9, waiting=4), pod("b")))
    assert view.most(Signal.USAGE).at_least(0.9)
    assert not view.most(Signal.USAGE).at_most(0.95)
    assert view.total(Signal.WAITING).positive
    assert not view.complete


def test_missing_is_not_zero() -> None:
    reach = FleetView((pod("a"), pod("b"))).total(Signal.WAITING)
    assert reach.value is None
    assert not reach.at_most(0)
    assert not reach.positive
    assert f"{reach:.0f}" == "unknown"


def test_more_than_nothing_is_certain_of_a_number_above_zero() -> None:
    none, little = (FleetView((pod("a", WAITING=value),)).total(Signal.WAITING) for value in (0.0, 0.5))
    assert (none.positive, little.positive) == (False, True)
    assert not FleetView((pod("a"),)).total(Signal.WAITING).at_least(0)
    assert not little.at_least(1)


def test_a_figure_of_some_engines_says_of_how_many() -> None:
    assert f"{FleetView((whole('a'), whole('b'))).total(Signal.RUNNING):.0f}" == "6"
    assert f"{FleetView((whole('a'), pod('b'))).total(Signal.RUNNING):.0f}" == "3 (1 of 2 engines)"


def test_a_mean_is_of_those_that_say_and_pods_are_counted_by_state() -> None:
    view = FleetView((whole("a", 0.2), whole("b", 0.4), pod("c"), pod("d", "loading")))
    assert view.mean(Signal.USAGE).value == pytest.approx(0.3)
    assert (view.count("ready"), view.count("loading"), view.count("failing")) == (3, 1, 0)


def test_one_signal_that_is_missing_is_enough_to_be_incomplete() -> None:
    lacking = pod("a", USAGE=0.5, RUNNING=3, WAITING=0, PREEMPTIONS=0)
    assert not FleetView((lacking,)).complete


@pytest.mark.parametrize(("count", "named"), [(3, "p0, p1, p2"), (4, "p0, p1, p2 and 1 more")])
def test_three_pods_are_named_and_the_rest_counted(count: int, named: str) -> None:
    view = FleetView(tuple(pod(f"p{at}") for at in range(count)))
    assert view.gaps() == [f"all metrics: missing on {named}"]


def test_pods_that_load_or_leave_are_not_expected_to_report() -> None:
    view = FleetView((whole("a"), pod("b", "loading"), pod("c", "terminating")))
    assert view.complete


def test_a_fleet_of_which_nothing_serves_is_not_known() -> None:
    assert not FleetView((pod("a", "loading"),)).complete


def test_every_data_parallel_rank_has_to_report() -> None:
    half = PodView("a", "ready", engines={"0": {s: Sample(1.0) for s in Signal}})
    assert not FleetView((half,), engines_per_pod=2).complete


def test_gaps_are_named_by_signal_kind_and_pod() -> None:
    view = FleetView(
        (
            whole("a"),
            pod("b", USAGE=Stale(70), RUNNING=1, WAITING=0, PREEMPTIONS=0, PROMPT_TOKENS=0),
            pod("c", USAGE=NotANumber("nan"), RUNNING=1, WAITING=MISSING, PREEMPTIONS=MISSING, PROMPT_TOKENS=0),
            pod("d"),
        )
    )
    assert view.gaps() == [
        "KV use, running requests, prompt tokens a second: missing on d",
        "waiting requests, preemptions a second: missing on c, d",
        "KV use: reads nan on c",
        "KV use: stale on b",
    ]
    assert view.why_incomplete == "; ".join(view.gaps())


def test_a_partial_answer_is_incomplete_however_much_it_holds() -> None:
    assert FleetView((whole("a"),)).complete
    view = FleetView((whole("a"),), partial="one store did not answer")
    assert not view.complete
    assert view.why_incomplete == "one store did not answer"


def test_a_backend_that_fails_makes_all_unknown_in_its_own_words() -> None:
    view = FleetView((whole("a"),), error="Prometheus answered 503")
    assert not view.complete
    assert view.why_incomplete == "Prometheus answered 503"
