"""Rules found by starting a real vLLM 0.32 on a CPU (`make test-engine`)."""

import pytest

from e2e.engine.models import MODELS
from plimsoll.core.kv import EngineOptions, Refusal, capacity, check_split, plan_layout
from plimsoll.facts.models import read_model

POOL_BYTES = 64 << 20


def options(**flags: object) -> EngineOptions:
    return EngineOptions(device="cpu", max_model_len=2048, **flags)  # type: ignore[arg-type] # a table of flags


@pytest.mark.parametrize(
    ("block", "works"), [(32, True), (96, True), (128, True), (10, False), (16, False), (48, False), (100, False)]
)
def test_a_block_is_a_multiple_of_the_kernels(block: int, works: bool) -> None:
    layout = plan_layout(read_model(MODELS["llama"]), options(block_size=block))
    assert capacity(layout, POOL_BYTES).num_blocks
    if works:
        check_split(layout)
        return
    with pytest.raises(Refusal, match=f"No common block size for {block}") as caught:
        check_split(layout)
    assert caught.value.reason == "no_attention_backend"


@pytest.mark.parametrize(
    ("dtype", "blocks"),
    [
        pytest.param("auto", 512, id="the model's own"),
        pytest.param("bfloat16", 512, id="the model's own by name"),
        pytest.param("int8_per_token_head", 1024, id="no scales beside them: those are Triton's"),
    ],
)
def test_dtypes_that_a_cpu_starts_with(dtype: str, blocks: int) -> None:
    layout = plan_layout(read_model(MODELS["llama"]), options(kv_cache_dtype=dtype))
    assert capacity(layout, POOL_BYTES).num_blocks == blocks


@pytest.mark.parametrize(
    ("model", "block"),
    [
        pytest.param("mamba", 2048, id="states alone: a block holds the whole context"),
        pytest.param("mamba2", 2048, id="the same of Mamba 2"),
        pytest.param("falcon-h1", 128, id="with attention beside them: attention's"),
    ],
)
def test_the_block_size_that_an_engine_reports(model: str, block: int) -> None:
    assert plan_layout(read_model(MODELS[model]), options()).block_tokens == block
