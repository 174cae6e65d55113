"""The cache dtype in effect: what was asked, what the checkpoint declares, what family and kernel make of it.

Source: vLLM 0.32 ``utils/torch_utils.py resolve_kv_cache_dtype_string``, ``models/config.py``,
``layers/attention/mla_attention.py _canonicalize_sparse_mla_kv_cache_dtype``.
"""

from collections.abc import Sequence

from plimsoll.core.kv.dtypes import AUTO, FP8, KNOWN, NVFP4, quantised
from plimsoll.core.kv.kernels import FLASHINFER_MLA_SPARSE_SM120, FLASHMLA_SPARSE, Kernel
from plimsoll.core.kv.options import BLACKWELL, EngineOptions
from plimsoll.core.kv.refusals import BAD_FLAG, KV_DTYPE_UNSUPPORTED, Refusal
from plimsoll.facts.models import CompressedAttention, ModelFacts

_FP8_WEIGHTS = frozenset({"fp8", "modelopt", "fbgemm_fp8", "deepseek_v4_fp8"})


def resolve_kv_dtype(facts: ModelFacts, options: EngineOptions, model_dtype: str) -> str:
    """The dtype kernels are asked for.

    Raises:
        Refusal: no such dtype, or one this model cannot use.
    """
    asked = options.kv_cache_dtype
    if asked not in KNOWN:
        raise Refusal(BAD_FLAG, f"kv_cache_dtype {asked!r} is not one of {sorted(KNOWN)}.")
    _check(asked, facts, model_dtype)
    if _generation(facts) is not None:
        return _compressed(asked, facts, options)
    if asked == "bfloat16" and facts.architecture == "DeepseekV32ForCausalLM":
        return AUTO
    if asked != AUTO:
        return asked
    if facts.quantisation.kv_cache_dtype is not None:
        return facts.quantisation.kv_cache_dtype
    if facts.architecture == "GlmMoeDsaForCausalLM" and options.generation == BLACKWELL:
        return "fp8_e4m3"
    return AUTO


def _check(asked: str, facts: ModelFacts, model_dtype: str) -> None:
    if asked in {"float16", "bfloat16"} and asked != model_dtype:
        raise Refusal(KV_DTYPE_UNSUPPORTED, f"kv_cache_dtype {asked} must equal the model dtype {model_dtype}.")
    if asked == "fp8_e5m2" and facts.quantisation.method in _FP8_WEIGHTS:
        raise Refusal(KV_DTYPE_UNSUPPORTED, "fp8_e5m2 kv-cache is not supported with fp8 checkpoints.")
    if asked in NVFP4 and facts.uses_latent_attention:
        raise Refusal(KV_DTYPE_UNSUPPORTED, f"kv_cache_dtype {asked} is not supported with MLA models.")


def _compressed(asked: str, facts: ModelFacts, options: EngineOptions) -> str:
    """DeepSeek V4 packs latents; V4.1 packs them in four bits on datacentre Blackwell."""
    if asked not in FP8 and asked != AUTO:
        return asked
    return "nvfp4_ds_mla" if options.generation == BLACKWELL and _generation(facts) == "v41" else "fp8_ds_mla"


def _generation(facts: ModelFacts) -> str | None:
    return next((cache.generation for cache in facts.caches if isinstance(cache, CompressedAttention)), None)


def stored_dtype(asked: str, chosen: Sequence[Kernel]) -> str:
    """What the chosen kernels make of the dtype: sparse MLA packs its rows."""
    if FLASHMLA_SPARSE in chosen and quantised(asked) and asked != "nvfp4_ds_mla":
        return "fp8_ds_mla"
    if FLASHINFER_MLA_SPARSE_SM120 in chosen and asked in {AUTO, "fp8", "fp8_e4m3"}:
        return "fp8_ds_mla"
    return asked
