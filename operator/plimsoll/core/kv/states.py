"""Bytes and blocks of recurrent state.

Source: vLLM 0.32 ``layers/mamba/mamba_utils.py`` (shapes, dtypes), ``v1/kv_cache_interface.py MambaSpec`` (blocks).
"""

from plimsoll.core.kv.dtypes import float_bytes
from plimsoll.core.kv.options import BLACKWELL, BLACKWELL_WORKSTATION, HOPPER, EngineOptions
from plimsoll.core.kv.refusals import HEADS_NOT_DIVISIBLE, Refusal
from plimsoll.facts.models import ModelFacts, RecurrentState, StateTensor

# Key elements a head that fast prefill kernels are written for.
_KERNEL_KEYS = 128


def state_bytes(state: RecurrentState, facts: ModelFacts, options: EngineOptions, model_dtype: str) -> int:
    """Bytes of one request's state in one layer on one rank, unpadded."""
    return sum(
        _elements(tensor, state, options) * _tensor_bytes(tensor, facts, options, model_dtype)
        for tensor in state.tensors
    )


def state_blocks(state: RecurrentState, options: EngineOptions, *, prefix_caching: bool) -> int:
    """Blocks a request holds of a state layer: its state, one a draft token, and with prefix caching one to write.

    A kernel that can leave a checkpoint in the middle of a prefill takes one more.
    """
    if options.rules.state_caching in {"never", "mamba_only"}:
        return 0 if prefix_caching else 1
    if keeps_every_state(state, options, prefix_caching=prefix_caching):
        return options.speculative_tokens if options.version.at_least(22) else 0
    if not prefix_caching:
        return 1 + options.speculative_tokens
    return 2 + options.speculative_tokens + (1 if leaves_checkpoint(state, options) else 0)


def keeps_every_state(state: RecurrentState, options: EngineOptions, *, prefix_caching: bool) -> bool:
    """Whether a state is kept for every block of tokens: Mamba with prefix caching, before 0.28."""
    mamba = state.kind in {"mamba1", "mamba2"}
    return prefix_caching and mamba and options.rules.state_caching in {"mamba_only", "every_token"}


def leaves_checkpoint(state: RecurrentState, options: EngineOptions) -> bool:
    """Whether prefill stores a checkpoint between blocks: every Mamba2 mixer, FlashKDA, and from 0.33 FlashInfer GDN.

    Source: vLLM 0.32 ``mamba_mixer2.py get_kv_cache_spec``, ``kda_checkpoint.py``; 0.33 for gated delta nets.
    """
    if options.on_cpu and state.kind != "mamba2":
        return False
    if state.kind == "mamba2":
        return options.rules.mamba_checkpoints
    if state.kind == "kda":
        return options.rules.mamba_checkpoints and kda_uses_flashkda(state, options)
    return state.kind == "gdn" and options.rules.gdn_checkpoints and gdn_uses_flashinfer(state, options)


def kda_uses_flashkda(state: RecurrentState, options: EngineOptions) -> bool:
    """Whether KDA prefills with FlashKDA: from Hopper on, with 128 elements a head and a bounded gate.

    Source: vLLM 0.32 ``models/kimi_k3/nvidia/kda.py resolve_kda_prefill_backend``.
    """
    wanted = options.kda_prefill_backend in {"auto", "flashkda"}
    fits = state.bounded_gate and state.key_dim == _KERNEL_KEYS
    return wanted and fits and options.generation in {HOPPER, BLACKWELL, BLACKWELL_WORKSTATION}


def gdn_uses_flashinfer(state: RecurrentState, options: EngineOptions) -> bool:
    """Whether gated delta nets prefill with FlashInfer: Hopper; Blackwell where keys have 128 elements.

    Source: vLLM 0.32 ``qwen_gdn_linear_attn.py _resolve_gdn_prefill_backend``; CUDA 13 is taken for granted there.
    """
    if options.gdn_prefill_backend not in {"auto", "flashinfer"}:
        return False
    if options.capability == (9, 0):
        return True
    return options.generation in {BLACKWELL, BLACKWELL_WORKSTATION} and state.key_dim == _KERNEL_KEYS


def _elements(tensor: StateTensor, state: RecurrentState, options: EngineOptions) -> int:
    columns = tensor.columns + (options.speculative_tokens if tensor.grows else 0)
    if tensor.replicated:
        return tensor.rows * columns
    parallel = options.tensor_parallel
    # B and C groups are replicated until every rank has one.
    groups = state.groups if state.groups % parallel == 0 else parallel
    rows = tensor.rows + tensor.grouped_rows * groups
    if rows % parallel:
        raise Refusal(HEADS_NOT_DIVISIBLE, f"State of {rows} rows does not divide by tensor parallel size {parallel}.")
    return rows // parallel * columns


def _tensor_bytes(tensor: StateTensor, facts: ModelFacts, options: EngineOptions, model_dtype: str) -> int:
    """Bytes of an element: the convolution's dtype is the model's, the recurrence's as flags, model or platform say."""
    convolution = options.mamba_cache_dtype if options.mamba_cache_dtype != "auto" else model_dtype
    if tensor.role == "conv":
        return float_bytes(convolution)
    if options.mamba_ssm_cache_dtype != "auto":
        return float_bytes(options.mamba_ssm_cache_dtype)
    # Accelerated CPU kernels keep the recurrence in float32 whatever the model says.
    if options.on_cpu and options.rules.float32_state_on_cpu:
        return float_bytes("float32")
    return float_bytes(facts.state_dtype or convolution)
