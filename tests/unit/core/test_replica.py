"""What a replica can take: from the plan, from plans of older releases, and from what engines report."""

from typing import Any

import pytest

from plimsoll.core import rollout
from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.replica import capacity_of
from plimsoll.core.request import Request, read_request
from plimsoll.core.signals import FleetView, PodView, Sample, Signal

LOAD = {"concurrency": 8, "promptTokens": 2000, "outputTokens": 400}


def request_of(**spec: Any) -> Request:
    base = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
        "contextTokens": 16384,
        "slo": {"ttft": "2s", "itl": "50ms"},
    }
    return read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u"}, "spec": {**base, **spec}})


def kept(request: Request) -> dict[str, Any]:
    plan = plan_service(request.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    assert isinstance(plan, Plan)
    return dict(rollout.render(request, plan, 1).plan)


def view(**figures: float) -> FleetView:
    engine = {Signal[name]: Sample(value) for name, value in figures.items()}
    return FleetView((PodView("p", "ready", engines={"0": engine}),))


def test_a_plan_says_all_of_it() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    found = capacity_of(plan, request.spec)
    assert found.usable_blocks == plan["kv"]["numBlocks"] - 1
    assert found.prompt_tokens == LOAD["promptTokens"]
    # 2,000 tokens of prompt and half of the output, in blocks of 16.
    assert found.request_blocks == (2000 + 200) / 16 // 1 + 1
    assert 0 < found.prefill_seconds_per_token < 1e-3
    assert 0 < found.decode_step_seconds < 0.1
    assert 0.25 <= found.prefill_share <= 0.75
    assert found.max_num_seqs == float(plan["choice"]["args"][plan["choice"]["args"].index("--max-num-seqs") + 1])


def test_a_plan_of_the_first_release_is_enough() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    planned = capacity_of(plan, request.spec)
    del plan["typical"]
    found = capacity_of(plan, request.spec)
    assert found.usable_blocks == planned.usable_blocks
    assert found.request_blocks >= planned.request_blocks
    assert found.prefill_seconds_per_token == 0


@pytest.mark.parametrize(
    ("reported", "usable"),
    [pytest.param({"NUM_BLOCKS": 501.0}, 500.0, id="reported"), pytest.param({}, None, id="not reported")],
)
def test_what_engines_report_counts_more_than_the_plan(reported: dict[str, float], usable: float | None) -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    found = capacity_of(plan, request.spec, view(USAGE=0.5, **reported))
    assert found.usable_blocks == (usable or plan["kv"]["numBlocks"] - 1)


def test_all_engines_of_a_replica_count() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    one = capacity_of(plan, request.spec)
    four = capacity_of({**plan, "choice": {**plan["choice"], "enginesPerReplica": 4}}, request.spec)
    assert four == ReplicaCapacity(
        **{**vars(one), "usable_blocks": 4 * one.usable_blocks, "max_num_seqs": 4 * one.max_num_seqs}
    )


def test_without_a_load_requests_are_as_large_as_those_that_run() -> None:
    request = request_of()
    plan = kept(request)
    planned = capacity_of(plan, request.spec)
    now = view(USAGE=0.9, RUNNING=3.0)
    assert capacity_of(plan, request.spec, now).request_blocks == pytest.approx(0.3 * planned.usable_blocks)
    assert capacity_of(plan, request.spec, view(USAGE=0.0, RUNNING=0.0)).request_blocks == planned.request_blocks
