"""The committed table answers what is asked of vLLM's planner, all of it, and of every kind of cache."""

from typing import Any

import pytest

from tools.oracle import table
from tools.oracle.cases import Case, cases

LARGEST_BYTES = 300_000
ROWS = table.read()


def _specs(row: dict[str, Any]) -> set[str]:
    return {spec["type"] for spec in row.get("layer_specs", ())}


def test_the_table_answers_what_is_asked_in_its_order() -> None:
    assert [table.case_of(row) for row in ROWS] == list(cases())
    assert table.TABLE.stat().st_size < LARGEST_BYTES


@pytest.mark.parametrize(
    "kind",
    [
        "FullAttentionSpec", "SlidingWindowSpec", "ChunkedLocalAttentionSpec", "MLAAttentionSpec",
        "SlidingWindowMLASpec", "MambaSpec",
    ],
)  # fmt: skip
def test_every_kind_of_cache_is_in_it(kind: str) -> None:
    assert any(kind in _specs(row) for row in ROWS)


@pytest.mark.parametrize("kind", ["MAMBA1_ATTN", "MAMBA2_ATTN", "GDN_ATTN", "SHORT_CONV_ATTN"])
def test_every_kind_of_state_is_in_it(kind: str) -> None:
    assert any(kind in row.get("attention_backends", ()) for row in ROWS)


@pytest.mark.parametrize("flag", ["tp", "pipeline_parallel_size", "decode_context_parallel_size", "speculative_config"])
def test_parallel_sizes_and_drafts_are_in_it(flag: str) -> None:
    assert any(row["results"] for row in ROWS if row["extra_args"].get(flag) or (flag == "tp" and row["tp"] == 8))


def test_a_row_that_moved_is_told_with_both_values() -> None:
    assert table.differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == ["b: 2 -> 3", "c: None -> 4"]


def test_a_question_reads_as_a_sentence() -> None:
    case = Case("org/name", "NVIDIA L4", 2, "fp8", {"block_size": 64})
    assert str(case) == "org/name on NVIDIA L4, tp 2, KV fp8 block_size=64"


def test_a_model_that_nobody_knows_is_named() -> None:
    with pytest.raises(table.OracleError, match="model: 'no/such' is neither in the catalogue nor the path"):
        table.configuration("no/such")
