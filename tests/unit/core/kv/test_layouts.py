"""Layouts worked out by hand or published, and the refusals of flags that do not fit."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv import (
    Capacity,
    EngineOptions,
    Refusal,
    Speculation,
    capacity,
    check_sequences,
    fitting_max_model_len,
    layer_specs,
    plan_layout,
)
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts, read_model
from tests.unit.core.kv.recorded import GIB, bundled_facts

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


PACKED_OVER_8 = {"kv_cache_dtype": "fp8_ds_mla", "tensor_parallel": 8, "decode_context_parallel": 8}


def gpu(label: str = "NVIDIA-H100-80GB-HBM3") -> GPU:
    found = gpus.find(label)
    assert found is not None
    return found


def options(label: str = "NVIDIA-H100-80GB-HBM3", version: str = "0.32.0", **kwargs: Any) -> EngineOptions:
    return EngineOptions(device=gpu(label), version=EngineVersion.parse(version), **kwargs)


@pytest.mark.parametrize(
    ("model", "flags", "available_gib", "length", "bytes_per_block", "blocks", "needed", "tokens"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", {}, 50, 131072, 2_097_152, 25_600, 8_192, 409_600),
        ("openai/gpt-oss-120b", {}, 10, 131072, 589_824, 18_204, 9_225, 258_648),
        ("Qwen/Qwen3.5-9B", {}, 40, 262144, 18_874_368, 2_275, 465, 1_282_532),
        ("Qwen/Qwen3.5-9B", {"gdn_prefill_backend": "triton"}, 40, 262144, 17_301_504, 2_482, 503, 1_293_521),
        ("Qwen/Qwen3.5-9B", {"enable_prefix_caching": False}, 40, 262144, 17_301_504, 2_482, 500, 1_301_282),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", {}, 40, 131072, 3_145_728, 13_653, 8_192, 218_448),
        ("google/gemma-3-27b-it", {}, 20, 131072, 1_310_720, 16_384, 14_726, 145_829),
        ("google/gemma-4-31B-it", {"tensor_parallel": 2}, 15, 65536, 1_310_720, 12_288, 7_493, 107_474),
        ("Qwen/Qwen3.5-397B-A17B", {"tensor_parallel": 8}, 60, 262144, 8_847_360, 7_281, 465, 4_104_667),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", {}, 40, 262144, 12_877_824, 3_335, 138, 6_335_146),
        ("moonshotai/Kimi-K3", {"tensor_parallel": 8}, 40, 262144, 21_233_664, 2_022, 351, 1_510_128),
        ("XiaomiMiMo/MiMo-V2-Flash", {"tensor_parallel": 8}, 20, 131072, 92_160, 233_016, 13_357, 2_286_581),
        ("deepseek-ai/DeepSeek-V3.2", PACKED_OVER_8, 30, 131072, 3_076_352, 10_470, 256, 5_360_640),
        ("deepseek-ai/DeepSeek-V4-Flash", {}, 40, 1048576, 1_002_240, 42_853, 10_778, 4_169_106),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_golden_layouts_of_the_next_release(
    model: str,
    flags: dict[str, Any],
    available_gib: int,
    length: int,
    bytes_per_block: int,
    blocks: int,
    needed: int,
    tokens: int,
) -> None:
    """Figures that the real planner of 0.33 gave (shared reference, section 2.7)."""
    layout = plan_layout(bundled_facts(model), options(version="0.33.0", **flags))
    pool = capacity(layout, available_gib * GIB, length)
    assert (pool.bytes_per_block, pool.num_blocks) == (bytes_per_block, blocks)
    assert (pool.blocks_per_request, pool.tokens) == (needed, tokens)


def test_one_request_must_fit_beside_the_null_block() -> None:
    layout = plan_layout(read_model(LLAMA), options())
    exactly = layout.blocks_for_request(4096) * layout.bytes_per_block
    with pytest.raises(Refusal) as caught:
        capacity(layout, exactly, 4096)
    assert caught.value.reason == "kv_cache_too_small"
    assert caught.value.needed_bytes == exactly
    assert caught.value.estimated_max_model_len == 4080
    assert capacity(layout, exactly + layout.bytes_per_block, 4096).max_concurrency > 1


def test_nothing_left_is_its_own_refusal() -> None:
    layout = plan_layout(read_model(LLAMA), options())
    with pytest.raises(Refusal, match="No available memory") as caught:
        capacity(layout, 0)
    assert caught.value.reason == "no_memory_for_kv"


@pytest.mark.parametrize(
    ("label", "flags", "reason"),
    [
        ("NVIDIA-H100-80GB-HBM3", {"tensor_parallel": 3}, "heads_not_divisible"),
        ("NVIDIA-H100-80GB-HBM3", {"max_model_len": 131073}, "max_model_len_above_model"),
        ("NVIDIA-H100-80GB-HBM3", {"kv_cache_dtype": "fp9"}, "bad_flag"),
        ("NVIDIA-H100-80GB-HBM3", {"kv_cache_dtype": "float16"}, "kv_dtype_unsupported"),
        (
            "NVIDIA-A100-SXM4-80GB",
            {"kv_cache_dtype": "fp8", "attention_backend": "TRITON_ATTN"},
            "kv_dtype_unsupported",
        ),
        ("NVIDIA-H100-80GB-HBM3", {"attention_backend": "FLASHMLA"}, "bad_flag"),
        ("NVIDIA-H100-80GB-HBM3", {"pipeline_parallel": 33}, "bad_flag"),
        ("NVIDIA-H100-80GB-HBM3", {"tensor_parallel": 0}, "bad_flag"),
        ("NVIDIA-H100-80GB-HBM3", {"tensor_parallel": 8, "decode_context_parallel": 2}, "bad_flag"),
    ],
)
def test_flags_that_do_not_fit_are_refused(label: str, flags: dict[str, Any], reason: str) -> None:
    with pytest.raises(Refusal) as caught:
        plan_layout(read_model(LLAMA), options(label, **flags))
    assert caught.value.reason == reason


def test_a_limit_nobody_wrote_refuses_nothing() -> None:
    shortened = {key: value for key, value in LLAMA.items() if key != "max_position_embeddings"}
    facts = read_model(shortened)
    assert facts.limit_is_assumed
    assert plan_layout(facts, options(max_model_len=65536)).resolved.max_model_len == 65536


def test_heads_are_replicated_when_there_are_more_ranks() -> None:
    by_rank = {tp: plan_layout(read_model(LLAMA), options(tensor_parallel=tp)).bytes_per_block for tp in (1, 8, 32)}
    assert by_rank == {1: 2_097_152, 8: 262_144, 32: 262_144}


def test_context_parallel_ranks_share_the_tokens_of_a_request() -> None:
    layout = plan_layout(read_model(LLAMA), options(tensor_parallel=16, decode_context_parallel=2))
    assert layout.blocks_for_request(4096) == 128


def test_the_fullest_pipeline_stage_decides() -> None:
    facts = read_model(LLAMA | {"num_hidden_layers": 33})
    layout = plan_layout(facts, options(pipeline_parallel=2))
    assert layout.stage_bytes == (17 * 65536, 16 * 65536)
    assert layout.bytes_per_block == 17 * 65536


def test_a_pool_is_what_the_fullest_stage_holds() -> None:
    """Of 24 layers, 101 blocks fit where 303 of the other stage's 8 would; one of them is the null block."""
    layout = plan_layout(read_model(LLAMA), options(pipeline_parallel=2, layer_partition=(8, 24)))
    available = 101 * 24 * 65536
    assert capacity(layout, available, 1600).num_blocks == 101
    assert fitting_max_model_len(layout, available) == 1600
    assert fitting_max_model_len(layout, available, limit=1) == 1


def test_a_stage_that_caches_nothing_bounds_nothing() -> None:
    layout = replace(plan_layout(read_model(LLAMA), options()), stage_bytes=(65536, 0))
    assert capacity(layout, 100 * 65536, 16).num_blocks == 100


def test_no_token_fits_beside_the_null_block() -> None:
    layout = plan_layout(read_model(LLAMA), options())
    assert fitting_max_model_len(layout, layout.bytes_per_block) == 0
    with pytest.raises(Refusal) as caught:
        capacity(layout, layout.bytes_per_block + 1, 4096)
    assert caught.value.estimated_max_model_len is None
    assert "estimated" not in caught.value.message


def test_nothing_cached_is_no_pool_and_no_limit() -> None:
    layout = replace(plan_layout(read_model(LLAMA), options()), groups=(), stage_bytes=())
    assert capacity(layout, GIB, 4096) == Capacity(1, 0, 0, 0, 0.0, 4096)
    assert fitting_max_model_len(layout, GIB, 4096) == 4096


def test_blocks_of_a_flag_take_the_place_of_bytes() -> None:
    layout = plan_layout(read_model(LLAMA), options(num_blocks_override=100))
    assert capacity(layout, 0, 1024).num_blocks == 100
    assert fitting_max_model_len(layout, 0) == 99 * 16


def test_a_release_that_checked_the_whole_model_asked_for_all_stages() -> None:
    """0.15 on two unequal parts (a public start-up log): 24 GiB for 262,144 tokens, 34,736 tokens fit in 3.18 GiB."""
    facts = bundled_facts("Qwen/Qwen3-30B-A3B")
    flags: dict[str, Any] = {"pipeline_parallel": 2, "layer_partition": (16, 32), "allow_long_max_model_len": True}
    layout = plan_layout(facts, options(version="0.15.2", max_model_len=262144, **flags))
    with pytest.raises(Refusal) as caught:
        capacity(layout, int(3.18 * GIB))
    assert caught.value.needed_bytes == 24 * GIB
    assert caught.value.estimated_max_model_len == pytest.approx(34736, abs=64)


def test_turboquant_leaves_the_ends_of_a_model_alone() -> None:
    layout = plan_layout(read_model(LLAMA), options(kv_cache_dtype="turboquant_4bit_nc"))
    packed, plain = 8 * (66 + 68), 8 * 512
    assert layout.block_tokens == 64
    assert layout.bytes_per_block == layout.block_tokens * (28 * packed + 4 * plain)


def test_named_layers_keep_the_models_dtype() -> None:
    packed = plan_layout(read_model(LLAMA), options(kv_cache_dtype="fp8")).bytes_per_block / 16
    layout = plan_layout(read_model(LLAMA), options(kv_cache_dtype="fp8", kv_cache_dtype_skip_layers=("0", "31")))
    assert layout.bytes_per_block / layout.block_tokens == packed * 34 / 32


def _draft() -> ModelFacts:
    return read_model(LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1})


def test_a_draft_adds_its_layers_to_the_pool() -> None:
    plain = plan_layout(read_model(LLAMA), options())
    drafted = plan_layout(read_model(LLAMA), options(speculation=Speculation("eagle3", 3, _draft())))
    assert drafted.bytes_per_block * 32 == plain.bytes_per_block * 33


def test_a_predictor_of_its_own_adds_a_layer_and_states_for_drafts() -> None:
    facts = bundled_facts("Qwen/Qwen3.5-9B")
    layout = plan_layout(facts, options(version="0.33.0", speculation=Speculation("mtp", 1)))
    assert sorted(len(group.members) for group in layout.groups) == [8, 8, 8, 9]
    assert layout.blocks_for_request(262144) == 468


def test_more_sequences_than_state_blocks_are_refused() -> None:
    layout = plan_layout(bundled_facts("Qwen/Qwen3.5-9B"), options())
    pool = capacity(layout, 10 * GIB, 8192)
    check_sequences(layout, pool, pool.num_blocks)
    with pytest.raises(Refusal) as caught:
        check_sequences(layout, pool, pool.num_blocks + 1)
    assert caught.value.reason == "max_num_seqs_above_state_blocks"


def test_layer_specs_follow_the_layers() -> None:
    specs = layer_specs(bundled_facts("openai/gpt-oss-20b"), options())
    assert [spec.kind for spec in specs[:4]] == ["sliding", "full", "sliding", "full"]
    assert len(specs) == 24


def test_the_printed_tokens_changed_their_meaning() -> None:
    facts = bundled_facts("openai/gpt-oss-20b")
    old = capacity(plan_layout(facts, options(version="0.19.1")), 10 * GIB, 131072)
    new = capacity(plan_layout(facts, options(version="0.20.0")), 10 * GIB, 131072)
    assert old.tokens == old.num_blocks // 2 * 16
    assert new.tokens == int(new.max_concurrency * 131072)
    assert old.num_blocks == new.num_blocks
    assert old.tokens != new.tokens
