"""Curves of capacity agree with the plan they are drawn from."""

from itertools import pairwise

import pytest

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.kv import KVLayout
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.curves import capacity_curve, fleet_size, requests_at_once
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.readback import planned_engine
from plimsoll.core.plan.result import Plan
from tests.unit.core.plan.asking import H100
from tests.unit.core.plan.asking import plan as asked

MODELS = ["Qwen/Qwen3.5-9B", "Qwen/Qwen3-8B", "openai/gpt-oss-20b", "google/gemma-3-27b-it"]


def planned(model: str, context: int = 16384) -> tuple[Plan, KVLayout]:
    spec = VLLMServiceSpec.model_validate(
        {
            "model": {"id": model, "textOnly": True},
            "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"},
            "contextTokens": context,
            "load": {"promptTokens": 2000, "outputTokens": 500, "concurrency": 16},
        }
    )
    config = bundled_config(model)
    assert config is not None
    plan = plan_service(spec, 1, config)
    assert isinstance(plan, Plan)
    engine = planned_engine(plan, config)
    assert engine is not None, "the plan's own argv must give the plan's own layout back"
    return plan, engine.layout


@pytest.mark.parametrize("model", MODELS)
def test_the_curve_falls_and_ends_at_the_plan(model: str) -> None:
    plan, layout = planned(model)
    curve = capacity_curve(layout, plan.kv.num_blocks, 16384)
    assert curve[-1][0] == 16384
    assert all(shorter >= longer for (_, shorter), (_, longer) in pairwise(curve))
    assert all(shorter < longer for (shorter, _), (longer, _) in pairwise(curve))
    # The plan's figure counts the null block, which holds nothing.
    blocks = plan.kv.num_blocks
    assert curve[-1][1] == pytest.approx(plan.kv.max_concurrency * (blocks - 1) / blocks, rel=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_a_fleet_holds_its_load_and_no_smaller_one_does(model: str) -> None:
    plan, layout = planned(model)
    size = fleet_size(plan, layout, 2500)
    assert size.requests_per_replica <= requests_at_once(layout, plan.kv.num_blocks, 2500)
    for requests in (1, 16, 1000):
        replicas = size.replicas_for(requests)
        assert replicas * size.requests_per_replica >= requests
        assert replicas == 1 or (replicas - 1) * size.requests_per_replica < requests


def test_drafts_and_stretched_positions_are_read_back_too() -> None:
    model, draft = "Qwen/Qwen3-8B", {"method": "DraftModel", "model": "Qwen/Qwen3-0.6B", "tokens": 3}
    config = bundled_config(model)
    assert config is not None
    plan = asked(model, H100, 65_536, ropeScaling="YaRN", engine={"speculative": draft})
    engine = planned_engine(plan, config)
    assert engine is not None
    assert engine.layout.bytes_per_block == plan.kv.bytes_per_block
