"""How far each flag is turned at once, and where it is not turned at all."""

from typing import Any

import pytest

from plimsoll.core.retune import RULES


def plan(blocks: float | None = 10, *, gpu: str = "NVIDIA-L40S", at_load: int | None = None) -> dict[str, Any]:
    """A pool of 1,000 blocks, 850 of them when it is well filled, and requests of so many."""
    typical = {} if blocks is None else {"blocks": blocks}
    return {"choice": {"gpu": gpu}, "kv": {"numBlocks": 1001, "blocksPerRequestAtLoad": at_load}, "typical": typical}


def turned(finding: str, flags: dict[str, Any], runs: dict[str, Any]) -> dict[str, str]:
    return {change.setting: change.after for change in RULES[finding](flags, runs)}


@pytest.mark.parametrize(
    ("now", "runs", "after"),
    [
        pytest.param(16, plan(), "32", id="twice as many"),
        pytest.param(64, plan(), "80", id="as many as the pool holds, in eights"),
        pytest.param(80, plan(), None, id="the pool holds no more"),
        pytest.param(16, plan(None), "32", id="what the pool holds is not known"),
        pytest.param(16, plan(None, at_load=50), None, id="what the pool holds by a plan of an older release"),
        pytest.param(600, plan(None), "1024", id="an end"),
        pytest.param(1024, plan(None), None, id="at the end"),
        pytest.param(None, plan(), None, id="how many may run is not known"),
    ],
)
def test_more_requests_at_once(now: int | None, runs: dict[str, Any], after: str | None) -> None:
    assert turned("SequenceCapBound", {"max_num_seqs": now}, runs) == ({"MaxNumSeqs": after} if after else {})


@pytest.mark.parametrize(
    ("flags", "after"),
    [
        pytest.param({"gpu_memory_utilization": 0.8}, "0.9", id="below what is usual: at once"),
        pytest.param({"gpu_memory_utilization": 0.88}, "0.91", id="a step"),
        pytest.param({"gpu_memory_utilization": 0.9}, "0.93", id="a step from what is usual"),
        pytest.param({"gpu_memory_utilization": 0.888}, "0.92", id="in whole hundredths"),
        pytest.param({"gpu_memory_utilization": 0.93}, "0.95", id="to the end"),
        pytest.param({"gpu_memory_utilization": 0.95}, None, id="at the end"),
        pytest.param({}, None, id="not known"),
        pytest.param({"gpu_memory_utilization": 0.9, "kv_cache_memory_bytes": 1}, None, id="bytes count in its place"),
    ],
)
def test_more_of_the_gpu(flags: dict[str, Any], after: str | None) -> None:
    assert turned("KVBound", flags, plan()).get("GPUMemoryUtilization") == after


@pytest.mark.parametrize(
    ("dtype", "gpu", "turns"),
    [
        ("auto", "NVIDIA-L40S", True),
        ("bfloat16", "NVIDIA-L40S", True),
        (None, "NVIDIA-L40S", True),
        ("fp8", "NVIDIA-L40S", False),
        ("auto", "NVIDIA-A100-SXM4-80GB", False),
        ("auto", "nobody knows it", False),
    ],
)
def test_eight_bits_where_the_gpu_computes_in_them(dtype: str | None, gpu: str, turns: bool) -> None:
    flags = {} if dtype is None else {"kv_cache_dtype": dtype}
    assert turned("KVBound", flags, plan(gpu=gpu)).get("KVCacheDtype") == ("fp8" if turns else None)


@pytest.mark.parametrize(
    ("now", "runs", "after"),
    [
        pytest.param(256, plan(), "80", id="as many as the pool holds"),
        pytest.param(81, plan(), "80", id="one more than it holds"),
        pytest.param(80, plan(), None, id="no more than it holds"),
        pytest.param(256, plan(106), "8", id="eight"),
        pytest.param(256, plan(106.25), "8", id="just eight: one block of the pool is nobody's"),
        pytest.param(256, plan(106.3), None, id="nearly eight"),
        pytest.param(256, plan(None), None, id="what it holds is not known"),
        pytest.param(256, plan(None, at_load=20), "40", id="by a plan of an older release"),
    ],
)
def test_no_more_requests_than_the_pool_holds(now: int, runs: dict[str, Any], after: str | None) -> None:
    assert turned("KVBound", {"max_num_seqs": now}, runs).get("MaxNumSeqs") == after


@pytest.mark.parametrize(("now", "after"), [(2048, "4096"), (16_384, "32768"), (16_385, None), (None, None)])
def test_larger_steps(now: int | None, after: str | None) -> None:
    expect = {"MaxNumBatchedTokens": after} if after else {}
    assert turned("PrefillBound", {"max_num_batched_tokens": now}, plan()) == expect


@pytest.mark.parametrize(
    ("tokens", "sequences", "smaller", "fewer"),
    [
        pytest.param(8192, 64, "4096", "48", id="half the tokens, or three quarters of the requests"),
        pytest.param(2048, 64, "1024", "48", id="to the least"),
        pytest.param(2047, 64, None, "48", id="below the least"),
        pytest.param(4096, 2048, "2048", "1536", id="a token for each request"),
        pytest.param(4096, 2049, None, "1536", id="less than a token for each"),
        pytest.param(8192, 11, "4096", "8", id="eight requests"),
        pytest.param(8192, 10, "4096", None, id="fewer than eight are too few"),
        pytest.param(8192, None, "4096", None, id="how many may run is not known"),
        pytest.param(None, 64, None, "48", id="how many tokens is not known"),
    ],
)
def test_smaller_steps_and_fewer_requests(
    tokens: int | None, sequences: int | None, smaller: str | None, fewer: str | None
) -> None:
    found = turned("DecodeBound", {"max_num_batched_tokens": tokens, "max_num_seqs": sequences}, plan())
    assert (found.get("MaxNumBatchedTokens"), found.get("MaxNumSeqs")) == (smaller, fewer)


def test_where_both_kinds_of_token_are_late_no_step_helps() -> None:
    assert turned("ComputeBound", {"max_num_batched_tokens": 8192, "max_num_seqs": 64}, plan()) == {}
