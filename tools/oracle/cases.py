"""What the oracle is asked: every kind of attention, on several GPUs, with the flags that change its cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

GIB: Final = 1 << 30
LENGTHS: Final = (4096, 32_768, 131_072)
AVAILABLE_BYTES: Final = (4 * GIB, 40 * GIB)

H100: Final = "NVIDIA H100 80GB HBM3"
B200: Final = "NVIDIA B200"
A100: Final = "NVIDIA A100-SXM4-80GB"
L4: Final = "NVIDIA L4"

Flags = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One engine: ``model`` is in the catalogue, ``extra_args`` are flags of ``vllm serve`` with underscores."""

    model: str
    device: str = H100
    tp: int = 1
    kv_cache_dtype: str = "auto"
    extra_args: Flags = field(default_factory=dict)

    def __str__(self) -> str:
        extra = " ".join(f"{name}={value}" for name, value in self.extra_args.items())
        return f"{self.model} on {self.device}, tp {self.tp}, KV {self.kv_cache_dtype} {extra}".rstrip()


_FULL: Final = "Qwen/Qwen3-4B"
_EXPERTS: Final = "Qwen/Qwen3-30B-A3B"
_WINDOW: Final = "google/gemma-3-27b-it(text)"
_SINKS: Final = "openai/gpt-oss-20b"
_CHUNKED: Final = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
_LATENT: Final = "deepseek-ai/DeepSeek-V3"
_SPARSE: Final = "deepseek-ai/DeepSeek-V3.2"
_COMPRESSED: Final = "deepseek-ai/DeepSeek-V4-Flash"
_DELTA: Final = "Qwen/Qwen3.5-9B"
_KIMI: Final = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
_MAMBA2: Final = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
_MAMBA1: Final = "ai21labs/Jamba-v0.1"
_BOTH: Final = "tiiuae/Falcon-H1-1.5B-Instruct"
_CONV: Final = "LiquidAI/LFM2-1.2B"
_SHARED: Final = "google/gemma-4-E2B-it"

# One of each kind, the name that the tables of tests/data/kv do not have first.
KINDS: Final = (
    _FULL, _EXPERTS, _WINDOW, _SINKS, _CHUNKED, _LATENT, _SPARSE, _COMPRESSED, _DELTA, _KIMI, _MAMBA2, _MAMBA1, _BOTH,
    _CONV, _SHARED, "google/gemma-2-2b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct", "XiaomiMiMo/MiMo-V2-Flash",
    "deepseek-ai/DeepSeek-V2-Lite", "moonshotai/Kimi-K3",
)  # fmt: skip
_STATES: Final = (_DELTA, _KIMI, _MAMBA2, _MAMBA1, _BOTH, _CONV)
_WINDOWS: Final = (_WINDOW, _SINKS, _SHARED)
_WITH_CPU_TWINS: Final = (_FULL, _WINDOW, _LATENT, _DELTA, _MAMBA2)

# Flags, and of whom they are asked.
_FLAGS: Final[tuple[tuple[Flags, tuple[str, ...]], ...]] = (
    ({"block_size": 64}, (_FULL, _WINDOW, _LATENT, *_STATES)),
    ({"enable_prefix_caching": False, "max_model_len": 32_768}, (_FULL, _WINDOW, _CHUNKED, *_STATES)),
    ({"max_num_batched_tokens": 2048}, (*_WINDOWS, _CHUNKED, _DELTA)),
    ({"disable_hybrid_kv_cache_manager": True}, (*_WINDOWS, _CHUNKED)),
    ({"disable_sliding_window": True}, ("google/gemma-2-2b-it", _WINDOW)),
    ({"dtype": "float16"}, (_FULL, _DELTA, _MAMBA2)),
    ({"attention_backend": "FLASHINFER"}, (_FULL, _WINDOW, _DELTA)),
    ({"attention_backend": "TRITON_ATTN"}, (_FULL, _SINKS)),
    ({"num_gpu_blocks_override": 1000}, (_FULL, _WINDOW, _DELTA)),
    ({"mamba_ssm_cache_dtype": "float32"}, (_DELTA, _MAMBA1, _BOTH)),
    ({"mamba_ssm_cache_dtype": "bfloat16"}, (_DELTA, _MAMBA2)),
    ({"mamba_cache_dtype": "float32"}, (_DELTA, _CONV)),
    ({"gdn_prefill_backend": "triton"}, (_DELTA,)),
    ({"enable_chunked_prefill": False, "max_model_len": 8192}, (_WINDOW, _SINKS)),
    ({"language_model_only": True}, (_DELTA, _CHUNKED, _SHARED)),
    ({"max_num_seqs": 16}, (_DELTA, _WINDOW)),
    ({"async_scheduling": False}, (_WINDOW, _DELTA)),
    ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}}, (_FULL, _WINDOW, _DELTA, _MAMBA2)),
    ({"pipeline_parallel_size": 2}, (_FULL, _WINDOW, _SINKS, _LATENT, _DELTA, _MAMBA2, _CONV)),
    ({"kv_cache_dtype_skip_layers": ["0", "1"]}, (_FULL,)),
)  # fmt: skip
_DTYPES: Final = {
    "fp8_e5m2": (_FULL, _WINDOW), "int8_per_token_head": (_FULL, _DELTA), "fp8_per_token_head": (_FULL,),
    "bfloat16": (_FULL, _SPARSE), "fp8_ds_mla": (_SPARSE,),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of the committed table, in its order."""
    for model in KINDS:
        for tp in (1, 2, 8):
            yield Case(model, tp=tp)
        yield Case(model, kv_cache_dtype="fp8")
        yield Case(model, tp=8, kv_cache_dtype="fp8")
    for model in (_FULL, _WINDOW, _SINKS, _LATENT, _SPARSE, _DELTA, _MAMBA2):
        yield from (Case(model, device=device, kv_cache_dtype=dtype) for device, dtype in _ELSEWHERE)
    for flags, models in _FLAGS:
        yield from (Case(model, extra_args=flags) for model in models)
        if "pipeline_parallel_size" in flags:
            yield from (Case(model, tp=2, kv_cache_dtype="fp8", extra_args=flags) for model in models)
    for dtype, models in _DTYPES.items():
        yield from (Case(model, kv_cache_dtype=dtype) for model in models)
    yield from _context_parallel()


_ELSEWHERE: Final = ((B200, "auto"), (B200, "fp8"), (B200, "nvfp4"), (A100, "auto"), (A100, "fp8"), (L4, "fp8"))


def _context_parallel() -> Iterator[Case]:
    """Ranks that share the tokens of a request, where heads are fewer than ranks."""
    asked: Iterable[tuple[str, int, int]] = ((_LATENT, 8, 8), (_LATENT, 8, 2), (_FULL, 16, 2), (_SPARSE, 8, 4))
    yield from (Case(model, tp=tp, extra_args={"decode_context_parallel_size": size}) for model, tp, size in asked)
    yield Case(_SPARSE, tp=8, kv_cache_dtype="fp8", extra_args={"decode_context_parallel_size": 4})
