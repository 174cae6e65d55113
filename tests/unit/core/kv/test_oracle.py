"""`plimsoll predict` says of each row of the oracle what vLLM's own planner said (`make oracle`)."""

from typing import Any

import pytest

from plimsoll.core.rows import ModelRequest, answer
from plimsoll.facts.engines import NEWEST
from plimsoll.facts.models import ModelFacts
from tests.unit.core.kv.recorded import GIB, bundled_facts, named, rows

_TABLE = rows("oracle.jsonl.gz")


def _facts(asked: ModelRequest) -> ModelFacts:
    assert asked.model
    return bundled_facts(asked.model)


def _predicted(row: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    flags = {"tensor_parallel_size": row["tp"], "kv_cache_dtype": row["kv_cache_dtype"], **row["extra_args"]}
    flags |= {"max_model_len": result["max_model_len"], "enforce_eager": True}  # as the oracle's engines were made
    asked = {
        "model": row["model"], "gpu": row["device"], "engine_version": NEWEST, "flags": flags,
        "available_kv_bytes": result["available_bytes_per_gpu"],
    }  # fmt: skip
    return answer(asked, _facts)


def _said(result: dict[str, Any]) -> dict[str, Any]:
    if "refused" in result:
        return {"needed_gib": result["needed_gib"], "estimated_max_model_len": result["estimated_max_model_len"]}
    keys = ("num_blocks", "kv_cache_size_tokens", "max_concurrency", "bytes_per_block")
    return {key: result[key] for key in keys}


def _foretold(row: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    found = _predicted(row, result)
    if found["outcome"] != "starts":
        needed = found.get("needed_bytes")
        return {
            "needed_gib": needed if needed is None else round(needed / GIB, 2),
            "estimated_max_model_len": found.get("estimated_max_model_len"),
        }
    assert found["block_size"] == row["block_size"]
    keys = ("num_blocks", "kv_cache_size_tokens", "bytes_per_block")
    return {**{key: found[key] for key in keys}, "max_concurrency": pytest.approx(found["max_concurrency"], abs=1e-6)}


@pytest.mark.parametrize("row", named(_TABLE, "model", "device", "tp", "kv_cache_dtype", "extra_args"))
def test_a_row_is_as_predicted(row: dict[str, Any]) -> None:
    if "rejected" in row:
        found = _predicted(row, {"max_model_len": 4096, "available_bytes_per_gpu": 40 * GIB})
        assert found["outcome"] == "refused", row["rejected"]
        return
    assert [_foretold(row, result) for result in row["results"]] == [_said(result) for result in row["results"]]
