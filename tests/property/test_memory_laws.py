"""Laws of the memory model and of rows, whatever goes in."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.cli.predict import Models
from plimsoll.core.rows import KEYS, answer

MODELS = Models(Path())
NAMES = ["Qwen/Qwen3.5-9B", "meta-llama/Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-20b",
         "google/gemma-4-31B-it", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "Qwen/Qwen3-30B-A3B-FP8"]  # fmt: skip
GPUS = ["NVIDIA-H100-80GB-HBM3", "NVIDIA-B200", "NVIDIA-L40S", "NVIDIA-L4", "NVIDIA-A100-SXM4-80GB"]

starts = st.fixed_dictionaries(
    {
        "model": st.sampled_from(NAMES),
        "gpu": st.sampled_from(GPUS),
        "engine_version": st.sampled_from(["0.11.0", "0.19.1", "0.25.1", "0.32.0"]),
        "flags": st.fixed_dictionaries(
            {
                "tensor_parallel_size": st.sampled_from([1, 2, 4, 8]),
                "max_model_len": st.integers(1024, 40960),
                "max_num_seqs": st.sampled_from([16, 64, 256]),
                "gpu_memory_utilization": st.floats(0.5, 0.95),
            }
        ),
    }
)


def predicted(row: dict[str, Any]) -> dict[str, Any]:
    return answer(row, MODELS)


@given(starts)
@settings(max_examples=150, deadline=None)
def test_an_answer_agrees_with_itself(row: dict[str, Any]) -> None:
    found = predicted(row)
    left = found["available_kv_bytes"]
    if left is not None:
        assert left["low"] <= left["mid"] <= left["high"]
    if found["outcome"] == "starts":
        assert found["num_blocks"] * found["bytes_per_block"] <= left["mid"]
        assert found["max_concurrency"] >= 1
    if found["outcome"] == "refused":
        assert found["outcome_at_low"] == "refused"
        assert found["message"]


@given(starts, st.integers(1, 40000))
@settings(max_examples=100, deadline=None)
def test_more_context_never_leaves_more(row: dict[str, Any], more: int) -> None:
    longer = {**row, "flags": {**row["flags"], "max_model_len": min(40960, row["flags"]["max_model_len"] + more)}}
    short, long = predicted(row), predicted(longer)
    if long["outcome"] == "starts":
        assert short["outcome"] == "starts"
        assert short["max_concurrency"] >= long["max_concurrency"]


@given(starts)
@settings(max_examples=100, deadline=None)
def test_more_ranks_never_hold_more_weights_each(row: dict[str, Any]) -> None:
    sizes = [
        found["weights_bytes"]
        for tp in (1, 2, 4, 8)
        if (found := predicted({**row, "flags": {**row["flags"], "tensor_parallel_size": tp}}))["weights_bytes"]
    ]
    assert sizes == sorted(sizes, reverse=True)


@given(starts, st.floats(0.01, 0.3))
@settings(max_examples=100, deadline=None)
def test_a_larger_share_never_leaves_less(row: dict[str, Any], less: float) -> None:
    lower = {**row, "flags": {**row["flags"], "gpu_memory_utilization": row["flags"]["gpu_memory_utilization"] - less}}
    small, large = predicted(lower)["available_kv_bytes"], predicted(row)["available_kv_bytes"]
    if small is not None and large is not None:
        assert small["mid"] <= large["mid"]
        assert small["low"] <= large["low"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=8), anything, max_size=8) | anything)
@settings(max_examples=400, deadline=None)
def test_whatever_a_row_holds_it_gets_an_answer(row: Any) -> None:
    found = predicted(row)
    assert found["outcome"] in {"starts", "refused", "unknown"}
    json.dumps(found, allow_nan=False)


@given(starts, st.sampled_from(KEYS), anything)
@settings(max_examples=300, deadline=None)
def test_one_field_gone_wrong(row: dict[str, Any], key: str, value: Any) -> None:
    found = predicted({**row, key: value})
    assert found["outcome"] in {"starts", "refused", "unknown"}
    json.dumps(found, allow_nan=False)


FLAG_NAMES = ["tensor_parallel_size", "max_model_len", "block_size", "kv_cache_dtype", "speculative_config",
              "hf_overrides", "pipeline_parallel_size", "decode_context_parallel_size", "limit_mm_per_prompt",
              "max_loras", "cudagraph_capture_sizes", "quantization", "dtype", "attention_backend",
              "VLLM_PP_LAYER_PARTITION",
              "num_gpu_blocks_override", "kv_cache_memory_bytes", "cpu_offload_gb", "data_parallel_size"]  # fmt: skip


@given(starts, st.dictionaries(st.sampled_from(FLAG_NAMES), anything, min_size=1, max_size=4))
@settings(max_examples=400, deadline=None)
def test_flags_gone_wrong(row: dict[str, Any], flags: dict[str, Any]) -> None:
    found = predicted({**row, "flags": {**row["flags"], **flags}})
    assert found["outcome"] in {"starts", "refused", "unknown"}
    json.dumps(found, allow_nan=False)
