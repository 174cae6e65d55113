"""What vLLM would refuse or die of, found before it starts."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.predict import Models
from plimsoll.core.rows import answer

DATA = Path(__file__).parents[3] / "data" / "memory" / "startup-logs.jsonl.gz"
H100 = "NVIDIA-H100-80GB-HBM3"
MODELS = Models(Path())


def predict(model: str = "meta-llama/Llama-3.1-8B-Instruct", gpu: str = H100, **more: Any) -> dict[str, Any]:
    version = more.pop("engine_version", None)
    return answer({"id": 1, "model": model, "gpu": gpu, "engine_version": version, "flags": more}, MODELS)


@pytest.mark.parametrize(
    ("model", "gpu", "flags", "reason", "words"),
    [
        pytest.param(
            "meta-llama/Llama-3.1-70B", H100, {}, "weights_do_not_fit", "more GPUs", id="70B in bf16 on one H100"
        ),
        pytest.param(
            "Qwen/Qwen3-32B", H100, {"gpu_memory_utilization": 0.8}, "no_memory_for_kv", "gpu_memory_utilization",
            id="weights take all that may be used",
        ),
        pytest.param(
            "meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-L4", {"max_model_len": 131072}, "kv_cache_too_small",
            "estimated maximum model length", id="131k on one L4",
        ),
        pytest.param(
            "meta-llama/Llama-3.1-8B-Instruct", H100, {"gpu_memory_utilization": 1.0}, "not_enough_free_memory",
            "fits", id="all of the device",
        ),
        pytest.param(
            "Qwen/Qwen3.5-27B", H100, {}, "max_num_seqs_above_state_blocks", "Mamba cache blocks",
            id="1,024 sequences of a hybrid",
        ),
        pytest.param(
            "microsoft/phi-4", H100, {"tensor_parallel_size": 4}, "heads_not_divisible", "KV heads",
            id="10 KV heads at TP 4",
        ),
        pytest.param(
            "deepseek-ai/DeepSeek-V3.2", "NVIDIA-L4", {"tensor_parallel_size": 8}, "no_attention_backend", "sparse",
            id="sparse MLA on an L4",
        ),
        pytest.param(
            "openai/gpt-oss-20b", "NVIDIA A100 SXM4 80GB", {"kv_cache_dtype": "fp8"}, "kv_dtype_unsupported", "",
            id="fp8 cache beside sinks on an A100",
        ),
        pytest.param(
            "Qwen/Qwen3-8B", H100, {"max_model_len": 131072}, "max_model_len_above_model", "40960",
            id="context above the model",
        ),
        pytest.param("Qwen/Qwen3-8B", H100, {"swap_space": 4}, "bad_flag", "0.16.0", id="removed flag"),
        pytest.param("Qwen/Qwen3-8B", H100, {"max_num_seq": 4}, "bad_flag", "max_num_seqs", id="misspelt flag"),
        pytest.param(
            "Qwen/Qwen3-8B", H100, {"enable_expert_parallel": True}, "bad_flag", "no experts",
            id="experts of a dense model",
        ),
        pytest.param(
            "Qwen/Qwen3-8B", H100, {"max_num_batched_tokens": 64, "max_num_seqs": 128}, "bad_flag",
            "at least max_num_seqs",
            id="fewer tokens than sequences",
        ),
        pytest.param(
            "Qwen/Qwen3-8B", H100, {"enable_chunked_prefill": False, "max_num_batched_tokens": 2048}, "bad_flag",
            "chunked prefill", id="step shorter than the context",
        ),
        pytest.param(
            "Qwen/Qwen3-8B", H100, {"kv_cache_dtype": "float16"}, "kv_dtype_unsupported", "model dtype",
            id="cache in the other half precision",
        ),
        pytest.param(
            "Qwen/Qwen3-8B-FP8", H100, {"quantization": "awq"}, "bad_flag", "checkpoint says fp8", id="another method"
        ),
        pytest.param(
            "Qwen/Qwen2.5-3B", "Tesla-T4", {"dtype": "bfloat16"}, "dtype_unsupported", "float16", id="bf16 on a T4"
        ),
        pytest.param(
            "Qwen/Qwen2.5-3B", "Tesla-V100-SXM2-32GB", {"quantization": "awq", "dtype": "float16"},
            "quantization_unsupported", "7.5", id="AWQ on a V100",
        ),
        pytest.param("Qwen/Qwen3-8B", H100, {"quantization": "gguf"}, "quantization_unsupported", "plugin", id="GGUF"),
    ],
)  # fmt: skip
def test_refused(model: str, gpu: str, flags: dict[str, Any], reason: str, words: str) -> None:
    found = predict(model, gpu, **flags)
    assert (found["outcome"], found["reason"]) == ("refused", reason), found["message"]
    assert words in found["message"]


@pytest.mark.parametrize(
    ("flags", "version"),
    [
        pytest.param({"max_num_seqs": 256}, "0.32.0", id="fewer sequences"),
        pytest.param({"enforce_eager": True}, "0.32.0", id="no full graphs"),
    ],
)
def test_a_hybrid_starts_with(flags: dict[str, Any], version: str) -> None:
    assert predict("Qwen/Qwen3.5-27B", engine_version=version, **flags)["outcome"] == "starts"


def test_graphs_after_the_pool_may_not_fit() -> None:
    tight: dict[str, Any] = {"engine_version": "0.19.0", "gpu_memory_utilization": 0.985, "max_num_seqs": 1024}
    assert predict(**tight)["reason"] == "oom_risk"
    assert predict(**{**tight, "enforce_eager": True})["outcome"] == "starts"


def test_a_pool_that_is_given_must_fit_beside_the_rest() -> None:
    assert predict(kv_cache_memory_bytes=50 << 30)["outcome"] == "starts"
    found = predict(kv_cache_memory_bytes=70 << 30)
    assert found["reason"] == "oom_risk"
    assert "kv_cache_memory_bytes" in found["message"]


def test_what_fits_is_said_and_fits() -> None:
    found = predict(gpu="NVIDIA-L4", max_model_len=131072)
    longest = found["estimated_max_model_len"]
    assert predict(gpu="NVIDIA-L4", max_model_len=longest)["outcome"] == "starts"
    assert predict(gpu="NVIDIA-L4", max_model_len=longest + 16)["outcome"] == "refused"
    assert found["needed_bytes"] > found["available_kv_bytes"]["mid"]


def test_a_start_may_be_promised_only_at_the_low_end() -> None:
    left = predict(gpu="NVIDIA-L4", max_model_len=1024)["available_kv_bytes"]
    between = int((left["low"] + left["mid"]) / 2 / 131072)
    found = predict(gpu="NVIDIA-L4", max_model_len=between)
    assert (found["outcome"], found["outcome_at_low"]) == ("starts", "refused")


def rows() -> list[dict[str, Any]]:
    configs, found = {}, []
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "config" in row:
                configs[row["config_file"]] = row["config"]
            else:
                found.append({**row, "config": configs[row["config_file"]]})
    return found


SAME = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "kv_cache_dtype", "gpu_memory_utilization",
        "quantization", "enforce_eager")  # fmt: skip
FLAGS = {name: name for name in SAME} | {
    "tensor_parallel": "tensor_parallel_size",
    "pipeline_parallel": "pipeline_parallel_size",
    "dcp": "decode_context_parallel_size",
    "weight_dtype": "dtype",
    "expert_parallel": "enable_expert_parallel",
}


def of_log(row: dict[str, Any]) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "id": row["id"],
        "config": row["config"],
        "engine_version": row["vllm_version"],
        "gpu": row["gpu"],
        "flags": {name: row[key] for key, name in FLAGS.items() if row[key]} | (row["other_flags"] or {}),
    }
    if row["total_memory_gib"]:
        asked["gpu_memory_bytes"] = round(row["total_memory_gib"] * 2**30)
    elif row["gpu"]:
        asked["gpu_memory_bytes"] = row["gpu_memory_gib_nominal"] << 30
    elif row["available_kv_cache_gib"]:
        asked["available_kv_bytes"] = round(row["available_kv_cache_gib"] * 2**30)
    return answer(asked, MODELS)


def test_good_starts_of_public_logs_are_not_refused() -> None:
    good = [row for row in rows() if row["outcome"] == "ok"]
    refused = {row["id"]: found["message"] for row in good if (found := of_log(row))["outcome"] == "refused"}
    assert len(good) > 100
    assert len(refused) <= 0.01 * len(good), refused


@pytest.mark.parametrize(
    ("row_id", "reason"),
    [
        ("gt-206", "oom_risk"),
        ("gt-207", "oom_risk"),
        ("gt-241", "no_memory_for_kv"),
        ("gt-324", "kv_cache_too_small"),
        ("gt-330", "kv_cache_too_small"),
        ("gt-333", "kv_cache_too_small"),
        ("gt-334", "kv_cache_too_small"),
        ("gt-336", "kv_cache_too_small"),
        ("gt-339", "kv_cache_too_small"),
    ],
)
def test_failures_of_public_logs_have_their_cause(row_id: str, reason: str) -> None:
    row = next(row for row in rows() if row["id"] == row_id)
    assert of_log(row)["reason"] == reason


@pytest.mark.parametrize("row_id", ["gt-324", "gt-330", "gt-336"])
def test_the_logs_own_figures(row_id: str) -> None:
    row = next(row for row in rows() if row["id"] == row_id)
    found = of_log(row)
    assert found["needed_bytes"] / 2**30 == pytest.approx(row["needed_gib"], abs=0.006)
    assert found["estimated_max_model_len"] == pytest.approx(row["estimated_max_model_len"], rel=0.01)
