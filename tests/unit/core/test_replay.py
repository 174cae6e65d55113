"""What is recorded of a decision suffices to make it again: the same law, the same grounds, the same answer."""

import json
import math
from collections import deque
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core import replay
from plimsoll.core.activation import Idle
from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.experiment import Experiment, Proposal, Scene, Timing, TrialPod, begin, step
from plimsoll.core.fleet_sum import READ, FleetSum
from plimsoll.core.gate import GateSeen
from plimsoll.core.judge import Pair, Window
from plimsoll.core.ledger import SCALE, Entry, logged
from plimsoll.core.replay import Grounds, Remembered, Scaled, Slept, Stepped, UnreadableError, Woken, again, message_of
from plimsoll.core.scale import DEFAULTS, History, Limits, State, decide
from plimsoll.core.signals import FleetView, NotANumber, PodView, Sample, Signal

NOW, AT = 5_000.0, "2027-01-15T08:00:00Z"
CAPACITY = ReplicaCapacity(
    usable_blocks=1000,
    request_blocks=20,
    prompt_tokens=1000,
    max_num_seqs=256,
    request_seconds=8.0,
    load_seconds=120.0,
    prefill_seconds_per_token=1e-4,
    decode_step_seconds=0.02,
    ttft_seconds=2.0,
    itl_seconds=0.05,
)
READINGS = st.sampled_from([Sample(0.0), Sample(0.3), Sample(0.97), Sample(7.1), Sample(800.0), NotANumber("nan")])
ENGINE = st.fixed_dictionaries({}, optional=dict.fromkeys(READ, READINGS))
FIGURE, COUNT = st.floats(0, 9), st.integers(-1, 3)
PODS = st.builds(
    PodView,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["ready", "ready", "ready", "loading", "failing"]),
    st.sampled_from([0.0, 10.0, 45.0, math.inf]),
    st.fixed_dictionaries({}, optional={"0": ENGINE, "1": ENGINE, "2": ENGINE}),
)
VIEWS = st.builds(FleetView, st.lists(PODS, max_size=4).map(tuple), st.integers(1, 2), st.sampled_from(["", "502"]))
MOMENTS = st.just(-math.inf) | st.floats(NOW - 1000, NOW)
NEEDS = st.lists(st.tuples(st.floats(NOW - 1000, NOW), st.floats(0, 9)), max_size=6).map(
    lambda each: deque(sorted(each))
)
HISTORIES = st.builds(History, st.floats(NOW - 2000, NOW), NEEDS, MOMENTS, MOMENTS, MOMENTS)
STATES = st.builds(State, st.integers(0, 12), st.sampled_from(["", "a roll-out"]), st.floats(0, 50), st.integers(0, 2))


def entry(grounds: Grounds, after: str | None, message: str, reason: str = "MoreDemand") -> dict[str, Any]:
    """As a reader of the log finds it."""
    made = Entry(SCALE, reason, message, after=after, grounds=replay.written(grounds))
    found: dict[str, Any] = json.loads(json.dumps(logged(made, AT), allow_nan=False))
    return found


@given(VIEWS, STATES, HISTORIES)
def test_every_decision_about_replicas_is_made_again(view: FleetView, state: State, history: History) -> None:
    fleet, seen = FleetSum.of(view, DEFAULTS.settle_seconds), Remembered.of(history, NOW, DEFAULTS.hold_seconds)
    limits = Limits(1, 10)
    found = decide(CAPACITY, view, state, limits, history, NOW)
    told = entry(Scaled(CAPACITY, fleet, state, limits, seen, NOW, DEFAULTS), str(found.replicas), message_of(found))
    made = again(told)
    assert made is not None
    assert made.after == str(found.replicas)
    if view.complete or found.valid:  # that something is not known names the pods, which only the view has
        assert made.same_as(told), made


@given(VIEWS)
def test_a_sum_is_the_fleet_to_the_law(view: FleetView) -> None:
    same = FleetSum.of(view, 30.0).view()
    for signal in READ:
        assert same.total(signal) == view.total(signal)
        assert same.mean(signal) == view.mean(signal)
    assert (same.complete, len(same.serving), same.count("loading")) == (
        view.complete,
        len(view.serving),
        view.count("loading"),
    )


def test_another_law_shows() -> None:
    figures = dict.fromkeys(READ, 0.0) | {Signal.USAGE_PEAK: 1.0}
    engine = {signal: Sample(value) for signal, value in figures.items()}
    view = FleetView((PodView("p", "ready", engines={"0": engine}),))
    history = History(0.0)
    seen = Remembered.of(history, NOW, DEFAULTS.hold_seconds)
    found = decide(CAPACITY, view, State(1), Limits(1, 10), history, NOW)
    grounds = Scaled(CAPACITY, FleetSum.of(view, 30.0), State(1), Limits(1, 10), seen, NOW, DEFAULTS)
    told = entry(grounds, str(found.replicas), message_of(found))
    assert (made := again(told)) is not None
    assert made.same_as(told)
    kinder = replace(DEFAULTS, up_share=0.2)
    told["grounds"]["tuning"] = asdict(kinder)
    assert (made := again(told)) is not None
    assert not made.same_as(told)


@pytest.mark.parametrize(
    ("grounds", "after", "message"),
    [
        (Woken(3.0), "1", "3 requests wait at the gateway"),
        (Slept(Idle(100.0, 690.0), 700.0, 600.0), "0", "no request for 600 s"),
    ],
)
def test_the_last_replica_comes_and_goes_again(grounds: Grounds, after: str, message: str) -> None:
    told = entry(grounds, after, f"not done (spec.mode is Shadow): {message}")
    assert (made := again(told)) is not None
    assert made.same_as(told)


SLOW = Window(5.0, 0.02, 0.03, 9.0, 800.0, 60.0, 20.0, 0.4, 0.0, 0.0)
QUICK = replace(SLOW, ttft_seconds=0.2)
TRIED = Proposal("MaxNumSeqs", "--max-num-seqs", "16", "32", "ttft", "SequenceCapBound", "16 run, 9 wait", "basis")


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([Pair(SLOW, QUICK)] * 25, "Keeping"),
        ([Pair(QUICK, SLOW)] * 25, "RolledBack"),
        ([Pair(SLOW, SLOW)] * 25, "Inconclusive"),
        ([Pair(SLOW, None)] * 3, "RolledBack"),
    ],
)
def test_every_verdict_is_given_again(pairs: list[Pair], reason: str) -> None:
    running: Experiment = replace(begin(TRIED, "svc-a", 0.0), phase="Measuring")
    pod = TrialPod(ready=True)
    scene = Scene(2000.0, "svc-a", rolled_out=True, carries=False, canary=pod, control=pod, pairs=pairs)
    following = step(running, scene, Timing())
    why = following.past.why if following.past else following.experiment.verdict if following.experiment else ""
    told = entry(Stepped(running, scene, Timing()), "--max-num-seqs 32", why, reason)
    assert len(json.dumps(told)) < 16_000  # the kubelet splits longer lines
    assert (made := again(told)) is not None
    assert made.same_as(told), made
    told["grounds"]["scene"]["pairs"] = told["grounds"]["scene"]["pairs"][:2]
    assert (made := again(told)) is not None
    assert not made.same_as(told)


def test_what_a_quality_gate_said_is_recorded() -> None:
    seen = GateSeen("failed", "3 of 5 answers")
    running = replace(begin(replace(TRIED, setting="KVCacheDtype"), "svc-a", 0.0), phase="Gating")
    pod = TrialPod(ready=True)
    scene = Scene(200.0, "svc-a", rolled_out=True, carries=False, canary=pod, control=pod, gate=seen)
    following = step(running, scene, Timing())
    assert following.past is not None
    told = entry(Stepped(running, scene, Timing()), "--kv-cache-dtype auto", following.past.why, "RolledBack")
    assert (made := again(told)) is not None
    assert made.same_as(told), made
    assert "3 of 5 answers" in made.message


def test_what_has_no_grounds_or_others_is_said_to() -> None:
    assert again({"kind": "Scale", "to": "2"}) is None
    with pytest.raises(UnreadableError, match="does not know"):
        again({"grounds": {"law": "astrology"}})
    with pytest.raises(UnreadableError, match=r"grounds\.idle"):
        again({"grounds": {"law": "sleep", "idle": 3, "now_seconds": 1, "after_seconds": 2}})


@given(
    st.dictionaries(
        st.sampled_from([signal.name for signal in READ] + ["?"]), st.tuples(st.none() | FIGURE, COUNT, COUNT)
    ),
    COUNT,
)
def test_grounds_that_make_no_sense_are_no_traceback(signals: dict[str, Any], engines: int) -> None:
    fleet = FleetSum(1, 0, 0, 0, engines, signals)
    seen = Remembered.of(History(0.0), NOW, DEFAULTS.hold_seconds)
    broken = replace(CAPACITY, usable_blocks=0.0)
    for capacity in (CAPACITY, broken):
        told = entry(Scaled(capacity, fleet, State(1), Limits(1, 10), seen, NOW, DEFAULTS), "1", "m")
        with suppress(UnreadableError):
            assert again(told) is not None


def test_of_a_history_the_largest_need_of_the_window_is_remembered() -> None:
    needs = deque([(10.0, 9.0), (80.0, 7.0), (95.0, 4.0)])
    history = History(1.0, needs, 5.0, -math.inf, 6.0)
    assert Remembered.of(history, 100.0, 20.0) == Remembered(1.0, (80.0, 7.0), 5.0, None, 6.0)
    assert Remembered.of(history, 100.0, 19.0).largest == (95.0, 4.0)
    assert Remembered.of(History(1.0, deque(), -math.inf, 7.0, -math.inf), 100.0, 20.0) == Remembered(
        1.0, None, None, 7.0
    )


def test_a_memory_is_a_history_again() -> None:
    for told in (Remembered(1.0), Remembered(1.0, (80.0, 7.0), 5.0, 3.0, 6.0)):
        assert Remembered.of(told.history(), 100.0, 20.0) == told


@pytest.mark.parametrize(
    ("now", "entry_", "same"),
    [
        pytest.param(replay.Again("why", "3", "R"), {"message": "why", "to": "3", "reason": "R"}, True, id="the same"),
        pytest.param(
            replay.Again("why", "4", "R"), {"message": "why", "to": "3", "reason": "R"}, False, id="another end"
        ),
        pytest.param(
            replay.Again("why"), {"message": "why", "to": "3", "reason": "R"}, True, id="what it does not say"
        ),
        pytest.param(replay.Again("why", "3", "S"), {"message": "why", "to": "3", "reason": "R"}, False, id="a reason"),
        pytest.param(replay.Again("why"), {"message": "rehearsed: why", "to": "3"}, True, id="only rehearsed"),
        pytest.param(replay.Again("why"), {"message": "why not"}, False, id="other words"),
    ],
)
def test_an_answer_is_the_same_where_it_says_something(now: replay.Again, entry_: dict[str, Any], same: bool) -> None:
    assert now.same_as(entry_) is same
