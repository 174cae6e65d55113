"""Bytes of K and V, of latents and of rings, worked out from what a cache dtype packs."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv.choices import choose, unpacked_layers
from plimsoll.core.kv.compressed import compressed_specs
from plimsoll.core.kv.dtypes import head_bytes, latent_bytes
from plimsoll.core.kv.kv_dtype import resolve_kv_dtype
from plimsoll.core.kv.layers import rank_heads, specs_by_layer
from plimsoll.core.kv.options import Speculation
from plimsoll.facts.models import (
    Cache,
    CompressedAttention,
    ConvolutionWindow,
    CrossAttention,
    Layer,
    RingBuffer,
    read_model,
)
from tests.unit.core.kv.test_layouts import LLAMA, options


@pytest.mark.parametrize(
    ("kv_dtype", "model_dtype", "dims", "nbytes"),
    [
        pytest.param("auto", "bfloat16", (128, 64), 192 * 2, id="K and V of different widths"),
        pytest.param("auto", "float32", (128, 128), 256 * 4, id="the model's own"),
        pytest.param("bfloat16", "float32", (128, 128), 256 * 2, id="a float of the flag's"),
        pytest.param("fp8", "bfloat16", (128, 64), 192, id="one byte"),
        pytest.param("fp8_per_token_head", "bfloat16", (128, 64), 192 + 2 * 4, id="one byte and two scales"),
        pytest.param("int4_per_token_head", "bfloat16", (128, 64), 96 + 2 * 4, id="half a byte and two scales"),
        pytest.param("nvfp4", "bfloat16", (128, 128), 2 * (64 + 8), id="half a byte, a scale of a byte for 16"),
        pytest.param("turboquant_k8v4", "bfloat16", (128, 128), 128 + 64 + 4, id="keys of 8 bits have no norm"),
        pytest.param("turboquant_4bit_nc", "bfloat16", (128, 128), 64 + 2 + 64 + 4, id="norms beside both"),
        pytest.param("turboquant_k3v4_nc", "bfloat16", (20, 20), 8 + 2 + 10 + 4, id="60 bits are 8 bytes"),
        pytest.param("turboquant_3bit_nc", "bfloat16", (6, 6), 3 + 2 + 3 + 4, id="an even number"),
        pytest.param("turboquant_k8v4", "bfloat16", (7, 7), 7 + 4 + 4 + 1, id="made even"),
    ],
)
def test_bytes_of_a_token_in_one_head(kv_dtype: str, model_dtype: str, dims: tuple[int, int], nbytes: int) -> None:
    assert head_bytes(kv_dtype, model_dtype, *dims) == nbytes


def test_a_kernel_without_scales_keeps_none() -> None:
    assert head_bytes("fp8_per_token_head", "bfloat16", 128, 128, scales=False) == 256


@pytest.mark.parametrize(
    ("kv_dtype", "nbytes"), [("fp8_ds_mla", 656), ("nvfp4_ds_mla", 352), ("auto", 1152), ("fp8", 576)]
)
def test_bytes_of_a_latent(kv_dtype: str, nbytes: int) -> None:
    assert latent_bytes(kv_dtype, "bfloat16", 576) == nbytes


@pytest.mark.parametrize(("kv_heads", "ranks", "heads"), [(8, 1, 8), (8, 4, 2), (8, 8, 1), (8, 16, 1), (4, 8, 1)])
def test_heads_of_a_rank(kv_heads: int, ranks: int, heads: int) -> None:
    assert rank_heads(kv_heads, ranks) == heads


def _spec_of(cache: Cache, **flags: Any) -> tuple[object, ...]:
    """Kind, tokens of a block, bytes of a block, window."""
    facts, asked = read_model(LLAMA), options(**flags)
    ((spec,),) = specs_by_layer(facts, [Layer((cache,))], asked, choose(facts, asked))
    return spec.kind, spec.block_tokens, spec.page_bytes, spec.window_tokens


@pytest.mark.parametrize(
    ("drafts", "power_of_two", "tokens"),
    [
        pytest.param(0, False, 4, id="one group"),
        pytest.param(1, False, 8, id="a draft token opens another group"),
        pytest.param(4, False, 8, id="a group of drafts"),
        pytest.param(8, False, 12, id="two groups of drafts"),
        pytest.param(8, True, 16, id="rounded up to four groups"),
        pytest.param(4, True, 8, id="two groups are a power of two"),
        pytest.param(0, True, 4, id="one is too"),
    ],
)
def test_a_ring_holds_the_open_group_and_a_steps_drafts(drafts: int, power_of_two: bool, tokens: int) -> None:
    speculation = Speculation("ngram", drafts) if drafts else None
    found = _spec_of(RingBuffer(4, 10, power_of_two), speculation=speculation)
    assert found == ("ring", tokens, tokens * 10, 0)


def test_a_convolution_keeps_its_kernel() -> None:
    found = _spec_of(ConvolutionWindow(heads=8, head_elements=6, kernel_tokens=4), tensor_parallel=2)
    assert found == ("sliding", 4, 4 * 4 * 6 * 2, 4)


def test_cross_attention_keeps_heads_of_one_width() -> None:
    found = _spec_of(CrossAttention(8, 8, 64, encoder_tokens=1500), tensor_parallel=2)
    assert found == ("cross", 16, 16 * 4 * 2 * 64 * 2, 0)


@pytest.mark.parametrize(
    ("drafts", "rows"), [(0, 8), (5, 8), (6, 8), (7, 16), (14, 16), (15, 32)]
)  # one more than the drafts, in a power of two rows that is larger
def test_the_ring_of_a_compressor_is_a_power_of_two(drafts: int, rows: int) -> None:
    cache = CompressedAttention("v41", head_dim=512, window_tokens=128, ratio=4, owns_keys=True)
    asked = options(speculation=Speculation("mtp", drafts) if drafts else None)
    ring = compressed_specs(cache, asked, "fp8_ds_mla")[-1]
    assert (ring.kind, ring.block_tokens, ring.page_bytes) == ("ring", rows, rows * 2 * 512 * 4)


@pytest.mark.parametrize(
    ("cache", "kinds"),
    [
        pytest.param(CompressedAttention("v4", 512, 128, 0, owns_keys=True), 1, id="a window only"),
        pytest.param(CompressedAttention("v4", 512, 128, 4, owns_keys=False), 1, id="it reads an earlier layer's keys"),
        pytest.param(CompressedAttention("v4", 512, 128, 128, owns_keys=True), 3, id="pooled, and open groups"),
        pytest.param(CompressedAttention("v4", 512, 128, 4, owns_keys=True, indexer_dim=128), 5, id="and an indexer"),
        pytest.param(CompressedAttention("v41", 512, 128, 1, owns_keys=True), 2, id="nothing to pool at ratio 1"),
    ],
)  # fmt: skip
def test_caches_of_a_compressed_layer(cache: CompressedAttention, kinds: int) -> None:
    assert len(compressed_specs(cache, options(), "fp8_ds_mla")) == kinds


def test_a_compressors_window_overlaps_at_ratio_four() -> None:
    """Keys and scores in float32: two groups of 4 in blocks of 4, one of 128 in blocks of 8, in units of 576 bytes."""
    four, many = (
        compressed_specs(CompressedAttention("v4", 512, 128, ratio, owns_keys=True), options(), "fp8_ds_mla")[-1]
        for ratio in (4, 128)
    )
    assert (four.block_tokens, four.window_tokens, four.page_bytes) == (4, 8, -(-4 * 2 * 2 * 512 * 4 // 576) * 576)
    assert (many.block_tokens, many.window_tokens, many.page_bytes) == (8, 128, -(-8 * 2 * 512 * 4 // 576) * 576)


@pytest.mark.parametrize(
    ("layers", "dtype", "named", "plain"),
    [
        pytest.param(32, "turboquant_4bit_nc", (), {0, 1, 30, 31}, id="two at either end"),
        pytest.param(4, "turboquant_4bit_nc", (), {0, 1, 2, 3}, id="all of four"),
        pytest.param(3, "turboquant_4bit_nc", (), {0, 2}, id="one at either end of three"),
        pytest.param(4, "fp8", (), set(), id="none where nothing is packed that far"),
        pytest.param(4, "fp8", ("1",), {1}, id="those that are named"),
        pytest.param(4, "auto", ("1",), set(), id="nothing to leave alone"),
    ],
)
def test_layers_that_keep_the_models_dtype(layers: int, dtype: str, named: tuple[str, ...], plain: set[int]) -> None:
    facts = read_model(LLAMA | {"num_hidden_layers": layers})
    assert unpacked_layers(facts, options(kv_cache_dtype_skip_layers=named), dtype) == plain


@pytest.mark.parametrize(
    ("architecture", "asked", "dtype"),
    [
        ("LlamaForCausalLM", "bfloat16", "bfloat16"),
        ("DeepseekV32ForCausalLM", "bfloat16", "auto"),
        ("DeepseekV32ForCausalLM", "fp8", "fp8"),
        ("LlamaForCausalLM", "auto", "auto"),
    ],
)
def test_the_dtype_that_kernels_are_asked_for(architecture: str, asked: str, dtype: str) -> None:
    facts = replace(read_model(LLAMA), architecture=architecture)
    assert resolve_kv_dtype(facts, options(kv_cache_dtype=asked), "bfloat16") == dtype
