"""Laws of the planner that hold for whatever is asked, on bundled models."""

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from plimsoll.api.parse import parse_service
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.cli.predict import Models
from plimsoll.core import rows
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.extra_args import argv_flags
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.facts.engines import EngineVersion
from tests.unit.api.strategies import MANIFESTS

LONG = os.environ.get("PLIMSOLL_PROFILE") == "long"
LAWS = settings(max_examples=1000 if LONG else 60, deadline=None, suppress_health_check=list(HealthCheck))
ANYTHING = settings(max_examples=10_000 if LONG else 300, deadline=None, suppress_health_check=list(HealthCheck))

MODELS = (
    "Qwen/Qwen3.5-9B", "Qwen/Qwen3-32B", "openai/gpt-oss-120b", "deepseek-ai/DeepSeek-V3.2", "microsoft/phi-4",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "google/gemma-3-27b-it", "Qwen/Qwen3-235B-A22B-FP8",
    "meta-llama/Llama-3.1-8B-Instruct", "moonshotai/Kimi-K2-Instruct", "Qwen/Qwen3-VL-8B-Instruct",
)  # fmt: skip
GPUS = (
    "NVIDIA-L4", "NVIDIA-L40S", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200",
    "NVIDIA-H100-NVL", "NVIDIA-A30",
)  # fmt: skip


SOURCE = Models(Path())


@cache
def config_of(model: str) -> ModelConfig:
    found = bundled_config(model)
    assert found is not None
    return found


def spec_of(**fields: Any) -> VLLMServiceSpec:
    manifest = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VLLMService",
        "metadata": {"name": "law"},
        "spec": fields,
    }
    return parse_service(manifest).spec


def planned(fields: Mapping[str, Any]) -> Plan | Refusal:
    spec = spec_of(**fields)
    return plan_service(spec, spec.scaling.min_replicas, config_of(spec.model.id))


def cost(plan: Plan) -> float:
    """What the planner says the plan costs."""
    note = next(text for text in plan.assumptions if text.startswith("choice: "))
    return float(note.split("; cost ")[1].split(" ")[0])


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    context = draw(st.sampled_from((2048, 8192, 32768, 40960)))
    prompt = draw(st.integers(16, context // 2))
    asked: dict[str, Any] = {
        "model": {"id": draw(st.sampled_from(MODELS)), "textOnly": draw(st.booleans())},
        "hardware": {
            "gpus": draw(st.lists(st.sampled_from(GPUS), min_size=1, max_size=3, unique=True)),
            "maxGPUs": draw(st.sampled_from((1, 2, 4, 7, 8, 16, 64))),
        },
        "contextTokens": context,
        "scaling": {"minReplicas": 1},
    }
    if draw(st.booleans()):
        load: dict[str, Any] = {"promptTokens": prompt, "outputTokens": draw(st.integers(1, context - prompt))}
        amounts = draw(st.sampled_from(("concurrency", "requestsPerSecond", "both")))
        if amounts != "requestsPerSecond":
            load["concurrency"] = draw(st.integers(1, 400))
        if amounts != "concurrency":
            load["requestsPerSecond"] = draw(st.floats(0.01, 50))
        asked["load"] = load
    if draw(st.booleans()):
        asked["slo"] = {
            "ttft": f"{draw(st.integers(100, 20_000))}ms",
            "itl": f"{draw(st.integers(5, 300))}ms",
            "percentile": draw(st.sampled_from((50, 90, 95, 99))),
        }
    return asked


def _meets(plan: Plan | Refusal) -> bool:
    """Whether load and targets are met, so that cost is what decided."""
    return isinstance(plan, Plan) and not any(text.startswith("limit: ") for text in plan.assumptions)


def _harder(asked: Mapping[str, Any], how: str) -> dict[str, Any]:
    harder: dict[str, Any] = json.loads(json.dumps(asked))
    if how == "context":
        harder["contextTokens"] = asked["contextTokens"] + asked["contextTokens"] // 2
    elif how == "load":
        load = harder.setdefault("load", {"concurrency": 2})
        for key in ("concurrency", "requestsPerSecond"):
            if key in load:
                load[key] = load[key] * 2
    elif "slo" in harder:
        harder["slo"]["ttft"] = f"{max(1, int(asked['slo']['ttft'].removesuffix('ms')) * 2 // 3)}ms"
        harder["slo"]["itl"] = f"{max(1, int(asked['slo']['itl'].removesuffix('ms')) * 2 // 3)}ms"
    return harder


@LAWS
@given(requests(), st.sampled_from(("context", "load", "slo")))
def test_asking_for_more_is_never_cheaper(asked: dict[str, Any], how: str) -> None:
    easy, hard = planned(asked), planned(_harder(asked, how))
    assume(_meets(hard))
    assert isinstance(hard, Plan)
    assert isinstance(easy, Plan), easy
    assert cost(easy) <= cost(hard) * (1 + 1e-4)


@LAWS
@given(requests(), st.sampled_from((1, 3, 8)))
def test_a_larger_budget_never_makes_it_worse(asked: dict[str, Any], more: int) -> None:
    before = planned(asked)
    hardware = {**asked["hardware"], "maxGPUs": asked["hardware"]["maxGPUs"] + more}
    after = planned({**asked, "hardware": hardware})
    if isinstance(before, Refusal):
        return
    assert isinstance(after, Plan), after
    if _meets(before):
        assert _meets(after)
        # Pipelines are the last resort: where the budget leaves no other way they may be the cheaper one.
        assert before.choice.pipeline_parallel > 1 or cost(after) <= cost(before) * (1 + 1e-4)


@LAWS
@given(requests(), st.sampled_from(("Balanced", "Latency", "Throughput")))
def test_a_plan_starts_by_its_own_arguments(asked: dict[str, Any], objective: str) -> None:
    plan = planned({**asked, "objective": objective})
    assume(isinstance(plan, Plan))
    assert isinstance(plan, Plan)
    assert plan.choice.replicas * plan.choice.gpus_per_replica <= asked["hardware"]["maxGPUs"]
    version = EngineVersion.parse(plan.choice.engine_version)
    row = {
        "model": asked["model"]["id"],
        "gpu": plan.choice.gpu,
        "engine_version": plan.choice.engine_version,
        "flags": argv_flags(plan.choice.args, version),
    }
    answer = rows.answer(row, SOURCE)
    assert answer["outcome_at_low"] == "starts", (answer["message"], plan.choice.args)
    assert answer["num_blocks"] == plan.kv.num_blocks
    assert answer["max_concurrency"] == plan.kv.max_concurrency


@LAWS
@given(requests())
def test_every_nearest_change_is_feasible_as_it_is_written(asked: dict[str, Any]) -> None:
    refusal = planned(asked)
    assume(isinstance(refusal, Refusal))
    assert isinstance(refusal, Refusal)
    for near in refusal.nearest:
        changed: dict[str, Any] = json.loads(json.dumps(asked))
        for change in near.change.split(" and "):
            _apply(changed, change)
        assert isinstance(planned(changed), Plan), near


def _apply(asked: dict[str, Any], change: str) -> None:
    field, _, rest = change.partition(": ")
    to = rest.rsplit(" -> ", 1)[-1]
    match field:
        case "contextTokens":
            asked["contextTokens"] = int(to)
        case "model.textOnly":
            asked["model"]["textOnly"] = True
        case "maxGPUs":
            asked["hardware"]["maxGPUs"] = int(to)
        case "scaling.minReplicas":
            asked["scaling"]["minReplicas"] = int(to)
        case "hardware.gpu":
            asked["hardware"]["gpus"] = [to]
        case "model.id":
            asked["model"]["id"] = to
        case "engine.extraArgs":
            asked["engine"] = {"extraArgs": [to.removeprefix("+ ")]}
        case _:
            raise AssertionError(change)


@ANYTHING
@given(MANIFESTS, st.sampled_from(MODELS))
def test_every_spec_the_schema_allows_is_answered(manifest: dict[str, Any], model: str) -> None:
    manifest = json.loads(json.dumps(manifest))
    manifest["spec"].setdefault("hardware", {})
    if "gpus" not in manifest["spec"]["hardware"]:
        manifest["spec"]["hardware"]["gpu"] = GPUS[len(json.dumps(manifest)) % len(GPUS)]
    try:
        spec = parse_service(manifest).spec
    except ValueError:
        return
    answer = plan_service(spec, 1, config_of(model))
    assert len(json.dumps(to_json(answer)).encode()) <= 16_384


@LAWS
@given(requests(), st.permutations(range(3)))
def test_the_order_of_products_does_not_matter(asked: dict[str, Any], order: list[int]) -> None:
    gpus = asked["hardware"]["gpus"]
    shuffled = [gpus[i] for i in order if i < len(gpus)]
    first = planned(asked)
    second = planned({**asked, "hardware": {**asked["hardware"], "gpus": shuffled}})
    if isinstance(first, Plan):
        assert isinstance(second, Plan)
        assert first.choice == second.choice


def test_a_cluster_budget_is_a_limit_as_well() -> None:
    spec = spec_of(
        model={"id": "Qwen/Qwen3-8B"},
        hardware={"gpu": "NVIDIA-L40S", "maxGPUs": 64},
        contextTokens=8192,
        load={"concurrency": 2000, "promptTokens": 1000, "outputTokens": 300},
    )
    plan = plan_service(spec, 1, config_of("Qwen/Qwen3-8B"), Inventory(gpu_budget=3))
    assert isinstance(plan, Plan)
    assert plan.choice.replicas * plan.choice.gpus_per_replica == 3


@pytest.mark.parametrize("model", MODELS)
def test_the_same_input_gives_the_same_plan(model: str) -> None:
    asked = {"model": {"id": model}, "hardware": {"gpus": list(GPUS), "maxGPUs": 16}, "contextTokens": 8192}
    assert planned(asked) == planned(asked)
