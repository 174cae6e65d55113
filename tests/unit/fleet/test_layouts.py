"""Pools come from recordings: the arithmetic reproduces what vLLM answered, and nothing is made up."""

from typing import Any

import pytest

from e2e.fleet import gpus, layouts, recordings, vllm_args
from e2e.fleet.layouts import Layout, NotRecordedError, Rejection
from e2e.fleet.pool import Pool

H100, L40S, L4, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "NVIDIA-L4", "NVIDIA-A100-SXM4-80GB"
QWEN, DENSE = "Qwen/Qwen3.5-9B", "Qwen/Qwen3-8B"
TRITON = ("--gdn-prefill-backend", "triton")
STARTED = [row for row in recordings.layout_rows() if "rejected" not in row]


def find(model: str, gpu: str, *argv: str) -> Layout | Rejection:
    return layouts.find(vllm_args.parse([model, *argv]), gpus.find(gpu))


def pool_of(row: dict[str, Any], result: dict[str, Any]) -> Pool:
    layout = next(
        known
        for known in layouts.all_layouts()
        if (known.model, known.device) == (row["model"], gpus.normalise(row["device"]))
        and (known.tensor_parallel, known.kv_cache_dtype) == (row["tp"], row["kv_cache_dtype"])
        and dict(known.extra_args) == {k: v for k, v in row["extra_args"].items() if k != "trust_remote_code"}
    )
    batched = row["max_num_batched_tokens"]
    return Pool(layout, result["max_model_len"], 256, batched, result["available_bytes_per_gpu"])


def test_every_recorded_start_is_reproduced() -> None:
    wrong = []
    for row in STARTED:
        result = row["seen"][0]
        pool = pool_of(row, result)
        got = (pool.num_blocks, pool.size_tokens, pool.blocks_per_max_request, round(pool.max_concurrency, 6))
        names = ("num_blocks", "kv_cache_size_tokens", "blocks_per_max_len_request", "max_concurrency")
        if got != tuple(result[name] for name in names) or not pool.fits(pool.max_model_len):
            wrong.append((pool.layout.title, got, result))
    assert not wrong


def test_every_recorded_refusal_is_reproduced() -> None:
    refused = [(row, result) for row in STARTED for result in row["seen"][1:]]
    assert len(refused) > 100
    wrong = []
    for row, result in refused:
        pool = pool_of(row, result)
        needed_gib = round(pool.layout.bytes_per_block * pool.blocks_per_max_request / gpus.GIB, 2)
        got = (pool.fits(pool.max_model_len), needed_gib, pool.longest_that_fits)
        expected = (False, result["needed_gib"], result["estimated_max_model_len"] or 0)
        if got != expected:
            wrong.append((pool.layout.title, got, expected))
    assert not wrong


@pytest.mark.parametrize(
    ("model", "gpu", "argv", "block", "device"),
    [
        pytest.param(QWEN, H100, TRITON, 528, H100, id="a hybrid on its own device"),
        pytest.param(QWEN, H100, (*TRITON, "--kv-cache-dtype", "fp8"), 1056, H100, id="fp8 doubles the block"),
        pytest.param(QWEN, H100, (*TRITON, "--kv-cache-dtype", "bfloat16"), 528, H100, id="bfloat16 is auto here"),
        pytest.param(QWEN, H100, (*TRITON, "--block-size", "32"), 544, H100, id="a recorded block size"),
        pytest.param(QWEN, A100, (), 528, A100, id="below SM90 the backend is Triton anyway"),
        pytest.param(QWEN, L40S, (), 528, H100, id="an unrecorded device takes what all others agree on"),
        pytest.param("/models/Qwen/Qwen3.5-9B", H100, TRITON, 528, H100, id="a local path"),
        pytest.param("/models/Qwen3-8B", H100, (), 16, H100, id="a path that ends in the name"),
        pytest.param(DENSE, H100, ("--no-enable-prefix-caching",), 16, H100, id="caching changes no dense layout"),
    ],
)
def test_the_row_of_a_start(model: str, gpu: str, argv: tuple[str, ...], block: int, device: str) -> None:
    row = find(model, gpu, *argv)
    assert isinstance(row, Layout)
    assert (row.block_tokens, row.device) == (block, gpus.normalise(device))


@pytest.mark.parametrize(
    ("model", "gpu", "argv", "says"),
    [
        pytest.param("nobody/knows", H100, (), "nobody/knows", id="unknown model"),
        pytest.param(QWEN, H100, (), "gdn-prefill-backend unset", id="FlashInfer's block size was not recorded"),
        pytest.param(QWEN, H100, (*TRITON, "-tp", "16"), "recorded: Qwen--Qwen3.5-9B on", id="unrecorded tp"),
        pytest.param(DENSE, H100, ("--block-size", "64"), "block_size", id="unrecorded block size"),
        pytest.param(DENSE, H100, ("-pp", "2"), "pipeline-parallel-size 2", id="a flag nobody varied"),
        pytest.param(DENSE, H100, ("--kv-cache-dtype", "nvfp4"), "kv nvfp4", id="unrecorded dtype"),
    ],
)
def test_what_was_not_recorded_is_said(model: str, gpu: str, argv: tuple[str, ...], says: str) -> None:
    with pytest.raises(NotRecordedError, match=says):
        find(model, gpu, *argv)


def test_what_vllm_rejected_before_planning_is_rejected() -> None:
    row = find("openai/gpt-oss-20b", A100, "--kv-cache-dtype", "fp8")
    assert isinstance(row, Rejection)
    assert "FP8 KV cache is not supported" in row.text
