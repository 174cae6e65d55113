"""What vLLM chooses for one model on one device: cache dtype, kernels, block size.

Source: vLLM 0.32 ``platforms/interface.py update_block_size_for_backend`` and what it calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

from plimsoll.core.kv import backends
from plimsoll.core.kv.compressed import compressed_block
from plimsoll.core.kv.dtypes import AUTO, TURBOQUANT, element_bytes, head_bytes
from plimsoll.core.kv.kernels import CPU_MLA, DEFAULT_BLOCK, FIXED, Kernel
from plimsoll.core.kv.kv_dtype import resolve_kv_dtype, stored_dtype
from plimsoll.core.kv.options import EngineOptions
from plimsoll.core.kv.resolve import Resolved, resolve
from plimsoll.core.kv.specs import ceil_div, round_up
from plimsoll.core.kv.states import keeps_every_state, leaves_checkpoint, state_bytes
from plimsoll.facts.models import (
    Cache,
    CompressedAttention,
    IndexerKeys,
    LatentAttention,
    Layer,
    ModelFacts,
    RecurrentState,
    SoftmaxAttention,
)

# Hybrid blocks before 0.20 grow by this much under MLA, whatever the kernel.
_OLD_LATENT_UNIT = 64
_MAMBA1_CHUNK = 2048
_CHECKPOINT_TOKENS = {"gdn": 64, "kda": 16}
# Layers at either end that TurboQuant leaves alone in models without recurrent state.
_UNPACKED_ENDS = 2
_WINDOWS = "sliding_window"


@dataclass(frozen=True)
class Choices:
    """What vLLM chose for one model on one device.

    Attributes:
        resolved: flags after defaults.
        kv_dtype: the cache dtype in effect (``auto``: the model's own).
        kernel_of: the kernel of each cache that has one.
        block_tokens: the block size of full attention.
        state_page_bytes: what recurrent state is padded to; None without attention.
        window_page_bytes: what windows are padded to where layers of two dtypes share the pool.
    """

    resolved: Resolved
    kv_dtype: str
    kernel_of: dict[Cache, Kernel]
    block_tokens: int
    state_page_bytes: int | None = None
    window_page_bytes: int | None = None

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Names of the kernels, in layer order."""
        return tuple(dict.fromkeys(kernel.name for kernel in self.kernel_of.values()))

    @property
    def unsplit_by(self) -> Kernel | None:
        """The first softmax kernel that cannot work with the block size; none where vLLM chose it itself.

        Source: vLLM 0.32 ``v1/worker/utils.py select_common_block_size``.
        """
        softmax = (kernel for cache, kernel in self.kernel_of.items() if isinstance(cache, SoftmaxAttention))
        return next((kernel for kernel in softmax if not kernel.accepts(self.block_tokens)), None)


def choose(facts: ModelFacts, options: EngineOptions) -> Choices:
    """Settle dtype, kernels and block size.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    resolved = resolve(facts, options)
    asked = resolve_kv_dtype(facts, options, resolved.dtype)
    kernel_of = _kernels(facts.caches, facts, options, asked)
    chosen = tuple(kernel_of.values())
    kv_dtype = stored_dtype(asked, chosen)
    choices = Choices(resolved, kv_dtype, kernel_of, _first_block(facts, options, chosen))
    if facts.has_state and facts.has_attention:
        choices = _align_hybrid(facts, options, choices)
    if unpacked_layers(facts, options, kv_dtype):
        choices = _align_unpacked(facts, options, choices)
    drafted = tuple(cache for layer in draft_layers(facts, options) for cache in layer.caches)
    if not drafted:
        return choices
    return replace(choices, kernel_of=_kernels(drafted, facts, options, asked) | kernel_of)


def unpacked(choices: Choices, facts: ModelFacts, options: EngineOptions) -> Choices:
    """The same choices for layers that keep the model's own dtype."""
    return replace(choices, kv_dtype=AUTO, kernel_of=_kernels(facts.caches, facts, options, AUTO))


def unpacked_layers(facts: ModelFacts, options: EngineOptions, kv_dtype: str) -> frozenset[int]:
    """Layers that keep the model's own dtype: those the flag names, and the ends under TurboQuant.

    Source: vLLM 0.32 ``layers/attention/attention.py``, ``quantization/turboquant/config.py get_boundary_skip_layers``.
    """
    count, named = len(facts.layers), options.kv_cache_dtype_skip_layers
    if kv_dtype == AUTO or not (named or kv_dtype in TURBOQUANT):
        return frozenset()
    skipped = {layer for layer in range(count) if str(layer) in named}
    if _WINDOWS in named:
        skipped |= {layer for layer, facts_of in enumerate(facts.layers) if _slides(facts_of)}
    if kv_dtype in TURBOQUANT and not facts.has_state:
        ends = min(_UNPACKED_ENDS, count // 2)
        skipped |= {*range(ends), *range(count - ends, count)}
    return frozenset(skipped)


def draft_layers(facts: ModelFacts, options: EngineOptions) -> tuple[Layer, ...]:
    """Layers that a draft adds: those of the checkpoint's own predictor, or of the draft model beside it."""
    speculation = options.speculation
    if speculation is None:
        return ()
    if speculation.draft is not None:
        return speculation.draft.layers
    if speculation.like_target:
        return facts.draft_layers[:1]
    return facts.draft_layers if speculation.method == "mtp" else ()


def _slides(layer: Layer) -> bool:
    return any(isinstance(cache, SoftmaxAttention) and cache.window_tokens for cache in layer.caches)


def _kernels(caches: Sequence[Cache], facts: ModelFacts, options: EngineOptions, kv_dtype: str) -> dict[Cache, Kernel]:
    found = {cache: _kernel(cache, facts, options, kv_dtype) for cache in dict.fromkeys(caches)}
    return {cache: kernel for cache, kernel in found.items() if kernel is not None}


def _kernel(cache: Cache, facts: ModelFacts, options: EngineOptions, kv_dtype: str) -> Kernel | None:
    """The kernel of a cache; None for caches that are read out of band."""
    match cache:
        case SoftmaxAttention():
            return backends.softmax_kernel(cache, facts, options, kv_dtype)
        case LatentAttention():
            return backends.latent_kernel(cache, facts, options, kv_dtype)
        case IndexerKeys():
            return backends.indexer_kernel(cache, options)
        case CompressedAttention():
            return FIXED["DEEPSEEK_V4"]
        case _:
            return None


def _first_block(facts: ModelFacts, options: EngineOptions, chosen: Sequence[Kernel]) -> int:
    """Block size before pages are looked at: as asked, else what the kernels agree on."""
    compressed = next((cache for cache in facts.caches if isinstance(cache, CompressedAttention)), None)
    if compressed is not None:
        return compressed_block(compressed, options)
    if options.on_cpu and facts.uses_latent_attention:
        return CPU_MLA.smallest_block
    if options.block_size is not None:
        return options.block_size
    return backends.common_block(chosen) if chosen else DEFAULT_BLOCK


def _align_hybrid(facts: ModelFacts, options: EngineOptions, choices: Choices) -> Choices:
    """Grow the attention block until its page holds a layer's state, and pad the state to that page.

    Source: ``platforms/interface.py _align_hybrid_block_size``; before 0.20 ``models/config.py``.
    """
    states = [cache for cache in dict.fromkeys(facts.caches) if isinstance(cache, RecurrentState)]
    state_page = max(state_bytes(state, facts, options, choices.resolved.dtype) for state in states)
    token_bytes = _hybrid_token_bytes(facts, options, choices)
    unit = _hybrid_unit(facts, options, choices, states)
    needed = unit * ceil_div(state_page, unit * token_bytes)
    if options.rules.state_unit_from_kernel:
        needed = round_up(needed, lcm(*(kernel.smallest_block for kernel in choices.kernel_of.values())))
    block = max(choices.block_tokens, needed)
    return replace(choices, block_tokens=block, state_page_bytes=block * token_bytes)


def _hybrid_token_bytes(facts: ModelFacts, options: EngineOptions, choices: Choices) -> int:
    """Bytes of a token that the state page is measured by; a common multiple where TurboQuant skips layers."""
    packed = _model_token_bytes(facts, options, choices, choices.kv_dtype)
    if choices.kv_dtype in TURBOQUANT and unpacked_layers(facts, options, choices.kv_dtype):
        return lcm(packed, _model_token_bytes(facts, options, choices, AUTO))
    return packed


def _hybrid_unit(facts: ModelFacts, options: EngineOptions, choices: Choices, states: Sequence[RecurrentState]) -> int:
    """Tokens by which the attention block of a hybrid grows."""
    rules, caching = options.rules, choices.resolved.prefix_caching
    if rules.state_unit_from_kernel:
        unit = max(next(iter(choices.kernel_of.values())).smallest_block, choices.block_tokens)
        unit = max(unit, rules.latent_state_unit) if facts.uses_latent_attention else unit
    else:
        unit = _OLD_LATENT_UNIT if facts.uses_latent_attention else DEFAULT_BLOCK
    if any(keeps_every_state(state, options, prefix_caching=caching) for state in states):
        return lcm(unit, options.mamba_block_size or _mamba_chunk(facts))
    if not (rules.gdn_checkpoints and caching):
        return unit
    return lcm(unit, *(_CHECKPOINT_TOKENS.get(state.kind, 1) for state in states if leaves_checkpoint(state, options)))


def _mamba_chunk(facts: ModelFacts) -> int:
    """Tokens of one chunk of the scan; Mamba1 has none and counts as 2,048."""
    written = (facts.raw.get(key) for key in ("mamba_chunk_size", "chunk_size"))
    return next((value for value in written if isinstance(value, int) and value > 0), _MAMBA1_CHUNK)


def _align_unpacked(facts: ModelFacts, options: EngineOptions, choices: Choices) -> Choices:
    """Grow the block until a packed page covers one kernel block of a layer that keeps the model's dtype.

    Source: ``platforms/interface.py _align_heterogeneous_kv_block_size``.
    """
    packed = _model_token_bytes(facts, options, choices, choices.kv_dtype)
    plain = _model_token_bytes(facts, options, choices, AUTO)
    if plain == packed:
        return choices
    smallest = next(iter(choices.kernel_of.values())).smallest_block
    unit = max(smallest, choices.block_tokens)
    required = max(plain * smallest, choices.state_page_bytes or 0)
    block = max(choices.block_tokens, unit * ceil_div(required, unit * packed))
    shared = block * packed
    state_page = None if choices.state_page_bytes is None else shared
    return replace(choices, block_tokens=block, state_page_bytes=state_page, window_page_bytes=shared)


def _model_token_bytes(facts: ModelFacts, options: EngineOptions, choices: Choices, kv_dtype: str) -> int:
    """Bytes one token takes in one attention layer, by the model's own head figures."""
    dtype = choices.resolved.dtype
    if facts.uses_latent_attention:
        return facts.head_size * element_bytes(kv_dtype, dtype)
    kv_heads = max(1, facts.dims.kv_heads // options.tensor_parallel)
    return kv_heads * head_bytes(kv_dtype, dtype, facts.head_size, facts.head_size)
