"""From what a model stores to what vLLM caches for it: dtype, kernels, block size, one spec for every cache.

Source: vLLM 0.32 ``get_kv_cache_spec`` of each layer class, ``platforms/interface.py update_block_size_for_backend``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from plimsoll.core.kv import kernels
from plimsoll.core.kv.compressed import compressed_block, compressed_specs
from plimsoll.core.kv.dtypes import element_bytes, head_bytes, latent_bytes
from plimsoll.core.kv.kernels import FIXED, Kernel
from plimsoll.core.kv.kv_dtype import resolve_kv_dtype, stored_dtype
from plimsoll.core.kv.options import HEADS_NOT_DIVISIBLE, EngineOptions, Refusal, Resolved, resolve
from plimsoll.core.kv.specs import LayerSpec, ceil_div, round_up
from plimsoll.core.kv.states import keeps_every_state, leaves_checkpoint, state_blocks, state_bytes
from plimsoll.facts.models import (
    Cache,
    CompressedAttention,
    ConvolutionWindow,
    CrossAttention,
    IndexerKeys,
    LatentAttention,
    ModelFacts,
    RecurrentState,
    RingBuffer,
    SoftmaxAttention,
)

_OLD_LATENT_UNIT = 64
_MAMBA1_CHUNK = 2048
_CHECKPOINT_TOKENS = {"gdn": 64, "kda": 16}


@dataclass(frozen=True)
class Choices:
    """What vLLM chose for one model on one device.

    ``kv_dtype`` is the cache dtype in effect (``auto``: the model's own), ``kernel_of`` the kernel of each cache,
    ``block_tokens`` the block size of full attention, ``state_page_bytes`` what recurrent state is padded to.
    """

    resolved: Resolved
    kv_dtype: str
    kernel_of: dict[Cache, Kernel]
    block_tokens: int
    state_page_bytes: int | None

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Names of the kernels, in layer order."""
        return tuple(dict.fromkeys(kernel.name for kernel in self.kernel_of.values()))


def choose(facts: ModelFacts, options: EngineOptions) -> Choices:
    """Settle dtype, kernels and block size.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    resolved = resolve(facts, options)
    asked = resolve_kv_dtype(facts, options, resolved.dtype)
    kernel_of = {cache: _kernel(cache, facts, options, asked) for cache in dict.fromkeys(facts.caches)}
    kernel_of = {cache: kernel for cache, kernel in kernel_of.items() if kernel is not None}
    kv_dtype = stored_dtype(asked, tuple(kernel_of.values()))
    block = _first_block(facts, options, tuple(kernel_of.values()))
    padded = None
    if facts.has_state and facts.has_attention:
        block, padded = _align_hybrid(facts, options, resolved, kv_dtype, tuple(kernel_of.values()), block)
    return Choices(resolved, kv_dtype, kernel_of, block, padded)


def layer_specs(facts: ModelFacts, options: EngineOptions) -> tuple[LayerSpec, ...]:
    """Every cache of the target model on one rank, in layer order.

    Raises:
        Refusal: as ``choose``.
    """
    choices = choose(facts, options)
    return tuple(spec for specs in specs_by_layer(facts, options, choices) for spec in specs)


def specs_by_layer(facts: ModelFacts, options: EngineOptions, choices: Choices) -> list[tuple[LayerSpec, ...]]:
    """The caches of each decoder layer; layers of one kind share one tuple."""
    seen: dict[int, tuple[LayerSpec, ...]] = {}
    found = []
    for layer in facts.layers:
        key = id(layer)
        if key not in seen:
            seen[key] = tuple(spec for cache in layer.caches for spec in _specs(cache, facts, options, choices))
        found.append(seen[key])
    return found


def _kernel(cache: Cache, facts: ModelFacts, options: EngineOptions, kv_dtype: str) -> Kernel | None:
    """The kernel of a cache; None for caches that are read out of band."""
    match cache:
        case SoftmaxAttention():
            return kernels.softmax_kernel(cache, facts, options, kv_dtype)
        case LatentAttention():
            return kernels.latent_kernel(cache, facts, options, kv_dtype)
        case IndexerKeys():
            return kernels.indexer_kernel(cache)
        case CompressedAttention():
            return FIXED["DEEPSEEK_V4"]
        case _:
            return None


def _first_block(facts: ModelFacts, options: EngineOptions, chosen: Sequence[Kernel]) -> int:
    """Block size before state pages are looked at: as asked, else what the kernels agree on."""
    compressed = next((cache for cache in facts.caches if isinstance(cache, CompressedAttention)), None)
    if compressed is not None:
        return compressed_block(compressed, options)
    if options.on_cpu and facts.uses_latent_attention:
        return kernels.CPU_MLA.smallest_block
    if options.block_size is not None:
        return options.block_size
    return kernels.common_block(chosen) if chosen else kernels.DEFAULT_BLOCK


def _align_hybrid(
    facts: ModelFacts,
    options: EngineOptions,
    resolved: Resolved,
    kv_dtype: str,
    chosen: Sequence[Kernel],
    block_tokens: int,
) -> tuple[int, int]:
    """Grow the attention block until its page holds a layer's state, and pad the state to that page.

    Returns block size in tokens and page size in bytes. Source: ``platforms/interface.py _align_hybrid_block_size``.
    """
    states = [cache for cache in dict.fromkeys(facts.caches) if isinstance(cache, RecurrentState)]
    state_page = max(state_bytes(state, facts, options, resolved.dtype) for state in states)
    token_bytes = _model_token_bytes(facts, options, resolved, kv_dtype)
    unit = _hybrid_unit(facts, options, chosen, block_tokens)
    if any(keeps_every_state(state, options, prefix_caching=resolved.prefix_caching) for state in states):
        unit = lcm(unit, options.mamba_block_size or _mamba_chunk(facts))
    unit = lcm(unit, _checkpoint_unit(states, options, resolved))
    needed = unit * ceil_div(state_page, unit * token_bytes)
    if options.rules.state_unit_from_kernel:
        needed = round_up(needed, lcm(*(kernel.smallest_block for kernel in chosen)))
    block = max(block_tokens, needed)
    return block, block * token_bytes


def _hybrid_unit(facts: ModelFacts, options: EngineOptions, chosen: Sequence[Kernel], block_tokens: int) -> int:
    """Tokens by which the attention block of a hybrid grows."""
    if not options.rules.state_unit_from_kernel:
        return _OLD_LATENT_UNIT if facts.uses_latent_attention else kernels.DEFAULT_BLOCK
    unit = max(chosen[0].smallest_block, block_tokens)
    return max(unit, options.rules.latent_state_unit) if facts.uses_latent_attention else unit


def _checkpoint_unit(states: Sequence[RecurrentState], options: EngineOptions, resolved: Resolved) -> int:
    """Tokens that checkpoints in mid-prefill are apart by."""
    if not (options.rules.gdn_checkpoints and resolved.prefix_caching):
        return 1
    return lcm(*(_CHECKPOINT_TOKENS.get(state.kind, 1) for state in states if leaves_checkpoint(state, options)))


def _mamba_chunk(facts: ModelFacts) -> int:
    """Tokens of one chunk of the scan; Mamba1 has none and counts as 2,048."""
    for key in ("mamba_chunk_size", "chunk_size"):
        value = facts.raw.get(key)
        if isinstance(value, int):
            return value
    return _MAMBA1_CHUNK


def _model_token_bytes(facts: ModelFacts, options: EngineOptions, resolved: Resolved, kv_dtype: str) -> int:
    """Bytes one token takes in one attention layer, by the model's own head figures."""
    if facts.uses_latent_attention:
        return facts.head_size * element_bytes(kv_dtype, resolved.dtype)
    kv_heads = max(1, facts.dims.kv_heads // options.tensor_parallel)
    return kv_heads * head_bytes(kv_dtype, resolved.dtype, facts.head_size, facts.head_size)


def _specs(cache: Cache, facts: ModelFacts, options: EngineOptions, choices: Choices) -> tuple[LayerSpec, ...]:
    """The specs of one cache."""
    match cache:
        case SoftmaxAttention():
            return (_softmax(cache, options, choices),)
        case LatentAttention():
            return (_latent(cache, choices),)
        case IndexerKeys():
            return (_indexer(cache, choices),)
        case RingBuffer():
            return (_ring(cache, options),)
        case ConvolutionWindow():
            return (_convolution(cache, options, choices),)
        case CrossAttention():
            return (_cross(cache, options, choices),)
        case CompressedAttention():
            return compressed_specs(cache, options, choices.kv_dtype)
        case RecurrentState():
            return (_state(cache, facts, options, choices),)


def _softmax(cache: SoftmaxAttention, options: EngineOptions, choices: Choices) -> LayerSpec:
    """K and V of every KV head on the rank; a window picks its own block, as large as the kernel allows."""
    heads = rank_heads(cache.kv_heads, options.tensor_parallel)
    token_bytes = heads * head_bytes(choices.kv_dtype, choices.resolved.dtype, cache.head_dim, cache.value_dim)
    content = (heads, cache.head_dim, cache.value_dim, choices.kv_dtype)
    block = choices.block_tokens
    if cache.window_tokens is not None:
        if options.rules.window_blocks:
            block = choices.kernel_of[cache].largest_block_within(block)
        return LayerSpec(
            "sliding",
            block,
            block * token_bytes,
            content,
            window_tokens=cache.window_tokens,
            retained_tokens=choices.resolved.retained_tokens,
        )
    if cache.chunk_tokens is not None:
        return LayerSpec("chunked", block, block * token_bytes, content, window_tokens=cache.chunk_tokens)
    return LayerSpec("full", block, block * token_bytes, content)


def _latent(cache: LatentAttention, choices: Choices) -> LayerSpec:
    """One compressed vector a token, the same on every rank."""
    row = cache.row_dim or cache.latent_dim + cache.rope_dim
    row_bytes = latent_bytes(choices.kv_dtype, choices.resolved.dtype, row)
    content = ("latent", row, choices.kv_dtype)
    block = choices.block_tokens
    if cache.window_tokens is not None:
        return LayerSpec(
            "sliding_latent",
            block,
            block * row_bytes,
            content,
            window_tokens=cache.window_tokens,
            retained_tokens=choices.resolved.retained_tokens,
        )
    stride = choices.kernel_of[cache].stride_bytes(block, block * row_bytes)
    return LayerSpec("latent", block, block * row_bytes, content, stride_bytes=stride)


def _indexer(cache: IndexerKeys, choices: Choices) -> LayerSpec:
    block = choices.block_tokens
    page = block // cache.tokens_per_key * cache.key_bytes
    stride = choices.kernel_of[cache].stride_bytes(block, page)
    content = ("indexer", cache.key_bytes, cache.tokens_per_key)
    return LayerSpec("latent", block, page, content, stride_bytes=stride)


def _ring(cache: RingBuffer, options: EngineOptions) -> LayerSpec:
    """Whole groups for the open one and a step's drafts."""
    groups = ceil_div(cache.group_tokens + options.speculative_tokens, cache.group_tokens)
    if cache.power_of_two:
        groups = 1 << (groups - 1).bit_length()
    tokens = cache.group_tokens * groups
    return LayerSpec("ring", tokens, tokens * cache.token_bytes, ("ring", cache.token_bytes), sharded=False)


def _convolution(cache: ConvolutionWindow, options: EngineOptions, choices: Choices) -> LayerSpec:
    if cache.heads % options.tensor_parallel:
        raise Refusal(
            HEADS_NOT_DIVISIBLE,
            f"{cache.heads} heads of the convolution cache do not divide by tensor parallel size "
            f"{options.tensor_parallel}.",
        )
    heads, block = cache.heads // options.tensor_parallel, cache.kernel_tokens
    page = block * heads * cache.head_elements * element_bytes("auto", choices.resolved.dtype)
    content = ("convolution", heads, cache.head_elements)
    return LayerSpec("sliding", block, page, content, window_tokens=block)


def _cross(cache: CrossAttention, options: EngineOptions, choices: Choices) -> LayerSpec:
    heads, block = rank_heads(cache.kv_heads, options.tensor_parallel), choices.block_tokens
    token_bytes = heads * head_bytes(choices.kv_dtype, choices.resolved.dtype, cache.head_dim, cache.head_dim)
    content = (heads, cache.head_dim, choices.kv_dtype)
    return LayerSpec("cross", block, block * token_bytes, content, encoder_tokens=cache.encoder_tokens)


def _state(cache: RecurrentState, facts: ModelFacts, options: EngineOptions, choices: Choices) -> LayerSpec:
    """State of one request, padded to the attention page; without prefix caching one block lasts for all tokens."""
    natural = state_bytes(cache, facts, options, choices.resolved.dtype)
    caching = choices.resolved.prefix_caching
    return LayerSpec(
        "state",
        choices.block_tokens if caching else choices.resolved.max_model_len,
        natural,
        ("state", cache.kind, cache.tensors),
        padded_bytes=choices.state_page_bytes,
        state_blocks=state_blocks(cache, options, prefix_caching=caching),
        keeps_every_state=keeps_every_state(cache, options, prefix_caching=caching),
        sharded=False,
        replicated=all(tensor.replicated for tensor in cache.tensors),
    )


def rank_heads(kv_heads: int, tensor_parallel: int) -> int:
    """KV heads a rank stores: its share, or one replica.

    Raises:
        Refusal: they neither divide nor are divided by the tensor-parallel size.
    """
    if kv_heads % tensor_parallel and tensor_parallel % kv_heads:
        raise Refusal(
            HEADS_NOT_DIVISIBLE,
            f"{kv_heads} KV heads neither divide nor are divided by tensor parallel size {tensor_parallel}.",
        )
    return max(1, kv_heads // tensor_parallel)
