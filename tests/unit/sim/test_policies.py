"""One test a rule of the autoscalers we compare with, each with the number its source gives."""

import pytest

from plimsoll.sim.observe import Observation, PodSample, PodView
from plimsoll.sim.policies.aibrix import AibrixApa
from plimsoll.sim.policies.dynamo import DynamoLoad
from plimsoll.sim.policies.hpa import Behaviour, HpaKv, KedaWaiting, by_pods, by_total
from plimsoll.sim.policies.knative import Knative
from plimsoll.sim.policies.ray_serve import RayServe
from plimsoll.sim.policies.wva import WvaV1, WvaV2


def scrape(at: float = 0.0, usage: float = 0.0, running: int = 0, waiting: int = 0, **more: float) -> PodSample:
    figures = {
        "usable_blocks": 1000, "preemptions": 0, "finished": 0, "arrived": 0, "prompt_tokens": 0,
        "generation_tokens": 0, "prefilled_tokens": 0, "prefix_queried_tokens": 0, "prefix_hit_tokens": 0,
        "ttft_seconds": 0.0, "ttft_count": 0, "itl_seconds": 0.0, "itl_count": 0, **more,
    }  # fmt: skip
    return PodSample(at, usage, running, waiting, **figures)  # type: ignore[arg-type]


def seen(at: float, *samples: PodSample, wanted: int | None = None, loading: int = 0) -> Observation:
    pods = [PodView(f"pod-{i}", 0.0, "ready", sample) for i, sample in enumerate(samples)]
    pods += [PodView(f"new-{i}", at, "loading", None) for i in range(loading)]
    return Observation(at, len(pods) if wanted is None else wanted, tuple(pods))


class TestHpa:
    @pytest.mark.parametrize(
        ("current", "values", "missing", "unready", "expect"),
        [
            pytest.param(4, [0.54] * 4, 0, 0, 4, id="within the tolerance of 0.1"),
            pytest.param(4, [0.56] * 4, 0, 0, 5, id="ceil of ratio times ready pods"),
            pytest.param(4, [0.2] * 3, 1, 0, 3, id="on the way down a missing pod counts as the target"),
            pytest.param(4, [0.7] * 3, 1, 0, 4, id="on the way up it counts as nothing"),
            pytest.param(4, [0.9] * 2, 0, 2, 4, id="and so do pods that load"),
            pytest.param(2, [1.0], 1, 0, 2, id="inside the tolerance with them: stay"),
            pytest.param(3, [], 3, 0, 3, id="no value at all: stay"),
        ],
    )
    def test_replica_rule(self, current: int, values: list[float], missing: int, unready: int, expect: int) -> None:
        assert by_pods(current, values, missing, unready, 0.5) == expect

    @pytest.mark.parametrize(("current", "total", "expect"), [(3, 16, 3), (3, 17, 4), (3, 5, 1), (0, 3, 1)])
    def test_average_value_of_an_external_metric(self, current: int, total: float, expect: int) -> None:
        assert by_total(current, total, 5) == expect

    def test_up_by_4_pods_or_a_doubling_in_15_s_whichever_is_more(self) -> None:
        assert Behaviour().apply(0.0, 1, 100) == 5
        assert Behaviour().apply(0.0, 10, 100) == 20

    def test_what_was_added_within_the_period_counts(self) -> None:
        behaviour = Behaviour()
        assert behaviour.apply(0.0, 1, 100) == 5
        assert behaviour.apply(5.0, 5, 100) == 5
        assert behaviour.apply(15.0, 5, 100) == 10

    def test_down_to_the_largest_wish_of_300_s(self) -> None:
        behaviour = Behaviour()
        behaviour.apply(0.0, 8, 8)
        assert behaviour.apply(299.0, 8, 2) == 8
        assert behaviour.apply(301.0, 8, 2) == 2

    def test_kv_use_above_its_target_adds_pods(self) -> None:
        assert HpaKv(0.5).decide(seen(15, scrape(usage=0.9), scrape(usage=0.7))) == 4

    def test_keda_asks_for_one_replica_for_every_5_that_wait(self) -> None:
        assert KedaWaiting(5).decide(seen(15, scrape(waiting=12), scrape(waiting=4))) == 4


class TestKnative:
    def test_the_target_is_70_percent_of_the_container_concurrency(self) -> None:
        assert Knative(100).decide(seen(2, scrape(running=70), scrape(running=70))) == 2
        assert Knative(100).decide(seen(2, scrape(running=71), scrape(running=70))) == 3

    def test_never_below_half_of_the_ready_pods(self) -> None:
        assert Knative(100).decide(seen(2, *[scrape()] * 8)) == 4

    def test_a_panic_keeps_the_largest_need_for_60_s(self) -> None:
        knative = Knative(100)
        assert knative.decide(seen(2, scrape(running=210))) == 3
        assert knative.decide(seen(10, *[scrape(running=1)] * 3)) == 3
        assert knative.decide(seen(70, *[scrape(running=1)] * 3)) == 1


class TestAibrix:
    @pytest.mark.parametrize(
        ("replicas", "ratio", "expect"),
        [
            pytest.param(4, 1.1, 4, id="a dead band of 10 %"),
            pytest.param(4, 1.2, 5, id="up"),
            pytest.param(4, 9.0, 8, id="at most a doubling"),
            pytest.param(4, 0.85, 4, id="down, rounded up"),
            pytest.param(8, 0.1, 4, id="at most a halving"),
        ],
    )
    def test_apa(self, replicas: int, ratio: float, expect: int) -> None:
        assert AibrixApa.wish(replicas, ratio) == expect

    def test_pending_pods_compound(self) -> None:
        apa = AibrixApa(0.5)
        full = scrape(usage=1.0)
        assert [apa.decide(seen(10.0 * i, full, wanted=n)) for i, n in enumerate((1, 2, 4, 8))] == [2, 4, 8, 16]

    def test_down_waits_300_s(self) -> None:
        apa = AibrixApa(0.5)
        apa.decide(seen(0, *[scrape(usage=0.5)] * 4))
        assert apa.decide(seen(200, *[scrape(usage=0.1)] * 4)) == 4
        assert apa.decide(seen(301, *[scrape(usage=0.1)] * 4)) == 2


class TestRayServe:
    def test_up_only_after_30_s(self) -> None:
        ray = RayServe(2)
        busy = [scrape(running=5), scrape(running=5)]
        assert ray.decide(seen(1, *busy)) == 2
        assert ray.decide(seen(30, *busy)) == 2
        assert ray.decide(seen(31, *busy)) == 5

    def test_down_only_after_600_s(self) -> None:
        ray = RayServe(2)
        idle = [scrape(running=1)] * 4
        assert ray.decide(seen(1, *idle)) == 4
        assert ray.decide(seen(600, *idle)) == 4
        assert ray.decide(seen(601, *idle)) == 2


class TestDynamo:
    def test_one_more_when_any_worker_is_over_full(self) -> None:
        waits = scrape(usage=0.9, waiting=10, prompt_tokens=500, ttft_count=1)
        assert DynamoLoad().decide(seen(5, waits, scrape(usage=0.1))) == 3

    def test_one_fewer_below_60_percent_unless_the_rest_would_be_over_full(self) -> None:
        assert DynamoLoad().decide(seen(5, scrape(usage=0.4), scrape(usage=0.3))) == 1
        assert DynamoLoad().decide(seen(5, scrape(usage=0.59), scrape(usage=0.3))) == 2

    def test_it_waits_for_workers_that_start(self) -> None:
        assert (
            DynamoLoad().decide(seen(5, scrape(usage=1.0, waiting=9, prompt_tokens=9999, ttft_count=1), wanted=2)) == 2
        )


class TestWva:
    @pytest.mark.parametrize(
        ("usages", "waiting", "expect"),
        [
            pytest.param([0.71, 0.71], 0, 3, id="spare KV below 0.10"),
            pytest.param([0.5, 0.5], 3, 3, id="spare queue below 3"),
            pytest.param([0.3, 0.3], 0, 1, id="one fewer still leaves spare"),
            pytest.param([0.4, 0.4], 0, 2, id="one fewer would not"),
            pytest.param([0.9, 0.9], 0, 3, id="all saturated"),
        ],
    )
    def test_v1(self, usages: list[float], waiting: int, expect: int) -> None:
        wva = WvaV1()
        now = seen(60, *[scrape(60, usage, waiting=waiting) for usage in usages])
        wva.decide(now)
        assert wva.wish(now) == expect

    def test_v1_does_nothing_while_a_pod_is_missing(self) -> None:
        now = seen(60, scrape(60, 0.9), loading=1)
        assert WvaV1().wish(now) == 2

    def test_v2_adds_what_demand_over_85_percent_needs(self) -> None:
        # 16,000 tokens each, 0.80 of it capacity; demand 2 × 16,000 × 0.75 = 24,000: 28,235 required, 25,600 there.
        assert WvaV2().wish(seen(60, scrape(usage=0.75), scrape(usage=0.75))) == 3

    def test_v2_counts_pods_that_load_as_capacity(self) -> None:
        assert WvaV2().wish(seen(60, scrape(usage=0.75), scrape(usage=0.75), loading=1)) == 3

    def test_v2_takes_away_what_is_spare_over_70_percent(self) -> None:
        assert WvaV2().wish(seen(60, *[scrape(usage=0.2)] * 4)) == 2

    def test_v2_counts_waiting_requests_by_their_mean_prompt(self) -> None:
        waits = scrape(usage=0.5, waiting=4, prompt_tokens=20_000, ttft_count=10)
        assert WvaV2().wish(seen(60, waits)) == 2

    def test_the_hpa_behind_waits_240_s_both_ways(self) -> None:
        wva = WvaV2()
        wva.decide(seen(0, scrape(usage=0.3)))
        busy = [seen(at, scrape(at, usage=1.0)) for at in (60, 120, 180, 225)]
        assert [wva.decide(view) for view in busy] == [1, 1, 1, 1]
        assert wva.decide(seen(300, scrape(300, usage=1.0))) == 2
