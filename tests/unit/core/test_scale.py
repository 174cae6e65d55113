"""The law that moves replicas: rows that read as sentences, and properties over whole histories."""

import math
from collections import deque
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.core.demand import Demand, ReplicaCapacity
from plimsoll.core.scale import DEFAULTS, Decision, History, Limits, State, Tuning, decide, replicas_for, tuning
from plimsoll.core.signals import FleetView, PodView, Sample, Signal

CAPACITY = ReplicaCapacity(
    usable_blocks=1000,
    request_blocks=20,
    prompt_tokens=1000,
    max_num_seqs=256,
    prefill_seconds_per_token=1e-4,
    decode_step_seconds=0.02,
    ttft_seconds=2.0,
    itl_seconds=0.05,
)
LIMITS = Limits(1, 16)
LONG_AGO = -10_000.0


def fleet(
    *usages: float | None, waiting: float = 0, loading: int = 0, prompts: float = 0, storm: float = 0
) -> FleetView:
    """Pods that serve, by their KV use; None for one that does not report. ``waiting`` and ``prompts`` are per pod."""
    pods = [PodView(f"loads-{i}", "loading") for i in range(loading)]
    for i, usage in enumerate(usages):
        figures = {
            Signal.USAGE: usage,
            Signal.RUNNING: 10,
            Signal.WAITING: waiting,
            Signal.PROMPT_TOKENS: prompts,
            Signal.PREEMPTIONS: storm,
        }
        engines = {"0": {s: Sample(float(v)) for s, v in figures.items() if v is not None}} if usage is not None else {}
        pods.append(PodView(f"serves-{i}", "ready", engines=engines))
    return FleetView(tuple(pods))


def calm(need: float = 0.0) -> History:
    """A fleet that has been watched for long; ``need`` is the largest need of the window."""
    return History(LONG_AGO, needs=deque([(-300.0, need)]))


def decided(view: FleetView, replicas: int, history: History | None = None, **state: object) -> Decision:
    return decide(CAPACITY, view, State(replicas, **state), LIMITS, history or calm(), 0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "replicas", "expect"),
    [
        pytest.param(fleet(0.5, 0.5), 2, 2, id="half full is healthy"),
        pytest.param(fleet(1.0, 1.0, waiting=20), 2, 4, id="full pools and a queue need more"),
        pytest.param(fleet(0.99, 0.99), 2, 3, id="nearly full pools leave no head-room"),
        pytest.param(fleet(0.1, 0.1, prompts=8000), 2, 3, id="prompts take the time though the pool is empty"),
        pytest.param(fleet(1.0, waiting=2000), 1, 5, id="never more than a step at once"),
        pytest.param(fleet(1.0, waiting=40, loading=4), 5, 5, id="replicas that load count as there"),
        pytest.param(fleet(0.2, 0.2, 0.2, 0.2, 0.2), 5, 4, id="down one at a time"),
        pytest.param(fleet(*[0.1] * 15), 15, 12, id="down a fifth at most"),
        pytest.param(fleet(*[0.1] * 6), 6, 5, id="down a whole fifth at most"),
        pytest.param(fleet(0.1, 0.1), 2, 1, id="down to one"),
        pytest.param(fleet(*[1.0] * 6, waiting=500), 6, 12, id="up twofold at most"),
    ],
)
def test_replicas_follow_demand(view: FleetView, replicas: int, expect: int) -> None:
    assert decided(view, replicas).replicas == expect


@pytest.mark.parametrize(
    ("view", "replicas", "says"),
    [
        pytest.param(fleet(0.1, None), 2, "serves-1", id="a pod that does not report"),
        pytest.param(FleetView((), error="Prometheus does not answer"), 3, "does not answer", id="no Prometheus"),
        pytest.param(fleet(loading=3), 3, "no replica serves", id="nothing serves yet"),
    ],
)
def test_what_is_not_known_holds(view: FleetView, replicas: int, says: str) -> None:
    decision = decided(view, replicas)
    assert (decision.replicas, decision.valid) == (replicas, False)
    assert says in decision.why


def test_a_queue_that_is_seen_in_part_is_still_a_queue() -> None:
    assert decided(fleet(1.0, None, waiting=100), 2).replicas > 2


@pytest.mark.parametrize(
    ("history", "view", "says"),
    [
        pytest.param(
            History(-60.0), fleet(0.1, 0.1, 0.1), "not been watched for 600 s", id="after a restart a window must pass"
        ),
        pytest.param(calm(2.6), fleet(0.1, 0.1, 0.1), "", id="the largest need of the window holds"),
        pytest.param(replace(calm(), stormed_seconds=-10.0), fleet(0.1, 0.1, 0.1), "preempted", id="a storm just now"),
        pytest.param(replace(calm(), grew_seconds=-10.0), fleet(0.1, 0.1, 0.1), "just grown", id="it has just grown"),
        pytest.param(calm(), fleet(0.1, 0.1, loading=1), "not ready", id="a replica still loads"),
        pytest.param(calm(), fleet(0.1, 0.1, 0.1, storm=1.0), "preempted", id="preemptions go on"),
    ],
)
def test_a_way_down_needs_calm(history: History, view: FleetView, says: str) -> None:
    decision = decided(view, 3, history)
    assert decision.replicas == 3
    assert says in decision.why


def test_nothing_moves_while_a_rollout_runs() -> None:
    decision = decided(fleet(1.0, waiting=50), 1, busy_with="a roll-out is under way")
    assert (decision.replicas, decision.valid) == (1, False)


def test_bounds_apply_at_once_even_when_nothing_is_known() -> None:
    unknown = FleetView((), error="down")
    assert decided(unknown, 40).replicas == 16
    assert decide(CAPACITY, unknown, State(1), Limits(3, 16), calm(), 0.0).replicas == 3


def test_the_limit_in_the_way_is_named() -> None:
    decision = decide(CAPACITY, fleet(1.0, 1.0, waiting=60), State(2), Limits(1, 2), calm(), 0.0)
    assert decision.replicas == 2
    assert decision.limited_by == "scaling.maxReplicas is 2"
    assert decision.wanted is not None
    assert decision.wanted > 2


def test_requests_held_at_the_gateway_wake_a_fleet_of_none() -> None:
    decision = decide(CAPACITY, FleetView(()), State(0, held_requests=3), Limits(0, 4), calm(), 0.0)
    assert decision.replicas == 1


@pytest.mark.parametrize(
    ("found", "given", "expect"),
    [
        pytest.param(Demand(0, 17.0, 0, 0), DEFAULTS, 20, id="blocks: 85 % of a replica's"),
        pytest.param(Demand(0, 3.4, 0, 0), DEFAULTS, 5, id="few replicas vary more: 3.4 and half of its root"),
        pytest.param(Demand(0, 1.0, 0, 0), DEFAULTS, 2, id="one needs another beside it"),
        pytest.param(Demand(0, 0.25, 0, 0), DEFAULTS, 1, id="next to nothing needs one"),
        pytest.param(Demand(0, 0, 0.6, 0), DEFAULTS, 1, id="prompts: 60 % of the time are left to them"),
        pytest.param(Demand(0, 0, 0.61, 0), DEFAULTS, 2, id="prompts that take more"),
        pytest.param(Demand(0, 0, 0, 2.5), DEFAULTS, 3, id="sequences"),
        pytest.param(Demand(0, 0, 0, 0, 3.2), DEFAULTS, 4, id="what arrives"),
        pytest.param(Demand(0, 0, 0, 2.5), Tuning(spare=2.0), 5, id="twice the need, where the owner wants that"),
    ],
)
def test_replicas_for_a_demand(found: Demand, given: Tuning, expect: int) -> None:
    assert replicas_for(found, CAPACITY, given) == expect


def busy(count: int, **figures: float) -> FleetView:
    """Replicas that each report these and nothing else that counts."""
    every = {s: Sample(0.0) for s in Signal} | {Signal[name]: Sample(value) for name, value in figures.items()}
    return FleetView(tuple(PodView(f"serves-{i}", "ready", engines={"0": every}) for i in range(count)))


@pytest.mark.parametrize(
    ("view", "need"),
    [
        pytest.param(busy(4, USAGE_PEAK=0.5), 2 / 0.7, id="blocks: 70 % of a replica's"),
        pytest.param(busy(1, USAGE_PEAK=0.16), 0.16 + 0.5 * 0.4, id="few: half of the root more"),
        pytest.param(busy(2, PROMPT_TOKENS=8000), 1.6 / (0.6 - 0.1), id="prompts: a tenth of the time less"),
        pytest.param(busy(2, RUNNING=64), 0.5 / 0.85, id="sequences: 85 % of the cap"),
        pytest.param(busy(2, WAITING=9, REQUESTS=4, FINISHED=4), 2.0, id="what arrives"),
    ],
)
def test_what_is_remembered_is_the_need_by_the_targets_of_the_way_down(view: FleetView, need: float) -> None:
    history = calm()
    decided(view, len(view.pods), history)
    assert history.needs[-1][1] == pytest.approx(need)


def test_on_the_way_down_prompts_have_a_tenth_of_the_time_at_least() -> None:
    history = calm()
    decide(CAPACITY, busy(2, PROMPT_TOKENS=8000), State(2), LIMITS, history, 0.0, Tuning(compute_gap=0.55))
    assert history.needs[-1][1] == pytest.approx(1.6 / 0.1)


def test_enough_is_held_in_the_words_of_what_is_needed() -> None:
    found = decided(fleet(0.5, 0.5), 2)
    assert (found.valid, found.wanted, found.why) == (False, 2, "KV blocks need 2 of 2 replicas")
    largest = decided(fleet(0.1, 0.1), 2, calm(1.5))
    assert (largest.valid, largest.why) == (False, "KV blocks need 1 of 2 replicas")


def test_nothing_known_is_said_so() -> None:
    history = calm()
    assert decided(fleet(0.1, None), 2, history).why.startswith("not everything is known: all metrics: missing on")
    assert history.complete_seconds == -math.inf
    decided(fleet(0.1, 0.1), 2, history)
    assert history.complete_seconds == 0.0


@pytest.mark.parametrize(
    ("storm", "serving", "stormed"),
    [(0.2, 1, True), (0.19, 1, False), (0.2, 3, True), (0.19, 3, False)],
)
def test_a_storm_is_so_many_preemptions_a_replica(storm: float, serving: int, stormed: bool) -> None:
    history = calm()
    decided(fleet(*[0.1] * serving, storm=storm), serving, history)
    assert (history.stormed_seconds == 0.0) is stormed


def since(*ready_seconds: float) -> FleetView:
    """Replicas that are ready for so long, with full pools and a long queue each."""
    pods = fleet(*[1.0] * len(ready_seconds), waiting=900).pods
    return FleetView(tuple(replace(p, ready_seconds=s) for p, s in zip(pods, ready_seconds, strict=True)))


@pytest.mark.parametrize(
    ("view", "replicas", "given", "expect"),
    [
        pytest.param(since(30, 30), 2, DEFAULTS, 6, id="ready for long enough: a step from both"),
        pytest.param(since(*[30] * 5, 29), 6, DEFAULTS, 10, id="one has just come: a step from the five others"),
        pytest.param(since(30, 30), 1, Tuning(step_up=1), 2, id="one too many: a step from what is wanted"),
        pytest.param(since(*[30] * 9), 9, Tuning(step_up=1, step_up_share=0.5), 14, id="half of nine is five"),
        pytest.param(since(*[30] * 3), 3, Tuning(step_up=1, step_up_share=0.5), 5, id="half of three is two"),
    ],
)
def test_a_step_up_is_from_what_serves(view: FleetView, replicas: int, given: Tuning, expect: int) -> None:
    assert decide(CAPACITY, view, State(replicas), LIMITS, calm(), 0.0, given).replicas == expect


def test_a_step_that_has_been_taken_is_waited_for() -> None:
    found = decided(fleet(1.0, waiting=900, loading=4), 5)
    assert (found.replicas, found.valid, found.limited_by) == (5, False, "")
    assert found.why.endswith("4 replicas have just come or still load, and a step is 4 at most")


@pytest.mark.parametrize(
    ("view", "replicas", "most", "expect", "limited"),
    [
        pytest.param(fleet(1.0, 1.0, waiting=60), 2, 2, 2, True, id="at the limit"),
        pytest.param(fleet(1.0, 1.0, waiting=60), 2, 3, 3, True, id="up to the limit"),
        pytest.param(fleet(1.0, waiting=900), 1, 8, 5, False, id="a step ends below the limit"),
        pytest.param(fleet(0.99, 0.99), 2, 3, 3, False, id="the limit is just what is needed"),
    ],
)
def test_a_limit_is_named_only_where_it_is_in_the_way(
    view: FleetView, replicas: int, most: int, expect: int, limited: bool
) -> None:
    found = decide(CAPACITY, view, State(replicas), Limits(1, most), calm(), 0.0)
    says = f"scaling.maxReplicas is {most}" if limited else ""
    assert (found.replicas, found.limited_by, found.valid) == (expect, says, expect > replicas)
    assert expect > replicas or found.why.endswith(f"; {says}")


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(History(-600.0), id="watched for just a window"),
        pytest.param(replace(calm(), stormed_seconds=-60.0), id="the storm is over for just as long as it takes"),
        pytest.param(replace(calm(), grew_seconds=-60.0), id="it has grown just long enough ago"),
    ],
)
def test_calm_that_has_just_lasted_long_enough_is_calm(history: History) -> None:
    assert decided(fleet(0.1, 0.1, 0.1), 3, history).replicas == 2


def test_a_replica_that_will_not_serve_soon_stands_in_the_way_of_nothing() -> None:
    view = FleetView((*fleet(0.1, 0.1).pods, PodView("fails", "failing")))
    assert decided(view, 3, stuck=1).replicas == 2
    assert decided(view, 3).why.endswith("but 1 replicas are not ready")


def test_a_window_remembers_for_as_long_as_it_is() -> None:
    history = History(0.0)
    history.note(0.0, 5.0, 600.0)
    history.note(600.0, 1.0, 600.0)
    assert history.largest() == 5.0
    history.note(601.0, 2.0, 600.0)
    assert history.largest() == 2.0


@pytest.mark.parametrize(
    ("needs", "falls"),
    [
        pytest.param([], False, id="nothing is remembered"),
        pytest.param([9.0, 1.2], True, id="two are needed now"),
        pytest.param([1.0, 2.2], False, id="three are needed now, whatever was before"),
        pytest.param([9.0, 3.0], False, id="just as many are needed now"),
    ],
)
def test_time_alone_takes_replicas_only_where_fewer_are_needed_now(needs: list[float], falls: bool) -> None:
    history = History(0.0, needs=deque((60.0 * at, need) for at, need in enumerate(needs)))
    assert history.may_fall_below(3) is falls


@pytest.mark.parametrize(("now", "began"), [(160.0, 0.0), (161.0, 161.0)])
def test_after_a_gap_the_window_begins_anew(now: float, began: float) -> None:
    history = History(0.0)
    history.seen_whole(100.0, 60.0)
    history.seen_whole(now, 60.0)
    assert (history.began_seconds, history.complete_seconds) == (began, now)


def test_the_constants_follow_from_the_window_and_the_tick() -> None:
    found = tuning(300.0, 5.0)
    assert (found.hold_seconds, found.calm_seconds, found.gap_seconds, found.settle_seconds) == (300, 30, 20, 10)


views = st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 1)), st.integers(0, 200)), min_size=0, max_size=12).map(
    lambda rows: FleetView(tuple(p for usage, waiting in rows for p in fleet(usage, waiting=waiting).pods))
)


@settings(max_examples=300, deadline=None)
@given(views, st.integers(0, 20), st.integers(0, 5), st.integers(5, 20), st.floats(0, 2000))
def test_decisions_stay_within_limits_and_steps(
    view: FleetView, replicas: int, least: int, most: int, watched: float
) -> None:
    limits, history = Limits(least, most), History(-watched)
    decision = decide(CAPACITY, view, State(replicas), limits, history, 0.0)
    assert least <= decision.replicas <= most
    if least <= replicas <= most:
        assert decision.replicas <= replicas + max(DEFAULTS.step_up, replicas)
        assert decision.replicas >= replicas - max(1, math.floor(replicas * DEFAULTS.step_down_share))
        if decision.replicas < replicas:
            assert view.complete
            assert watched >= DEFAULTS.hold_seconds


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.55, 0.8), min_size=80, max_size=120))
def test_noise_moves_nothing_back_and_forth(usages: list[float]) -> None:
    """A fleet whose use swings about its usual value never goes up, down and up again within a window."""
    history, replicas, moves = History(0.0), 4, []
    for tick, usage in enumerate(usages):
        view = fleet(*[usage * 4 / replicas] * replicas)
        decision = decide(CAPACITY, view, State(replicas), LIMITS, history, 15.0 * tick)
        if decision.replicas != replicas:
            moves.append((15.0 * tick, decision.replicas - replicas))
            replicas = decision.replicas
    for (at, first), (then, second) in pairwise(moves):
        assert first * second > 0 or then - at >= DEFAULTS.calm_seconds
    assert len(moves) <= 3
