"""Every row of vLLM's own layout tables comes out equal: block size, blocks, tokens, concurrency, refusals."""

from typing import Any

import pytest

from plimsoll.core.kv import EngineOptions, KVLayout, Refusal, capacity, plan_layout
from plimsoll.facts import gpus
from plimsoll.facts.models import ModelFacts
from tests.unit.core.kv.recorded import GIB, bundled_facts, named, rows

_TABLES = [*rows("planner.jsonl.gz"), *rows("planner-new-models.jsonl.gz")]
_OPTION_OF = {"disable_hybrid_kv_cache_manager": "disable_hybrid_manager"}
_NOT_OPTIONS = {"trust_remote_code", "max_model_len"}
_NOTHING_LEFT = {"refused": True, "needed_gib": None, "estimated_max_model_len": None}


def _options(row: dict[str, Any]) -> EngineOptions:
    gpu = gpus.find(row["device"])
    assert gpu is not None, row["device"]
    extra = {_OPTION_OF.get(key, key): value for key, value in row["extra_args"].items() if key not in _NOT_OPTIONS}
    return EngineOptions(
        device=gpu,
        tensor_parallel=row["tp"],
        kv_cache_dtype=row["kv_cache_dtype"],
        # As the table was made; and it tries contexts above the model's own.
        gdn_prefill_backend="triton",
        allow_long_max_model_len=True,
        **extra,
    )


def _layout(facts: ModelFacts, row: dict[str, Any]) -> KVLayout | Refusal:
    try:
        return plan_layout(facts, _options(row))
    except Refusal as refusal:
        return refusal


def _planned(layout: KVLayout, available_bytes: int, max_model_len: int) -> dict[str, Any]:
    try:
        pool = capacity(layout, available_bytes, max_model_len)
    except Refusal as refusal:
        needed = refusal.needed_bytes
        return {
            "refused": True,
            "needed_gib": needed if needed is None else round(needed / GIB, 2),
            "estimated_max_model_len": refusal.estimated_max_model_len,
        }
    return {
        "num_blocks": pool.num_blocks,
        "kv_cache_size_tokens": pool.tokens,
        "max_concurrency": pytest.approx(pool.max_concurrency, abs=1e-6),
        "bytes_per_block": pool.bytes_per_block,
        "blocks_per_max_len_request": pool.blocks_per_request,
    }


def _differences(layout: KVLayout, results: list[dict[str, Any]]) -> list[str]:
    found = []
    for result in results:
        wanted = dict(result)
        available, length = wanted.pop("available_bytes_per_gpu"), wanted.pop("max_model_len")
        planned = _planned(layout, available, length)
        if planned != wanted:
            found.append(f"{available / GIB:g} GiB, {length} tokens: planned {planned}, vLLM {wanted}")
    return found


@pytest.mark.parametrize("row", named(_TABLES, "model", "device", "tp", "kv_cache_dtype"))
def test_row_equals_vllm(row: dict[str, Any]) -> None:
    facts = bundled_facts(row["model"])
    layout = _layout(facts, row)
    if isinstance(layout, Refusal):
        refused_all = all(_NOTHING_LEFT.items() <= result.items() for result in row["results"])
        assert "rejected" in row or refused_all, f"{layout.reason}: {layout.message}"
        return
    assert "rejected" not in row, row["rejected"]
    assert layout.block_tokens == row["block_size"]
    assert layout.kv_dtype == row["cache_dtype"]
    assert layout.resolved.dtype == row["dtype"]
    assert layout.resolved.max_num_batched_tokens == row["max_num_batched_tokens"]
    assert layout.resolved.prefix_caching == row["enable_prefix_caching"]
    assert facts.quantisation.method == row["quantization"]
    assert _differences(layout, row["results"]) == []
