"""A rank's weights are what vLLM's own classes build for it (`make oracle`), buffers of rotary tables aside."""

from typing import Any

import pytest

from plimsoll.core.memory.tensors import Ranks
from plimsoll.core.memory.weights import read_weights
from tests.unit.core.kv.recorded import bundled_facts, named, rows

_NEAR = 0.011
_PLAIN = [
    row
    for row in rows("oracle.jsonl.gz")
    if row.get("weight_bytes_rank0") and not row["extra_args"] and row["kv_cache_dtype"] == "auto"
    # Its rotary table is as long as the context, which the catalogue does not say.
    if row["model"] != "tiiuae/Falcon-H1-1.5B-Instruct"
]


@pytest.mark.parametrize("row", named(_PLAIN, "model", "device", "tp"))
def test_the_first_rank_holds_what_the_model_has(row: dict[str, Any]) -> None:
    capability = tuple(int(part) for part in row["compute_capability"].split("."))
    planned = read_weights(bundled_facts(row["model"])).bytes_on(Ranks(row["tp"]), (capability[0], capability[1]))
    assert planned == pytest.approx(row["weight_bytes_rank0"], rel=_NEAR)


def test_both_ends_of_gpt_oss_are_on_every_stage() -> None:
    (row,) = (
        row
        for row in rows("oracle.jsonl.gz")
        if row["model"] == "openai/gpt-oss-20b"
        and row["extra_args"] == {"pipeline_parallel_size": 2}
        and row["tp"] == 1
    )
    planned = read_weights(bundled_facts(row["model"])).bytes_on(Ranks(), (9, 0), range(12))
    assert planned == pytest.approx(row["weight_bytes_rank0"], rel=_NEAR)
