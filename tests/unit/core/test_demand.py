"""Demand in the two currencies: what a queue counts for, and what arrives while requests wait."""

import math
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.demand import BACKLOG_SECONDS, QUEUE_SHARE, Demand, ReplicaCapacity, demand, seconds_of_request
from plimsoll.core.signals import FleetView, PodView, Sample, Signal

CAPACITY = ReplicaCapacity(
    usable_blocks=1000, request_blocks=50, prompt_tokens=800, max_num_seqs=64, request_seconds=6.0, load_seconds=180.0,
    prefill_seconds_per_token=1e-4, decode_step_seconds=0.02,
)  # fmt: skip


def fleet(*, loading: float = 0, **figures: float) -> FleetView:
    readings = {Signal[name.upper()]: Sample(value) for name, value in figures.items()}
    pods = [PodView("serves", "ready", engines={"0": readings})]
    return FleetView((*pods, *(PodView(f"loads-{n}", "loading") for n in range(int(loading)))))


def test_what_runs_is_the_demand_while_nothing_waits() -> None:
    found = demand(fleet(usage=0.4, running=8, waiting=0, requests=100, finished=1), CAPACITY)
    assert found.by_blocks == pytest.approx(0.4)


def test_a_queue_counts_by_how_much_of_it_must_run_at_once() -> None:
    waiting = 600
    found = demand(fleet(loading=1, usage=1.0, running=20, waiting=waiting), CAPACITY)
    assert found.blocks == pytest.approx(1000 + waiting * 50 * 6.0 / BACKLOG_SECONDS)


def test_without_step_times_all_of_a_queue_counts() -> None:
    unknown = replace(CAPACITY, request_seconds=0.0)
    found = demand(fleet(loading=1, usage=1.0, running=20, waiting=10), unknown)
    assert found.blocks == pytest.approx(1000 + 10 * 50)


def test_requests_that_run_longer_than_the_limit_count_whole() -> None:
    found = demand(fleet(loading=1, usage=1.0, running=20, waiting=10), replace(CAPACITY, request_seconds=500.0))
    assert found.blocks == pytest.approx(1000 + 10 * 50)


def test_what_arrives_tells_when_the_pool_is_full() -> None:
    found = demand(fleet(loading=1, usage=1.0, running=20, waiting=20, requests=10, finished=3), CAPACITY)
    assert found.blocks == pytest.approx(10 * 6.0 * 50 + 20 * 50 * 0.1)


def test_a_moments_wait_is_no_queue() -> None:
    one = QUEUE_SHARE * 20 - 1
    found = demand(fleet(usage=0.5, running=20, waiting=one, requests=100, finished=1), CAPACITY)
    assert found.by_blocks < 0.6


@pytest.mark.parametrize(("waiting", "is_queue"), [(10, False), (11, False), (12, True)])
def test_a_queue_that_is_passed_within_half_the_ttft_target_is_none(waiting: int, is_queue: bool) -> None:
    quick = replace(CAPACITY, ttft_seconds=2.0)
    found = demand(fleet(loading=1, usage=0.1, running=5, waiting=waiting, requests=11, finished=11), quick)
    assert (found.blocks > 11 * 6.0 * 50) is is_queue


def test_until_a_replica_is_ordered_the_queue_is_taken_as_it_will_be_when_that_replica_serves() -> None:
    queue = {"usage": 1.0, "running": 20.0, "waiting": 20.0, "requests": 4.0, "finished": 3.0}
    assert CAPACITY.at_once == 17
    before, after = demand(fleet(**queue), CAPACITY), demand(fleet(loading=1, **queue), CAPACITY)
    assert before.blocks - after.blocks == pytest.approx(180 * 50 * 0.1)


@pytest.mark.parametrize(
    ("waiting", "finished", "expect"),
    [
        pytest.param(30, 3.0, 4 / 3, id="a third more arrives than is finished"),
        pytest.param(30, 1.0, 1.5, id="a step has an end"),
        pytest.param(30, 8.0, 0.5, id="the queue is being cleared"),
        pytest.param(30, 0.0, 0.0, id="nothing finished says nothing"),
        pytest.param(10, 3.0, 0.0, id="a queue shorter than what runs"),
        pytest.param(20, 3.0, 0.0, id="a queue as long as what runs"),
    ],
)
def test_a_long_queue_counts_whatever_the_plan_says_of_engine_and_requests(
    waiting: float, finished: float, expect: float
) -> None:
    view = fleet(usage=0.2, running=20, waiting=waiting, requests=4.0, finished=finished)
    assert demand(view, CAPACITY).by_flow == pytest.approx(expect)


def test_replicas_that_fail_are_counted_among_those_that_are_not_enough() -> None:
    view = fleet(usage=0.2, running=20, waiting=30, requests=4.0, finished=3.0)
    failing = FleetView((*view.pods, PodView("fails", "failing")))
    assert demand(failing, CAPACITY).by_flow == pytest.approx(2 * 4 / 3)


def test_prompts_in_the_queue_are_compute() -> None:
    found = demand(fleet(loading=1, usage=0.1, running=1, waiting=60, prompt_tokens=1000), CAPACITY)
    assert found.by_compute == pytest.approx((1000 + 60 * 800 / BACKLOG_SECONDS) * 1e-4)


def test_prefix_hits_cost_no_compute() -> None:
    cold, warm = (demand(fleet(prompt_tokens=1000, hit_ratio=hit), CAPACITY).by_compute for hit in (0.0, 0.75))
    assert warm == pytest.approx(cold / 4)


def test_a_request_runs_for_its_tokens_and_for_the_prompts_of_the_others() -> None:
    assert seconds_of_request(CAPACITY, 100) == pytest.approx(100 * 0.02 + 17 * 800 * 1e-4)
    assert seconds_of_request(replace(CAPACITY, decode_step_seconds=0.0), 100) == 0


def test_nothing_seen_is_no_demand() -> None:
    assert demand(FleetView(()), CAPACITY) == Demand(0.0, 0.0, 0.0, 0.0, 0.0)


def test_requests_held_outside_are_a_backlog_of_all_three() -> None:
    found = demand(FleetView(()), CAPACITY, held=6)
    assert found.blocks == pytest.approx(6 * 0.1 * 50)
    assert found.by_sequences == pytest.approx(6 * 0.1 / 64)
    assert found.by_compute == pytest.approx(6 * 800 / BACKLOG_SECONDS * 1e-4)


@pytest.mark.parametrize(
    ("waiting", "cap", "expect"),
    [
        pytest.param(0, 64, 20 / 64, id="what runs"),
        pytest.param(20, 64, (10 * 6.0 + 2) / 64, id="what arrives, and the backlog"),
        pytest.param(20, 0, 0.0, id="no cap is known"),
    ],
)
def test_sequences_are_counted_against_the_cap(waiting: float, cap: float, expect: float) -> None:
    view = fleet(loading=1, usage=1.0, running=20, waiting=waiting, requests=10, finished=3)
    assert demand(view, replace(CAPACITY, max_num_seqs=cap)).by_sequences == pytest.approx(expect)


def test_a_replicas_engines_share_its_blocks_and_its_prompts() -> None:
    """0.4 and 0.6 of two pools of 500 blocks; each engine computes half of the prompts."""
    engines = [{Signal.USAGE: Sample(usage), Signal.PROMPT_TOKENS: Sample(1000.0)} for usage in (0.4, 0.6)]
    pod = PodView("serves", "ready", engines={str(at): readings for at, readings in enumerate(engines)})
    found = demand(FleetView((pod,), engines_per_pod=2), CAPACITY)
    assert found.blocks == pytest.approx(500)
    assert found.by_compute == pytest.approx(1000 * 1e-4)


def test_a_queue_of_exactly_the_share_that_a_moment_may_have_is_none() -> None:
    found = demand(fleet(loading=1, usage=0.5, running=20, waiting=QUEUE_SHARE * 20, requests=100), CAPACITY)
    assert found.blocks == pytest.approx(500 + QUEUE_SHARE * 20 * 50 * 0.1)


def test_without_a_target_every_queue_is_one_however_soon_it_passes() -> None:
    found = demand(fleet(loading=1, usage=0.1, running=20, waiting=10, requests=30), CAPACITY)
    assert found.blocks == pytest.approx(30 * 6.0 * 50 + 10 * 50 * 0.1)


@pytest.mark.parametrize(
    ("more", "capacity", "grows_by"),
    [
        pytest.param({}, {}, 4 * 180, id="nothing finishes yet"),
        pytest.param({"finished": 3.0}, {}, 1 * 180, id="by what is not finished"),
        pytest.param({"finished": 5.0}, {}, 0, id="it shrinks: what waits is still there"),
        pytest.param({}, {"request_seconds": 0.0}, 0, id="step times are not known"),
    ],
)
def test_a_queue_grows_until_a_replica_serves(
    more: dict[str, float], capacity: dict[str, float], grows_by: int
) -> None:
    able = replace(CAPACITY, **capacity)
    found = demand(fleet(usage=1.0, running=20, waiting=20, requests=4.0, **more), able)
    assert found.blocks == pytest.approx(
        1000 * max(1, 4 * able.request_seconds / 20) + (20 + grows_by) * 50 * able.backlog_share
    )


def test_what_arrives_is_compute_before_it_is_seen_to_be_computed() -> None:
    found = demand(fleet(loading=1, usage=1.0, running=20, waiting=20, requests=10, prompt_tokens=1000), CAPACITY)
    assert found.by_compute == pytest.approx((10 * 800 + 20 * 800 / BACKLOG_SECONDS) * 1e-4)


@pytest.mark.parametrize(
    ("needs", "bound"),
    [
        ((2.0, 1.0, 1.0, 1.0), "KV blocks"),
        ((1.0, 2.0, 1.0, 1.0), "compute"),
        ((1.0, 1.0, 2.0, 1.0), "sequences"),
        ((1.0, 1.0, 1.0, 2.0), "requests that arrive"),
    ],
)
def test_the_largest_need_counts_and_is_named(needs: tuple[float, ...], bound: str) -> None:
    found = Demand(0.0, *needs)
    assert (found.replicas, found.bound) == (2.0, bound)


@pytest.mark.parametrize(
    ("figures", "at_once"),
    [
        pytest.param({}, 17, id="blocks, of which 85 % are a well filled pool"),
        pytest.param({"max_num_seqs": 4}, 4, id="the cap"),
        pytest.param({"max_num_seqs": 0}, 17, id="no cap is known"),
        pytest.param({"request_blocks": 1, "max_num_seqs": 0}, 850, id="a block each"),
        pytest.param({"request_blocks": 0, "max_num_seqs": 0}, 850, id="a block each at least"),
    ],
)
def test_how_many_run_side_by_side(figures: dict[str, float], at_once: float) -> None:
    assert replace(CAPACITY, **figures).at_once == pytest.approx(at_once)


@pytest.mark.parametrize(
    ("figures", "engines", "prompts"),
    [
        pytest.param({}, 2, 8.5, id="of its own engine only"),
        pytest.param({"usable_blocks": 10}, 1, 1, id="its own at least"),
    ],
)
def test_a_request_waits_for_the_prompts_beside_it(figures: dict[str, float], engines: int, prompts: float) -> None:
    found = seconds_of_request(replace(CAPACITY, **figures), 100, engines)
    assert found == pytest.approx(100 * 0.02 + prompts * 800 * 1e-4)


def _ttft(share: float, percentile: float) -> dict[str, Any]:
    """The target that just leaves so large a share, by the formula of the queue."""
    own = 800 * 1e-4
    return {"ttft_seconds": own + own / (1 - share) * math.log(share / (1 - percentile)), "percentile": percentile}


@pytest.mark.parametrize(
    ("targets", "share"),
    [
        pytest.param({}, 0.75, id="no target: three quarters"),
        pytest.param({"itl_seconds": 0.05}, 0.6, id="what decoding leaves of the time between tokens"),
        pytest.param({"itl_seconds": 0.021}, 0.25, id="a quarter at least"),
        pytest.param({"itl_seconds": 10.0}, 0.75, id="three quarters at most"),
        pytest.param({"itl_seconds": 0.021, "decode_step_seconds": 0.0}, 0.75, id="step times are not known"),
        pytest.param(_ttft(0.5, 0.95), 0.5, id="half the time"),
        pytest.param(_ttft(0.6, 0.9), 0.6, id="fewer requests need to be in time"),
        pytest.param(_ttft(0.3, 0.75), 0.3, id="three quarters of the requests"),
        pytest.param(_ttft(0.6, 0.5), 0.6, id="half of the requests, most of which do not wait at all"),
        pytest.param({"ttft_seconds": 0.1, "prefill_seconds_per_token": 0.0}, 0.75, id="prefill times are not known"),
        pytest.param({"ttft_seconds": 0.01}, 0.25, id="less than the prompt itself takes"),
        pytest.param(
            {"ttft_seconds": 1.0, "prompt_tokens": 1000, "prefill_seconds_per_token": 1e-3, "percentile": 0.5},
            0.5,
            id="just what the prompt takes: half of the requests may meet an empty queue",
        ),
        pytest.param({**_ttft(0.5, 0.95), "itl_seconds": 0.03}, 1 / 3, id="both targets: the smaller share"),
    ],
)
def test_prompts_may_take_so_much_of_the_time_that_both_targets_hold(targets: dict[str, Any], share: float) -> None:
    assert replace(CAPACITY, **targets).prefill_share == pytest.approx(share, abs=1e-5)
