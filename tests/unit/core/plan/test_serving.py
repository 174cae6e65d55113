"""The queue in front of an engine, and what traffic becomes."""

import math

import pytest

from plimsoll.core.plan.serving import wait_quantile
from tests.unit.core.plan.asking import H100, L40S, load, plan


@pytest.mark.parametrize("percentile", [50, 90, 95, 99])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.79])
def test_the_share_of_prompts_that_wait_longer_is_what_the_percentile_leaves(share: float, percentile: int) -> None:
    wait = wait_quantile(0.2, share, percentile)
    longer = share * math.exp(-(1 - share) * wait / 0.2)
    assert longer <= 1 - percentile / 100 + 1e-9
    assert wait == 0 or longer == pytest.approx(1 - percentile / 100)


def test_an_idle_engine_keeps_nobody_waiting() -> None:
    assert wait_quantile(0.2, 0.04, 95) == 0


def test_a_higher_percentile_promises_a_longer_wait() -> None:
    asked = {"load": load(rate=6, prompt=4000, output=100)}
    ends = [
        plan("Qwen/Qwen3-8B", H100, 8192, 1, slo={"ttft": "60s", "percentile": p}, **asked).latency["ttftMs"].high
        for p in (50, 90, 99)
    ]
    assert ends[0] < ends[1] < ends[2]


def test_prompts_alone_can_be_the_limit() -> None:
    """Two output tokens hold no blocks for long: what runs out is time for prompts."""
    found = plan("Qwen/Qwen3-8B", L40S, 8192, 1, load=load(rate=20, prompt=8000, output=2))
    assert any(note.startswith(("limit: prefill FLOPs", "limit: KV")) for note in found.assumptions)


def test_rate_and_concurrency_together_take_the_larger_need() -> None:
    alone = plan("Qwen/Qwen3-8B", L40S, 8192, 16, load=load(8)).choice.replicas
    fast = plan("Qwen/Qwen3-8B", L40S, 8192, 16, load=load(rate=8)).choice.replicas
    both = plan("Qwen/Qwen3-8B", L40S, 8192, 16, load=load(8, rate=8)).choice.replicas
    assert both == max(alone, fast) > min(alone, fast)


def test_latency_is_unknown_where_speeds_are_and_said_so() -> None:
    found = plan("Qwen/Qwen3-8B", "AMD_Radeon_PRO_W7900", 8192, load=load(8), slo={"ttft": "2s"})
    known = found.latency
    assert found.slo_met == ("unknown" if not known else found.slo_met)
    assert bool(known) != any(note.startswith("latency: unknown") for note in found.assumptions)
