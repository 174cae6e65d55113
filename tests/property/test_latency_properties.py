"""Orders that no load, model or GPU may turn around."""

from dataclasses import replace
from functools import cache

from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.core.kv import EngineOptions, Refusal, plan_layout
from plimsoll.core.latency import LatencyEstimate, Load, predict_latency, running_limit
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.plan.result import Range
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts, read_model

MODELS = (
    "meta-llama/Llama-3.1-8B-Instruct",
    "nvidia/Llama-3.1-70B-Instruct-FP8",
    "openai/gpt-oss-120b",
    "moonshotai/Kimi-K2.5",
    "zai-org/GLM-5.1-FP8",
    "Qwen/Qwen3.5-9B",
    "Qwen/Qwen3-30B-A3B-FP8",
    "google/gemma-3-27b-it",
)
BLOCKS = 4000
ROUNDING = 1 + 1e-9

loads = st.builds(
    Load,
    prompt_tokens=st.integers(1, 60_000),
    output_tokens=st.integers(1, 8_000),
    concurrency=st.integers(1, 2_000),
)
models = st.sampled_from(MODELS)
devices = st.sampled_from(gpus.names())
sizes = st.sampled_from((1, 2, 4, 8))


@cache
def facts_of(model: str) -> ModelFacts:
    entry = catalogue.find(model)
    assert entry is not None
    return read_model(entry.config, entry.quant_config)


def predict(
    model: str, gpu: GPU, tensor_parallel: int, load: Load, *, blocks: int | None = None, expert_parallel: bool = False
) -> LatencyEstimate:
    facts = facts_of(model)
    options = EngineOptions(device=gpu, tensor_parallel=tensor_parallel)
    try:
        limit = None if blocks is None else running_limit(plan_layout(facts, options), blocks, load)
        return predict_latency(facts, options, load, MemoryFlags(expert_parallel=expert_parallel), running_limit=limit)
    except Refusal:
        assume(False)
        raise


def device(label: str) -> GPU:
    found = gpus.find(label)
    assert found is not None
    return found


def mid(figure: Range | None) -> float:
    assert figure is not None
    assert 0 < figure.low <= figure.mid <= figure.high
    return figure.mid


@given(models, devices, sizes, loads, st.integers(1, 500), st.sampled_from((None, BLOCKS)), st.booleans())
def test_more_concurrency_never_helps(
    model: str, label: str, size: int, load: Load, more: int, blocks: int | None, spread_experts: bool
) -> None:
    busier = replace(load, concurrency=load.concurrency + more)
    before, after = (
        predict(model, device(label), size, each, blocks=blocks, expert_parallel=spread_experts)
        for each in (load, busier)
    )
    assert mid(after.tpot_ms) * ROUNDING >= mid(before.tpot_ms)
    assert mid(after.ttft_ms) * ROUNDING >= mid(before.ttft_ms)


@given(models, devices, sizes, loads, st.integers(1, 20_000), st.sampled_from((None, BLOCKS)))
def test_a_longer_prompt_never_answers_sooner(
    model: str, label: str, size: int, load: Load, more: int, blocks: int | None
) -> None:
    longer = replace(load, prompt_tokens=load.prompt_tokens + more)
    before, after = (predict(model, device(label), size, each, blocks=blocks) for each in (load, longer))
    assert mid(after.ttft_ms) * ROUNDING >= mid(before.ttft_ms)


@given(models, devices, sizes, loads, st.floats(1.0, 10.0))
def test_faster_memory_never_slows_down(model: str, label: str, size: int, load: Load, factor: float) -> None:
    slow = device(label)
    fast = replace(slow, bandwidth_bytes_per_second=slow.bandwidth_bytes_per_second * factor)
    before, after = (predict(model, gpu, size, load) for gpu in (slow, fast))
    assert mid(after.tpot_ms) <= mid(before.tpot_ms) * ROUNDING
    assert mid(after.ttft_ms) <= mid(before.ttft_ms) * ROUNDING


@given(models, devices, sizes, loads, st.floats(1.0, 10.0))
def test_a_faster_gpu_never_slows_down(model: str, label: str, size: int, load: Load, factor: float) -> None:
    slow = device(label)
    fast = replace(slow, dense_flops={dtype: rate * factor for dtype, rate in slow.dense_flops.items()})
    before, after = (predict(model, gpu, size, load) for gpu in (slow, fast))
    assert mid(after.tpot_ms) <= mid(before.tpot_ms) * ROUNDING
    assert mid(after.ttft_ms) <= mid(before.ttft_ms) * ROUNDING
