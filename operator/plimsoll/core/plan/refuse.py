"""vLLM's own refusals, found before anything starts: an ordered list of small checks, the first that objects wins.

``check_flags`` needs no memory figures; ``check_pool`` judges a start with a given number of bytes left for KV, so that
a caller may judge at the middle of an estimate and at its low end. Sources: vLLM's own start-up checks and the
refusals recorded from its releases.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plimsoll.core.kv import (
    Capacity,
    EngineOptions,
    KVLayout,
    Refusal,
    Resolved,
    capacity,
    check_sequences,
    check_split,
)
from plimsoll.core.kv.refusals import BAD_FLAG, KV_DTYPE_UNSUPPORTED, NO_MEMORY_FOR_KV
from plimsoll.core.memory import MemoryBudget, MemoryFlags
from plimsoll.core.memory.aftermath import after_kv_bytes, context_bytes
from plimsoll.core.memory.step import Step
from plimsoll.facts.engines import default_utilisation
from plimsoll.facts.models import ModelFacts

WEIGHTS_DO_NOT_FIT: Final = "weights_do_not_fit"
NOT_ENOUGH_FREE_MEMORY: Final = "not_enough_free_memory"
OOM_RISK: Final = "oom_risk"
QUANTIZATION_UNSUPPORTED: Final = "quantization_unsupported"
DTYPE_UNSUPPORTED: Final = "dtype_unsupported"

_GIB: Final = 1 << 30
# Lowest compute capability of each method. Source: vLLM 0.32 ``layers/quantization``, ``get_min_capability``.
_LEAST_CAPABILITY: Final = {
    "fp8": (7, 5),
    "awq": (7, 5),
    "awq_marlin": (7, 5),
    "gptq": (6, 0),
    "gptq_marlin": (7, 5),
    "compressed-tensors": (7, 0),
    "modelopt": (8, 0),
    "modelopt_fp4": (7, 5),
    "mxfp4": (8, 0),
    "gpt_oss_mxfp4": (8, 0),
}
_PLUGIN_METHODS: Final = frozenset({"bitsandbytes", "gguf"})
_PLUGIN_SINCE: Final = 32


@dataclass(frozen=True)
class EngineStart:
    """One engine about to start: the model, its options, and the flags that decide memory."""

    facts: ModelFacts
    options: EngineOptions
    flags: MemoryFlags


Check = Callable[[EngineStart, Resolved], Refusal | None]


def check_flags(start: EngineStart, resolved: Resolved) -> None:
    """Refuse what contradicts itself, the model or the GPU.

    Raises:
        Refusal: the first check that objects.
    """
    for check in _FLAG_CHECKS:
        refusal = check(start, resolved)
        if refusal is not None:
            raise refusal


def fewer_tokens_than_sequences(_start: EngineStart, resolved: Resolved) -> Refusal | None:
    """A step must have a token for each sequence."""
    tokens, seqs = resolved.max_num_batched_tokens, resolved.max_num_seqs
    if tokens >= seqs:
        return None
    return Refusal(BAD_FLAG, f"max_num_batched_tokens ({tokens}) must be at least max_num_seqs ({seqs}).")


def step_shorter_than_context(start: EngineStart, resolved: Resolved) -> Refusal | None:
    """Without chunked prefill a step must hold the longest prompt."""
    tokens, length = resolved.max_num_batched_tokens, resolved.max_model_len
    if start.options.enable_chunked_prefill is not False or tokens >= length:
        return None
    return Refusal(
        BAD_FLAG,
        f"max_num_batched_tokens ({tokens}) is less than max_model_len ({length}) and chunked prefill is off: "
        "raise the one, lower the other, or leave chunked prefill on.",
    )


def experts_of_a_dense_model(start: EngineStart, _resolved: Resolved) -> Refusal | None:
    """Expert parallelism needs experts."""
    if not start.flags.expert_parallel or start.facts.dims.experts > 1 or "ffn_config" in start.facts.raw:
        return None
    return Refusal(BAD_FLAG, "enable_expert_parallel: the model has no experts; leave it out.")


def quantisation_of_gpu(start: EngineStart, _resolved: Resolved) -> Refusal | None:
    """A method needs a GPU that is new enough, or a plugin the stock image does not have."""
    method = start.flags.quantization or start.facts.quantisation.method or ""
    if method in _PLUGIN_METHODS and start.options.version.at_least(_PLUGIN_SINCE):
        return Refusal(
            QUANTIZATION_UNSUPPORTED, f"{method}: vLLM {start.options.version} loads it only with a plugin of its own."
        )
    least, has = _LEAST_CAPABILITY.get(method), start.options.capability
    if least is None or has == (0, 0) or has >= least:
        return None
    return Refusal(
        QUANTIZATION_UNSUPPORTED,
        f"{method} needs compute capability {_dotted(least)}, the GPU has {_dotted(has)}: take a newer GPU or "
        "another checkpoint.",
    )


def quantisation_of_checkpoint(start: EngineStart, _resolved: Resolved) -> Refusal | None:
    """The flag may not name another method than the checkpoint has.

    ModelOpt and Quark re-quantise published checkpoints: with their flag, a base model's file is what we were given.
    """
    flag, written = start.flags.quantization, start.facts.quantisation.method
    if flag is None or written is None or _family(flag) == _family(written) or _requantises(flag):
        return None
    return Refusal(BAD_FLAG, f"quantization: the checkpoint says {written}, the flag says {flag}; leave the flag out.")


def bfloat16_of_gpu(start: EngineStart, _resolved: Resolved) -> Refusal | None:
    """bfloat16 needs capability 8.0; left to vLLM, an older GPU runs float16."""
    has = start.options.capability
    if start.options.dtype != "bfloat16" or has == (0, 0) or has >= (8, 0):
        return None
    return Refusal(
        DTYPE_UNSUPPORTED,
        f"dtype: bfloat16 needs compute capability 8.0, the GPU has {_dotted(has)}: use float16 or leave it out.",
    )


def cache_dtype_of_checkpoint(start: EngineStart, _resolved: Resolved) -> Refusal | None:
    """e5m2 caches do not go with fp8 weights."""
    if start.options.kv_cache_dtype != "fp8_e5m2" or start.facts.quantisation.method != "fp8":
        return None
    return Refusal(KV_DTYPE_UNSUPPORTED, "fp8_e5m2 kv-cache is not supported with fp8 checkpoints; use fp8_e4m3.")


_FLAG_CHECKS: Final[tuple[Check, ...]] = (
    fewer_tokens_than_sequences,
    step_shorter_than_context,
    experts_of_a_dense_model,
    quantisation_of_checkpoint,
    quantisation_of_gpu,
    bfloat16_of_gpu,
    cache_dtype_of_checkpoint,
)


def check_device(start: EngineStart, step: Step, memory: MemoryBudget) -> None:
    """Refuse what the device has no room for, whatever is left for KV.

    Raises:
        Refusal: ``not_enough_free_memory`` or ``weights_do_not_fit``.
    """
    free = memory.total_bytes - context_bytes(step) - start.flags.other_engines_bytes
    if memory.weights_bytes > free:
        raise Refusal(
            WEIGHTS_DO_NOT_FIT,
            f"The weights take {_gib(memory.weights_bytes)} GiB on each GPU, {_gib(max(0, free))} GiB are free: "
            "use more GPUs (tensor_parallel_size) or a quantised checkpoint.",
            needed_bytes=memory.weights_bytes,
            available_bytes=max(0, free),
        )
    if start.flags.kv_cache_memory_bytes is None and memory.requested_bytes > free:
        share = start.flags.gpu_memory_utilization
        share = default_utilisation(start.options.version) if share is None else share
        raise Refusal(
            NOT_ENOUGH_FREE_MEMORY,
            f"Free memory on the device ({_gib(max(0, free))}/{_gib(memory.total_bytes)} GiB) is less than the desired "
            f"GPU memory utilization ({share:g}, {_gib(memory.requested_bytes)} GiB): "
            f"{max(0, free) / memory.total_bytes:.3f} fits.",
            needed_bytes=memory.requested_bytes,
            available_bytes=max(0, free),
        )


def check_pool(start: EngineStart, layout: KVLayout, available_bytes: int) -> Capacity:
    """The pool that ``available_bytes`` a GPU make, if vLLM would start with it.

    Raises:
        Refusal: ``no_memory_for_kv``, ``kv_cache_too_small``, ``no_attention_backend``,
            ``max_num_seqs_above_state_blocks``.
    """
    if available_bytes <= 0 and layout.groups and start.options.num_blocks_override is None:
        raise Refusal(
            NO_MEMORY_FOR_KV,
            f"No available memory for the cache blocks ({_gib(available_bytes)} GiB are left). Try increasing "
            "gpu_memory_utilization, more GPUs, or a smaller max_num_seqs.",
            available_bytes=available_bytes,
        )
    pool = capacity(layout, available_bytes)
    check_split(layout)
    if _captures_states(start):
        check_sequences(layout, pool, layout.resolved.max_num_seqs)
    return pool


def check_aftermath(start: EngineStart, step: Step, memory: MemoryBudget, more_bytes: int = 0) -> None:
    """Refuse a start that would likely die after the pool is allocated: what comes then finds no room outside it.

    ``more_bytes``: what an engine was seen to need beyond the estimate.

    Raises:
        Refusal: ``oom_risk``.
    """
    taken, given = memory.requested_bytes, start.flags.kv_cache_memory_bytes
    if given is not None:
        taken = given + sum(item.bytes for item in memory.items)
    free = memory.total_bytes - context_bytes(step) - start.flags.other_engines_bytes - taken
    needed = after_kv_bytes(step) + more_bytes
    if needed > free:
        knob = "gpu_memory_utilization" if given is None else "kv_cache_memory_bytes"
        less = f"{(needed - free) / memory.total_bytes:.3f}" if given is None else str(needed - free)
        raise Refusal(
            OOM_RISK,
            f"After the cache is allocated about {_gib(needed)} GiB more are needed (CUDA graphs, kernels), "
            f"{_gib(free)} GiB are left: lower {knob} by {less}.",
            needed_bytes=needed,
            available_bytes=max(0, free),
        )


def _captures_states(start: EngineStart) -> bool:
    """The check of state blocks belongs to full CUDA graphs; in the source from 0.22 on."""
    return not start.flags.enforce_eager and not start.options.on_cpu and start.options.version.at_least(20)


def _requantises(method: str) -> bool:
    return method.startswith("modelopt") or method == "quark"


def _family(method: str) -> str:
    """Methods that load each other's checkpoints."""
    for family in ("awq", "gptq", "mxfp4", "fp8"):
        if family in method:
            return family
    return method


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _gib(value: int) -> str:
    return f"{value / _GIB:.2f}"
