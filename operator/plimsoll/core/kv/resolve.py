"""What vLLM decides about flags that were left open, and the sizes it refuses before it loads anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.core.kv.options import EngineOptions
from plimsoll.core.kv.refusals import (
    BAD_FLAG,
    HEADS_NOT_DIVISIBLE,
    KV_DTYPE_UNSUPPORTED,
    MAX_MODEL_LEN_ABOVE_MODEL,
    NO_ATTENTION_BACKEND,
    Refusal,
)
from plimsoll.facts.engines import batch_defaults, prefix_caching_of_state_models
from plimsoll.facts.models import ModelFacts

# MLA on a CPU prefills a prompt in one piece and finds nothing again (vLLM 0.32 ``platforms/cpu.py``).
_WHOLE_PREFILL_TOKENS: Final = 2048
# --max-model-len -1: the longest that fits.
_AUTO_FIT: Final = -1
_COUNTS: Final = (
    "tensor_parallel",
    "pipeline_parallel",
    "decode_context_parallel",
    "block_size",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "mamba_block_size",
    "num_blocks_override",
)
_CHUNKS_ALLOWED: Final = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"
_DTYPE_ALIASES: Final[Mapping[str, str]] = {"half": "float16", "float": "float32"}
_NO_FLOAT16: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})


@dataclass(frozen=True, slots=True)
class Resolved:
    """Flags after vLLM filled in what was left open for one model."""

    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_caching: bool
    in_flight_tokens: int
    hybrid_manager: bool
    dtype: str
    retained_tokens: int


def resolve(facts: ModelFacts, options: EngineOptions) -> Resolved:
    """What vLLM decides about the flags that were left open.

    Raises:
        Refusal: the context is above the model's limit, or heads do not divide.
    """
    _check_sizes(options)
    check_parallel(facts, options)
    if options.on_cpu:
        _check_cpu(facts, options)
    max_model_len = resolve_max_model_len(facts, options)
    batched_tokens, seqs = resolve_batch(options, max_model_len)
    if options.on_cpu and facts.uses_latent_attention:
        batched_tokens = max(max_model_len, _WHOLE_PREFILL_TOKENS)
    return Resolved(
        max_model_len=max_model_len,
        max_num_batched_tokens=batched_tokens,
        max_num_seqs=seqs,
        prefix_caching=_prefix_caching(facts, options),
        in_flight_tokens=_concurrent_batches(options) * batched_tokens,
        hybrid_manager=_hybrid_manager(facts, options),
        dtype=_dtype(facts, options),
        retained_tokens=_retained_tokens(facts, options),
    )


def _check_sizes(options: EngineOptions) -> None:
    """Numbers that must be whole and at least 1."""
    for name in _COUNTS:
        value = getattr(options, name)
        if value is not None and value < 1 and (name, value) != ("max_model_len", _AUTO_FIT):
            raise Refusal(BAD_FLAG, f"{name} must be at least 1, not {value}.")


def _check_cpu(facts: ModelFacts, options: EngineOptions) -> None:
    """What older CPU builds could not run (``data/engines``: recorded refusals of 0.11.0 to 0.28.0)."""
    if facts.uses_latent_attention and not options.version.at_least(29):
        raise Refusal(NO_ATTENTION_BACKEND, "MLA is not supported on CPU.")
    if options.kv_cache_dtype not in {"auto", "float16", "bfloat16"} and not options.version.at_least(20):
        raise Refusal(KV_DTYPE_UNSUPPORTED, "FP8 KV cache does not work with chunked prefill on the CPU backend.")
    if facts.has_state and facts.has_attention and not options.version.at_least(12):
        raise Refusal(NO_ATTENTION_BACKEND, "Models with recurrent state are not supported on CPU.")
    if facts.has_state and facts.has_attention and options.version.at_least(17) and not options.version.at_least(20):
        raise Refusal(BAD_FLAG, "The CPU backend of this release cannot make state and attention pages equal.")
    if facts.window_tokens and not options.version.at_least(12):
        raise Refusal(NO_ATTENTION_BACKEND, "Sliding-window attention is not supported on CPU.")


def check_parallel(facts: ModelFacts, options: EngineOptions) -> None:
    """Refuse sizes that do not divide the model.

    Source: vLLM 0.32 ``config/model.py verify_with_parallel_config`` and the assertions of attention classes.
    """
    tensor_parallel, heads, kv_heads = options.tensor_parallel, facts.dims.query_heads, facts.dims.kv_heads
    if heads % tensor_parallel:
        raise Refusal(
            HEADS_NOT_DIVISIBLE,
            f"Total number of attention heads ({heads}) must be divisible by tensor parallel size ({tensor_parallel}).",
        )
    if tensor_parallel % options.decode_context_parallel:
        raise Refusal(
            BAD_FLAG,
            f"tensor_parallel_size {tensor_parallel} must be divisible by decode_context_parallel_size "
            f"{options.decode_context_parallel}.",
        )
    if facts.uses_latent_attention or not facts.has_attention:
        return
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise Refusal(
            HEADS_NOT_DIVISIBLE,
            f"{kv_heads} KV heads neither divide nor are divided by tensor parallel size {tensor_parallel}.",
        )
    _check_context_parallel(options.decode_context_parallel, tensor_parallel, heads, kv_heads)


def _check_context_parallel(context_parallel: int, tensor_parallel: int, heads: int, kv_heads: int) -> None:
    if context_parallel == 1:
        return
    if tensor_parallel <= kv_heads or context_parallel > tensor_parallel // kv_heads:
        raise Refusal(
            BAD_FLAG,
            f"decode_context_parallel_size {context_parallel} needs tensor parallel size above the {kv_heads} KV heads "
            f"by that factor, not {tensor_parallel}.",
        )
    if heads // kv_heads % context_parallel:
        raise Refusal(
            BAD_FLAG,
            f"{heads // kv_heads} query heads a KV head do not divide by decode_context_parallel_size "
            f"{context_parallel}.",
        )


def resolve_max_model_len(facts: ModelFacts, options: EngineOptions) -> int:
    """Context length: as asked, else the model's own, LongRoPE models starting at their original length.

    A limit that the file does not write is no ground to refuse: the checkpoint's own file will know a longer one.
    """
    limit = facts.max_model_len
    if options.disable_sliding_window and facts.window_tokens is not None:
        limit = min(limit, facts.window_tokens)
    wanted = options.max_model_len
    if wanted is None or wanted == _AUTO_FIT:
        return min(facts.original_max_positions or limit, limit)
    if wanted > limit and not (options.allow_long_max_model_len or facts.limit_is_assumed):
        raise Refusal(
            MAX_MODEL_LEN_ABOVE_MODEL,
            f"User-specified max_model_len ({wanted}) is greater than the derived max_model_len ({limit}).",
        )
    return wanted


def resolve_batch(options: EngineOptions, max_model_len: int) -> tuple[int, int]:
    """Tokens and sequences of one step.

    Source: vLLM 0.32 ``engine/arg_utils.py _set_default_max_num_seqs_and_batched_tokens_args``.
    """
    world = options.tensor_parallel * options.pipeline_parallel
    defaults = batch_defaults(options.version, options.device, world_size=world, offline=options.offline)
    seqs = options.max_num_seqs or defaults.max_num_seqs
    tokens = options.max_num_batched_tokens
    if tokens is None:
        tokens = defaults.max_num_batched_tokens
        if options.enable_chunked_prefill is False:
            tokens = max(tokens, max_model_len)
        tokens = min(seqs * max_model_len, tokens)
    if options.max_num_seqs is None:
        seqs = min(seqs, tokens)
    return tokens, seqs


def _prefix_caching(facts: ModelFacts, options: EngineOptions) -> bool:
    """On for decoders and, from 0.28, for hybrids; off where nothing could be found again."""
    if not facts.has_attention or facts.has_encoder or (options.on_cpu and facts.uses_latent_attention):
        return False
    if facts.has_state and not _caches_state(facts, options):
        return False
    if options.enable_prefix_caching is not None:
        return options.enable_prefix_caching
    return not facts.has_state or prefix_caching_of_state_models(options.version)


def _caches_state(facts: ModelFacts, options: EngineOptions) -> bool:
    """Whether this release can keep the recurrent state of the model for prefixes."""
    rule = options.rules.state_caching
    if rule == "mamba_only":
        return facts.states_are_mamba
    return rule != "never"


def _concurrent_batches(options: EngineOptions) -> int:
    """Steps whose tokens are not settled at once: one more than pipeline stages under async scheduling.

    Source: vLLM 0.32 ``config/vllm.py max_concurrent_batches``; a CPU never schedules ahead.
    """
    if not options.rules.counts_in_flight:
        return 1
    speculation = options.speculation
    ahead = options.async_scheduling is not False and not options.on_cpu
    if speculation is not None and not speculation.schedules_ahead:
        ahead = False
    return options.pipeline_parallel + (1 if ahead else 0)


def _hybrid_manager(facts: ModelFacts, options: EngineOptions) -> bool:
    """On, unless turned off; chunked-local attention needs the environment's leave, which it has by default.

    Source: vLLM 0.32 ``config/vllm.py`` and ``envs.py VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE``.
    """
    if options.disable_hybrid_manager is not None:
        return not options.disable_hybrid_manager
    if not facts.has_chunks:
        return True
    drafts_with_eagle = options.speculation is not None and options.speculation.eagle_like
    default = "1" if options.rules.chunks_in_groups else "0"
    return options.environment.get(_CHUNKS_ALLOWED, default) != "0" and not drafts_with_eagle


def _retained_tokens(facts: ModelFacts, options: EngineOptions) -> int:
    """Tokens a sliding window keeps beyond itself: a chain of draft modules re-reads the last ones.

    Source: vLLM 0.32 ``config/vllm.py num_prefill_lookahead_tokens``, ``config/speculative.py use_multi_module_mtp``.
    """
    speculation = options.speculation
    if speculation is None or speculation.method != "mtp" or min(facts.draft_modules, speculation.tokens) <= 1:
        return 0
    return speculation.tokens - 1


def _dtype(facts: ModelFacts, options: EngineOptions) -> str:
    """Model dtype: as asked; else the checkpoint's, with float32 run in half precision, if the device can.

    Source: vLLM 0.32 ``config/model.py _resolve_auto_dtype``.
    """
    if options.dtype not in {"auto", ""}:
        return _DTYPE_ALIASES.get(options.dtype, options.dtype)
    has_bfloat16 = options.on_cpu or options.capability >= (8, 0) or options.capability == (0, 0)
    has_float16 = facts.model_type not in _NO_FLOAT16
    usable = [("bfloat16", has_bfloat16), ("float16", has_float16), ("float32", True)]
    supported = [name for name, usable_here in usable if usable_here]
    written = _DTYPE_ALIASES.get(facts.dtype, facts.dtype)
    return written if written in supported and written != "float32" else supported[0]
