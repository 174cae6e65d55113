"""What an engine is started with, as far as its KV cache depends on it, and the refusals vLLM answers with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.core.kv.rules import CacheRules, rules_of
from plimsoll.facts.engines import NEWEST, EngineVersion, batch_defaults, prefix_caching_of_state_models
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts

Device = GPU | Literal["cpu"]

# Reasons, as ``predict`` prints them and conditions carry them.
KV_CACHE_TOO_SMALL: Final = "kv_cache_too_small"
NO_MEMORY_FOR_KV: Final = "no_memory_for_kv"
HEADS_NOT_DIVISIBLE: Final = "heads_not_divisible"
KV_DTYPE_UNSUPPORTED: Final = "kv_dtype_unsupported"
NO_ATTENTION_BACKEND: Final = "no_attention_backend"
MAX_NUM_SEQS_ABOVE_STATE_BLOCKS: Final = "max_num_seqs_above_state_blocks"
MAX_MODEL_LEN_ABOVE_MODEL: Final = "max_model_len_above_model"
BAD_FLAG: Final = "bad_flag"

# MLA on a CPU prefills a prompt in one piece and finds nothing again (vLLM 0.32 ``platforms/cpu.py``).
_WHOLE_PREFILL_TOKENS: Final = 2048
_CHUNKS_ALLOWED: Final = "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE"
_DTYPE_ALIASES: Final[Mapping[str, str]] = {"half": "float16", "float": "float32"}
_NO_FLOAT16: Final = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})

# Methods whose draft reads hidden states of the target (vLLM's ``use_eagle``).
_EAGLE_LIKE: Final = frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark"})


class Refusal(Exception):  # noqa: N818 # an answer of the engine, not a fault of ours
    """vLLM would not start: why, in whose numbers, and the longest context that would fit where one would.

    ``needed_bytes`` and ``estimated_max_model_len`` are set for ``kv_cache_too_small`` only.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        needed_bytes: int | None = None,
        available_bytes: int | None = None,
        estimated_max_model_len: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
        self.estimated_max_model_len = estimated_max_model_len


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: the method, tokens a step, and the draft model where it is one of its own."""

    method: str
    tokens: int
    draft: ModelFacts | None = None

    @property
    def eagle_like(self) -> bool:
        """Whether the draft reads the target's hidden states, one token ahead of it."""
        return self.method in _EAGLE_LIKE


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Flags of ``vllm serve`` that shape the cache; None leaves the choice to vLLM.

    ``device`` is a GPU or ``"cpu"``. Sizes are of one engine (data-parallel rank). ``offline`` is the ``LLM`` class.
    """

    device: Device
    version: EngineVersion = field(default_factory=lambda: EngineVersion.parse(NEWEST))
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    decode_context_parallel: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    kv_cache_dtype_skip_layers: tuple[str, ...] = ()
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enable_prefix_caching: bool | None = None
    enable_chunked_prefill: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_manager: bool | None = None
    disable_sliding_window: bool = False
    gdn_prefill_backend: str = "auto"
    kda_prefill_backend: str = "auto"
    mamba_cache_dtype: str = "auto"
    mamba_ssm_cache_dtype: str = "auto"
    mamba_block_size: int | None = None
    attention_backend: str | None = None
    layer_partition: tuple[int, ...] | None = None
    num_blocks_override: int | None = None
    text_only: bool = False
    allow_long_max_model_len: bool = False
    offline: bool = False
    speculation: Speculation | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether this is a CPU build."""
        return self.device == "cpu"

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA compute capability; (0, 0) on a CPU or a GPU of another vendor."""
        device = self.device
        return (0, 0) if device == "cpu" or device.capability is None else device.capability

    @property
    def rules(self) -> CacheRules:
        """What this release does differently from others."""
        return rules_of(self.version)

    @property
    def speculative_tokens(self) -> int:
        """Draft tokens a step."""
        return self.speculation.tokens if self.speculation else 0


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
    if facts.has_windows and not options.version.at_least(12):
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
    if facts.uses_latent_attention or not facts.has_attention:
        return
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise Refusal(
            HEADS_NOT_DIVISIBLE,
            f"{kv_heads} KV heads neither divide nor are divided by tensor parallel size {tensor_parallel}.",
        )
    _check_context_parallel(options.decode_context_parallel, tensor_parallel, heads, kv_heads)


def _check_context_parallel(context_parallel: int, tensor_parallel: int, heads: int, kv_heads: int) -> None:
    if context_parallel <= 1:
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
    """Context length: as asked, else the model's own, LongRoPE models starting at their original length."""
    limit = facts.max_model_len
    wanted = options.max_model_len
    if wanted is None or wanted == -1:
        return facts.original_max_positions or limit
    if wanted > limit and not options.allow_long_max_model_len:
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
    ahead = options.async_scheduling is not False and not options.on_cpu
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
