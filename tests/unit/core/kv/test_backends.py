"""Which attention kernel is picked: vLLM's order of preference, and what each kernel was written for."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv import Refusal
from plimsoll.core.kv.backends import common_block, indexer_kernel, latent_kernel, softmax_kernel
from plimsoll.core.kv.kernels import (
    CPU_ATTN,
    CPU_MLA,
    CUTLASS_MLA,
    FIXED,
    FLASH_ATTN,
    FLASHINFER,
    FLASHINFER_LARGE,
    FLASHMLA,
    ROCM_INDEXER,
    Kernel,
)
from plimsoll.facts.models import IndexerKeys, LatentAttention, SoftmaxAttention, read_model
from tests.unit.core.kv.test_layouts import LLAMA, options

HOPPER, BLACKWELL, WORKSTATION = "NVIDIA-H100-80GB-HBM3", "NVIDIA-B200", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"
ADA, AMPERE, TURING, AMD = "NVIDIA-L40S", "NVIDIA-A100-SXM4-80GB", "Tesla-T4", "AMD_Instinct_MI300X_OAM"
FACTS = read_model(LLAMA)


def _softmax(label: str, dim: int = 128, kv_dtype: str = "auto", *, sinks: bool = False, **flags: Any) -> str:
    facts = replace(FACTS, prefix_lm=flags.pop("prefix_lm", False))
    try:
        return softmax_kernel(
            SoftmaxAttention(32, 8, dim, dim, sinks=sinks), facts, options(label, **flags), kv_dtype
        ).name
    except Refusal as refusal:
        return refusal.reason


@pytest.mark.parametrize(
    ("label", "dim", "kv_dtype", "flags", "kernel"),
    [
        pytest.param(HOPPER, 128, "auto", {}, "FLASH_ATTN", id="FlashAttention first"),
        pytest.param(BLACKWELL, 128, "auto", {}, "FLASHINFER", id="but on datacentre Blackwell"),
        pytest.param(WORKSTATION, 128, "auto", {}, "FLASH_ATTN", id="and not on a workstation's"),
        pytest.param(TURING, 128, "auto", {}, "TRITON_ATTN", id="neither before Ampere"),
        pytest.param(AMPERE, 256, "auto", {}, "FLASH_ATTN", id="heads up to 256"),
        pytest.param(AMPERE, 264, "auto", {}, "TRITON_ATTN", id="not above, nor FlashInfer's"),
        pytest.param(AMPERE, 512, "auto", {}, "FLASHINFER", id="512 are FlashInfer's"),
        pytest.param(AMPERE, 100, "auto", {}, "TRITON_ATTN", id="no multiple of eight"),
        pytest.param(TURING, 16, "auto", {}, "FLEX_ATTENTION", id="heads below 32 are too small for Triton"),
        pytest.param(TURING, 32, "auto", {}, "TRITON_ATTN", id="32 are not"),
        pytest.param(HOPPER, 128, "fp8", {}, "FLASH_ATTN", id="FlashAttention reads fp8 on Hopper"),
        pytest.param(ADA, 128, "fp8", {}, "FLASHINFER", id="FlashInfer elsewhere"),
        pytest.param(ADA, 96, "fp8", {}, "TRITON_ATTN", id="Triton for its other heads"),
        pytest.param(AMPERE, 96, "fp8", {}, "kv_dtype_unsupported", id="not before compute capability 8.9"),
        pytest.param(AMPERE, 96, "int8_per_token_head", {}, "TRITON_ATTN", id="which int8 does not need"),
        pytest.param(HOPPER, 128, "auto", {"sinks": True}, "FLASH_ATTN", id="sinks on Hopper"),
        pytest.param(ADA, 128, "auto", {"sinks": True}, "TRITON_ATTN", id="sinks before it"),
        pytest.param(BLACKWELL, 128, "auto", {"sinks": True}, "FLASHINFER", id="sinks on Blackwell"),
        pytest.param(WORKSTATION, 128, "auto", {"sinks": True}, "FLASHINFER", id="sinks on a workstation"),
        pytest.param(BLACKWELL, 64, "nvfp4", {"sinks": True}, "FLASHINFER", id="four bits are native there"),
        pytest.param(BLACKWELL, 128, "nvfp4_4over6", {}, "FLASHINFER", id="in both spellings"),
        pytest.param(HOPPER, 128, "nvfp4", {}, "FLASHINFER", id="and read elsewhere"),
        pytest.param(HOPPER, 128, "nvfp4_4over6", {}, "no_attention_backend", id="in one spelling"),
        pytest.param(HOPPER, 64, "nvfp4", {}, "no_attention_backend", id="but for heads of 64"),
        pytest.param(HOPPER, 128, "nvfp4", {"sinks": True}, "no_attention_backend", id="without sinks"),
        pytest.param(HOPPER, 128, "auto", {"prefix_lm": True}, "TRITON_ATTN", id="images that look both ways"),
        pytest.param(HOPPER, 128, "auto", {"prefix_lm": True, "text_only": True}, "FLASH_ATTN", id="text does not"),
        pytest.param(BLACKWELL, 128, "auto", {"prefix_lm": True}, "TRITON_ATTN", id="nor FlashInfer"),
        pytest.param(BLACKWELL, 128, "auto", {"block_size": 24}, "no_attention_backend", id="a block nobody takes"),
        pytest.param(ADA, 128, "turboquant_4bit_nc", {}, "TURBOQUANT", id="packed keys have their own"),
        pytest.param(HOPPER, 128, "auto", {"attention_backend": "flashinfer"}, "FLASHINFER", id="as asked"),
        pytest.param(TURING, 128, "auto", {"attention_backend": "FLASH_ATTN"}, "no_attention_backend", id="in vain"),
    ],
)  # fmt: skip
def test_the_kernel_of_a_softmax_layer(label: str, dim: int, kv_dtype: str, flags: dict[str, Any], kernel: str) -> None:
    assert _softmax(label, dim, kv_dtype, **flags) == kernel


@pytest.mark.parametrize(
    ("label", "kv_heads", "flags", "kernel"),
    [
        pytest.param(BLACKWELL, 8, {}, FLASHINFER_LARGE, id="grouped queries"),
        pytest.param(BLACKWELL, 32, {}, FLASHINFER, id="a query head for each KV head"),
        pytest.param(BLACKWELL, 8, {"tensor_parallel": 32}, FLASHINFER, id="one of each on a rank"),
        pytest.param(BLACKWELL, 8, {"tensor_parallel": 16}, FLASHINFER_LARGE, id="two of a replicated one"),
        pytest.param(HOPPER, 8, {}, FLASHINFER, id="not before Blackwell"),
    ],
)
def test_flashinfer_takes_large_blocks_on_blackwell(
    label: str, kv_heads: int, flags: dict[str, Any], kernel: Kernel
) -> None:
    facts = read_model(LLAMA | {"num_key_value_heads": kv_heads})
    asked = options(label, attention_backend="FLASHINFER", **flags)  # a kernel is the same whoever chose it
    assert softmax_kernel(SoftmaxAttention(32, kv_heads, 128, 128), facts, asked, "auto") is kernel


DENSE = LatentAttention(128, 512, 64, 128, 128)
SPARSE = replace(DENSE, sparse=True)
ROPELESS = replace(SPARSE, rope_dim=0, nope_dim=256)


def _latent(label: str, latent: LatentAttention, kv_dtype: str = "auto", **flags: Any) -> str:
    facts = replace(FACTS, raw={"index_topk": 2048} if flags.pop("indexed", True) else {})
    try:
        return latent_kernel(latent, facts, options(label, **flags), kv_dtype).name
    except Refusal as refusal:
        return refusal.reason


@pytest.mark.parametrize(
    ("label", "latent", "kv_dtype", "flags", "kernel"),
    [
        pytest.param(HOPPER, DENSE, "auto", {}, "FLASH_ATTN_MLA", id="Hopper"),
        pytest.param(HOPPER, DENSE, "auto", {"version": "0.18.0"}, "FLASHMLA", id="Hopper before 0.19"),
        pytest.param(HOPPER, DENSE, "fp8", {}, "FLASHMLA", id="Hopper with fp8"),
        pytest.param(BLACKWELL, DENSE, "auto", {}, "FLASHINFER_MLA", id="Blackwell"),
        pytest.param(BLACKWELL, replace(DENSE, nope_dim=100), "auto", {"block_size": 128}, "CUTLASS_MLA", id="others"),
        pytest.param(BLACKWELL, replace(DENSE, nope_dim=64), "auto", {}, "FLASHINFER_MLA", id="heads of 64"),
        pytest.param(BLACKWELL, replace(DENSE, nope_dim=64), "auto", {"version": "0.18.0"}, "CUTLASS_MLA", id="then"),
        pytest.param(BLACKWELL, DENSE, "auto", {"version": "0.18.0"}, "FLASHINFER_MLA", id="DeepSeek's always"),
        pytest.param(BLACKWELL, DENSE, "auto", {"block_size": 16}, "TRITON_MLA", id="a block that others do not take"),
        pytest.param(ADA, DENSE, "auto", {}, "TRITON_MLA", id="Ada"),
        pytest.param(ADA, DENSE, "fp8", {}, "TRITON_MLA", id="Ada with fp8"),
        pytest.param(AMPERE, DENSE, "fp8", {}, "kv_dtype_unsupported", id="Ampere with fp8"),
        pytest.param(AMD, DENSE, "auto", {}, "TRITON_MLA", id="AMD"),
        pytest.param(AMD, DENSE, "auto", {"block_size": 1}, "ROCM_AITER_MLA", id="AMD with blocks of one"),
        pytest.param(ADA, DENSE, "auto", {"block_size": 1}, "no_attention_backend", id="which others lack"),
        pytest.param(AMD, SPARSE, "auto", {}, "ROCM_AITER_MLA_SPARSE", id="sparse on AMD"),
        pytest.param(WORKSTATION, SPARSE, "auto", {}, "FLASHINFER_MLA_SPARSE_SM120", id="sparse on a workstation"),
        pytest.param(ADA, SPARSE, "auto", {}, "no_attention_backend", id="nobody's on Ada"),
        pytest.param(BLACKWELL, SPARSE, "auto", {"tensor_parallel": 8}, "FLASHINFER_MLA_SPARSE", id="16 heads are few"),
        pytest.param(BLACKWELL, SPARSE, "auto", {"tensor_parallel": 4}, "FLASHMLA_SPARSE", id="32 are not"),
        pytest.param(BLACKWELL, SPARSE, "fp8", {"tensor_parallel": 4}, "FLASHINFER_MLA_SPARSE", id="with fp8 either"),
        pytest.param(BLACKWELL, replace(SPARSE, nope_dim=64), "auto", {"tensor_parallel": 8}, "FLASHMLA_SPARSE",
                     id="heads it was not written for"),
        pytest.param(BLACKWELL, replace(SPARSE, nope_dim=192), "auto", {"tensor_parallel": 8},
                     "FLASHINFER_MLA_SPARSE", id="heads of 192"),
        pytest.param(BLACKWELL, ROPELESS, "auto", {"tensor_parallel": 8}, "FLASHINFER_MLA_SPARSE", id="no rope"),
        pytest.param(BLACKWELL, replace(ROPELESS, nope_dim=128), "auto", {}, "no_attention_backend", id="no others do"),
        pytest.param(HOPPER, SPARSE, "auto", {}, "FLASH_ATTN_MLA_SPARSE", id="an indexer on Hopper"),
        pytest.param(HOPPER, SPARSE, "auto", {"indexed": False}, "FLASHMLA_SPARSE", id="no indexer"),
        pytest.param(HOPPER, SPARSE, "fp8", {}, "FLASHMLA_SPARSE", id="fp8 on Hopper"),
        pytest.param(HOPPER, ROPELESS, "auto", {}, "FLASHINFER_MLA_SPARSE_SM90", id="no rope on Hopper"),
        pytest.param(HOPPER, ROPELESS, "float16", {"indexed": False}, "no_attention_backend", id="float16 on Hopper"),
        pytest.param(HOPPER, SPARSE, "fp8_ds_mla", {"tensor_parallel": 8, "decode_context_parallel": 8},
                     "FLASHMLA_SPARSE", id="packed over several ranks"),
        pytest.param(HOPPER, SPARSE, "auto", {"tensor_parallel": 8, "decode_context_parallel": 8},
                     "kv_dtype_unsupported", id="which plain rows cannot be"),
        pytest.param(HOPPER, replace(SPARSE, latent_dim=448), "auto", {}, "FLASH_ATTN_MLA_SPARSE", id="448 and 64"),
        pytest.param(HOPPER, SPARSE, "auto", {"attention_backend": "FLASHMLA"}, "bad_flag", id="not sparse"),
    ],
)  # fmt: skip
def test_the_kernel_of_a_latent_layer(
    label: str, latent: LatentAttention, kv_dtype: str, flags: dict[str, Any], kernel: str
) -> None:
    assert _latent(label, latent, kv_dtype, **flags) == kernel


@pytest.mark.parametrize(
    ("kernels", "block"),
    [
        pytest.param([FLASH_ATTN, FLASH_ATTN], 16, id="sixteen tokens"),
        pytest.param([FLASHMLA], 64, id="the smallest it takes"),
        pytest.param([CPU_ATTN], 128, id="the one it prefers"),
        pytest.param([FLASH_ATTN, FLASHINFER], 16, id="sixteen for both"),
        pytest.param([FLASH_ATTN, FLASHMLA], 64, id="the smallest for both"),
        pytest.param([FLASHMLA, CUTLASS_MLA], 128, id="a multiple for one"),
    ],
)
def test_the_block_that_kernels_agree_on(kernels: list[Kernel], block: int) -> None:
    assert common_block(kernels) == block


def test_kernels_may_agree_on_none() -> None:
    with pytest.raises(Refusal, match="share no supported KV cache block size"):
        common_block([CPU_MLA, FLASHMLA])


def test_pooled_keys_need_whole_blocks_of_them() -> None:
    pooled = indexer_kernel(IndexerKeys(132, tokens_per_key=4), options())
    assert (pooled.blocks, pooled.multiples) == ((128, 256), False)
    assert indexer_kernel(IndexerKeys(132), options()) is FIXED["DEEPSEEK_V32_INDEXER"]
    assert indexer_kernel(IndexerKeys(132, 4, "QWEN4_QSA"), options()) is FIXED["QWEN4_QSA"]
    assert indexer_kernel(IndexerKeys(132, tokens_per_key=4), options(AMD)) is ROCM_INDEXER
