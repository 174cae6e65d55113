"""The law that moves replicas: rows that read as sentences, and properties over whole histories."""

import math
from collections import deque
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.scale import DEFAULTS, Decision, History, Limits, State, decide
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
