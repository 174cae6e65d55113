"""Demand in the two currencies: what a queue counts for, and what arrives while requests wait."""

from dataclasses import replace

import pytest

from plimsoll.core.demand import BACKLOG_SECONDS, QUEUE_SHARE, ReplicaCapacity, demand, seconds_of_request
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


@pytest.mark.parametrize(("waiting", "is_queue"), [(10, False), (12, True)])
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
    ],
)
def test_a_long_queue_counts_whatever_the_plan_says_of_engine_and_requests(
    waiting: float, finished: float, expect: float
) -> None:
    view = fleet(usage=0.2, running=20, waiting=waiting, requests=4.0, finished=finished)
    assert demand(view, CAPACITY).by_flow == pytest.approx(expect)


def test_prompts_in_the_queue_are_compute() -> None:
    found = demand(fleet(loading=1, usage=0.1, running=1, waiting=60, prompt_tokens=1000), CAPACITY)
    assert found.by_compute == pytest.approx((1000 + 60 * 800 / BACKLOG_SECONDS) * 1e-4)


def test_prefix_hits_cost_no_compute() -> None:
    cold, warm = (demand(fleet(prompt_tokens=1000, hit_ratio=hit), CAPACITY).by_compute for hit in (0.0, 0.75))
    assert warm == pytest.approx(cold / 4)


def test_a_request_runs_for_its_tokens_and_for_the_prompts_of_the_others() -> None:
    assert seconds_of_request(CAPACITY, 100) == pytest.approx(100 * 0.02 + 17 * 800 * 1e-4)
    assert seconds_of_request(replace(CAPACITY, decode_step_seconds=0.0), 100) == 0
