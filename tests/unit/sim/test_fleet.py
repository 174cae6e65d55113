"""Replicas load, serve, drain and die; requests are routed, held and lost as in a cluster."""

import random
from collections.abc import Callable

import pytest

from plimsoll.sim.blocks import BlockPool
from plimsoll.sim.engine import NEVER, Engine, EngineLimits
from plimsoll.sim.figures import Slo, figures, quantile, recovery_seconds
from plimsoll.sim.fleet import Fleet, FleetSettings, History
from plimsoll.sim.observe import Observation
from plimsoll.sim.policies.static import Static
from plimsoll.sim.requests import Request
from plimsoll.sim.router import ROUTERS
from plimsoll.sim.steps import FittedSteps

SLO = Slo(2.0, 0.1)


def engine() -> Engine:
    return Engine(BlockPool(501), EngineLimits(64, 2048), FittedSteps(0.02, 0.0, 2e-5, 1e-8, 0.0))


class Scripted:
    """Wants what a schedule says: (from this moment, replicas)."""

    live = False

    def __init__(self, *schedule: tuple[float, int], every: float = 5.0) -> None:
        self.interval_seconds = every
        self._schedule = schedule
        self.saw: list[Observation] = []

    def decide(self, seen: Observation) -> int:
        self.saw.append(seen)
        return [replicas for at, replicas in self._schedule if at <= seen.seconds][-1]


def traffic(rate: float, seconds: float, seed: int = 1) -> list[Request]:
    chance = random.Random(seed)
    now, found = 0.0, []
    while (now := now + chance.expovariate(rate)) < seconds:
        found.append(Request(now, chance.randint(50, 500), chance.randint(10, 150)))
    return found


def run(
    policy: Scripted | Static, requests: list[Request], router: str = "least-outstanding", **settings: object
) -> History:
    fleet = Fleet(engine, policy, ROUTERS[router](3), FleetSettings(**settings))  # type: ignore[arg-type]
    return fleet.run(requests)


def test_every_request_is_served_once() -> None:
    requests = traffic(5, 300)
    history = run(Static(3), requests, first_replicas=3)
    assert all(r.arrival_seconds < r.first_token_seconds <= r.finish_seconds < NEVER for r in requests)
    assert not history.rejected
    assert not history.failed


def test_the_same_seed_gives_the_same_history() -> None:
    def outcome(seed: int) -> list[float]:
        requests = traffic(5, 200)
        run(Scripted((0, 2), (60, 4)), requests, "connection-random", first_replicas=2, scrape_loss=0.3, seed=seed)
        return [r.finish_seconds for r in requests]

    assert outcome(1) == outcome(1)


def test_a_new_replica_serves_after_its_cold_start_and_reports_nothing_before() -> None:
    policy = Scripted((0, 1), (20, 2))
    run(policy, traffic(2, 300), cold_start_seconds=100)
    states = [
        (seen.seconds, [pod.state for pod in seen.pods], [pod.sample for pod in seen.pods]) for seen in policy.saw
    ]
    loading = [at for at, pods, _ in states if "loading" in pods]
    assert (min(loading), max(loading)) == (25, 115)
    assert all(samples[1] is None for at, _, samples in states if 25 <= at <= 115)


def test_requests_that_come_while_nobody_is_ready_are_held() -> None:
    requests = traffic(2, 30)
    run(Scripted((0, 0), (10, 1)), requests, first_replicas=0, min_replicas=0, cold_start_seconds=60)
    assert min(r.first_token_seconds for r in requests) > 70
    assert all(r.finish_seconds < NEVER for r in requests)


def test_scaling_down_drains_and_loses_nothing() -> None:
    requests = traffic(5, 300)
    history = run(Scripted((0, 4), (100, 1)), requests, first_replicas=4)
    assert all(r.finish_seconds < NEVER for r in requests)
    assert history.scale_events == 1


def test_pods_that_load_go_first_and_then_the_youngest() -> None:
    policy = Scripted((0, 1), (20, 3), (40, 2), (200, 1))
    run(policy, traffic(1, 400), cold_start_seconds=100)
    last = policy.saw[-1].pods
    assert [pod.name for pod in last] == ["pod-1"]
    assert [pod.state for pod in policy.saw[20].pods] == ["ready", "loading"]


def test_a_drain_that_takes_too_long_is_cut_off() -> None:
    long = Request(0.0, 100, 5000)
    history = run(Scripted((0, 2), (10, 1), (20, 1)), [Request(0.0, 10, 5), long], first_replicas=2, drain_seconds=5)
    assert history.failed in ([long], [])
    assert (long.finish_seconds == NEVER) == bool(history.failed)


def test_a_dead_replica_is_replaced_and_its_requests_are_lost() -> None:
    requests = traffic(5, 300)
    history = run(Static(2), requests, first_replicas=2, failures_seconds=(100.0,), cold_start_seconds=50)
    assert history.failed
    assert figures(history, SLO, 1).unfinished == len(history.failed)
    assert max(moment.ready for moment in history.timeline) == 2


def test_a_quota_of_gpus_is_not_exceeded() -> None:
    history = run(Scripted((0, 1), (20, 9)), traffic(1, 200), quota=3, cold_start_seconds=10)
    assert history.most_replicas == 3


def test_lost_scrapes_leave_the_old_ones() -> None:
    policy = Scripted((0, 1))
    run(policy, traffic(2, 300), scrape_loss=0.9)
    ages = [seen.seconds - pod.sample.seconds for seen in policy.saw for pod in seen.pods if pod.sample]
    assert max(ages) > 30


def test_a_request_that_no_engine_can_hold_is_rejected_not_queued() -> None:
    large = Request(1.0, 9000, 10)
    history = run(Static(1), [large])
    assert history.rejected == [large]
    assert figures(history, SLO, 1).slo_attainment == 0.0


def test_gpu_hours_count_replicas_that_load_and_drain() -> None:
    history = run(
        Scripted((0, 1), (0.5, 2), every=1.0), [Request(0.0, 10, 10), Request(3600.0, 10, 2)], cold_start_seconds=7200
    )
    assert history.replica_seconds == pytest.approx(2 * 3600, rel=0.01)


@pytest.mark.parametrize(("router", "spread"), [("least-outstanding", 2), ("connection-random", 40)])
def test_least_outstanding_spreads_evenly_and_a_clusterip_does_not(router: str, spread: int) -> None:
    policy = Scripted((0, 4))
    run(policy, traffic(12, 300), router, first_replicas=4)
    gaps = [
        max(p.sample.running + p.sample.waiting for p in seen.pods if p.sample)
        - min(p.sample.running + p.sample.waiting for p in seen.pods if p.sample)
        for seen in policy.saw
        if all(pod.sample for pod in seen.pods)
    ]
    assert max(gaps) <= spread
    assert (max(gaps) > 2) == (router != "least-outstanding")


def test_a_prefix_finds_its_replica_again() -> None:
    requests = [Request(float(i), 400, 5, ((f"tenant {i % 3}", 320),)) for i in range(60)]
    fleet = Fleet(engine, Static(3), ROUTERS["prefix"](0), FleetSettings(first_replicas=3))
    fleet.run(requests)
    hits = sum(replica.engine.counters.prefix_hit_tokens for replica in fleet._replicas)
    assert hits == (60 - 3) * 320


def served(arrival: float, ttft: float) -> Request:
    request = Request(arrival, 10, 1)
    request.first_token_seconds = request.finish_seconds = arrival + ttft
    return request


def test_recovery_is_the_first_of_three_good_minutes_in_a_row() -> None:
    requests = [served(float(at), 9.0 if at < 250 or 420 <= at < 440 else 0.1) for at in range(0, 1200, 5)]
    assert recovery_seconds(requests, SLO, 100.0) == 360


def test_a_fleet_that_never_recovers_says_so() -> None:
    assert recovery_seconds([served(float(at), 9.0) for at in range(0, 600, 5)], SLO, 0.0) is None


@pytest.mark.parametrize(("share", "expect"), [(0.5, 50), (0.99, 99), (1.0, 100)])
def test_quantiles(share: float, expect: float) -> None:
    assert quantile([float(i) for i in range(1, 101)], share) == expect


def test_a_limit_may_grow_with_the_prompt() -> None:
    slo = Slo(2.0, 0.1, 0.001)
    fits: Callable[[int], bool] = lambda prompt: slo.ttft_met(_slow(prompt))  # noqa: E731
    assert (fits(900), fits(1100)) == (False, True)


def _slow(prompt: int) -> Request:
    request = Request(0.0, prompt, 1)
    request.first_token_seconds = 3.0
    return request
