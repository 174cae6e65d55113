"""What real engines printed when they started, on a CPU and release by release."""

import re
from typing import Any

import pytest

from plimsoll.core.kv import (
    Capacity,
    EngineOptions,
    KVLayout,
    Refusal,
    capacity,
    fitting_max_model_len,
    format_gib,
    plan_layout,
)
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import read_model
from tests.unit.core.kv.recorded import engine_models, named, rows

_OPTION_OF = {
    "disable_hybrid_kv_cache_manager": "disable_hybrid_manager",
    "num_gpu_blocks_override": "num_blocks_override",
}
_MEMORY_FLAGS = {"kv_cache_memory_bytes", "gpu_memory_utilization"}
# Refusals that are not about the layout: the host's memory, or a fault of that build.
_NOT_LAYOUT = ("on startup is less than desired CPU memory",)
# The CPU build of 0.25 cannot do without the hybrid manager for this model; later and earlier ones can.
_ACCEPTED = {("0.25.1", "gemma3")}

_STARTS = rows("cpu-starts.jsonl.gz")
_RECORDED = rows("engine-layouts.jsonl.gz")


def _options(flags: dict[str, Any], version: str = "0.32.0") -> EngineOptions:
    known = {_OPTION_OF.get(key, key): value for key, value in flags.items() if key not in _MEMORY_FLAGS}
    return EngineOptions(device="cpu", offline=True, version=EngineVersion.parse(version), **known)


def _start(row: dict[str, Any]) -> tuple[KVLayout, Capacity]:
    layout = plan_layout(read_model(row["config"]), _options(row["flags"]))
    reported = row.get("reported", {})
    available = reported.get("available_kv_bytes") or row["flags"].get("kv_cache_memory_bytes") or 1 << 30
    length = layout.resolved.max_model_len
    if row["flags"].get("max_model_len") == -1:
        length = fitting_max_model_len(layout, available)
    return layout, capacity(layout, available, length)


@pytest.mark.parametrize("row", named([row for row in _STARTS if row["kind"] != "rejected"], "model", "flags"))
def test_cpu_start_prints_what_we_plan(row: dict[str, Any]) -> None:
    layout, pool = _start(row)
    reported = row["reported"]
    assert (pool.num_blocks, layout.block_tokens) == (reported["num_gpu_blocks"], reported["block_size"])
    assert pool.tokens == reported["kv_cache_size_tokens"]
    assert pool.max_concurrency == pytest.approx(reported["kv_cache_max_concurrency"])
    assert pool.max_model_len == reported["max_model_len"]
    assert pool.num_blocks * pool.bytes_per_block == row["allocated_kv_bytes"]
    assert layout.resolved.max_num_batched_tokens == reported["max_num_batched_tokens"]
    assert layout.resolved.max_num_seqs == reported["max_num_seqs"]
    assert layout.resolved.prefix_caching == reported["enable_prefix_caching"]


def _layout_refusals() -> list[dict[str, Any]]:
    refused = [row for row in _STARTS if row["kind"] == "rejected"]
    return [row for row in refused if not any(text in row["error"] for text in _NOT_LAYOUT)]


@pytest.mark.parametrize("row", named(_layout_refusals(), "model", "flags"))
def test_cpu_start_is_refused_in_the_same_numbers(row: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as caught:
        _start(row)
    needed = re.search(r"\(([\d.]+) GiB KV cache is needed", row["error"])
    longest = re.search(r"estimated maximum model length is (\d+)", row["error"])
    if needed is None:
        assert "max_model_len" in caught.value.reason
        assert "max_model_len" in row["error"]
        return
    assert caught.value.needed_bytes is not None
    assert format_gib(caught.value.needed_bytes) == needed[1]
    assert caught.value.estimated_max_model_len == (int(longest[1]) if longest else None)


@pytest.mark.parametrize("row", named([row for row in _RECORDED if "num_blocks" in row], "version", "config", "flags"))
def test_release_prints_what_we_plan(row: dict[str, Any]) -> None:
    layout = plan_layout(read_model(engine_models()[row["config"]]), _options(row["flags"], row["version"]))
    pool = capacity(layout, row["pool_bytes"])
    assert pool.num_blocks == row["num_blocks"]
    assert pool.tokens == row["printed_tokens"]
    assert round(pool.max_concurrency, 2) == row["printed_concurrency"]
    assert layout.block_tokens == row.get("block_size", layout.block_tokens)


def _refused_rows() -> list[dict[str, Any]]:
    refused = [row for row in _RECORDED if "num_blocks" not in row]
    return [row for row in refused if (row["version"], row["config"]) not in _ACCEPTED]


@pytest.mark.parametrize("row", named(_refused_rows(), "version", "config", "flags"))
def test_release_refuses_what_we_refuse(row: dict[str, Any]) -> None:
    with pytest.raises(Refusal):
        plan_layout(read_model(engine_models()[row["config"]]), _options(row["flags"], row["version"]))
