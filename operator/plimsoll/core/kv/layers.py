"""From what a model stores to what vLLM caches for it: one spec for every cache of every layer.

Source: vLLM 0.32 ``get_kv_cache_spec`` of each layer class.
"""

from collections.abc import Sequence

from plimsoll.core.kv.choices import Choices, choose, unpacked, unpacked_layers
from plimsoll.core.kv.compressed import compressed_specs
from plimsoll.core.kv.dtypes import element_bytes, head_bytes, latent_bytes
from plimsoll.core.kv.options import EngineOptions
from plimsoll.core.kv.refusals import BAD_FLAG, HEADS_NOT_DIVISIBLE, Refusal
from plimsoll.core.kv.specs import LayerSpec, ceil_div
from plimsoll.core.kv.states import keeps_every_state, state_blocks, state_bytes
from plimsoll.facts.models import (
    Cache,
    CompressedAttention,
    ConvolutionWindow,
    CrossAttention,
    IndexerKeys,
    LatentAttention,
    Layer,
    ModelFacts,
    RecurrentState,
    RingBuffer,
    SoftmaxAttention,
)


def layer_specs(facts: ModelFacts, options: EngineOptions) -> tuple[LayerSpec, ...]:
    """Every cache of the target model on one rank, in layer order.

    Raises:
        Refusal: as ``choose``.
    """
    choices = choose(facts, options)
    return tuple(spec for specs in specs_by_layer(facts, facts.layers, options, choices) for spec in specs)


def specs_by_layer(
    facts: ModelFacts, layers: Sequence[Layer], options: EngineOptions, choices: Choices
) -> list[tuple[LayerSpec, ...]]:
    """The caches of each of ``layers``; layers of one kind share one tuple."""
    plain_layers = unpacked_layers(facts, options, choices.kv_dtype)
    plain = unpacked(choices, facts, options) if plain_layers else choices
    seen: dict[tuple[int, bool], tuple[LayerSpec, ...]] = {}
    found = []
    for index, layer in enumerate(layers):
        key = (id(layer), index in plain_layers)
        if key not in seen:
            of_layer = plain if index in plain_layers else choices
            seen[key] = tuple(spec for cache in layer.caches for spec in _specs(cache, facts, options, of_layer))
        found.append(seen[key])
    return found


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
    dims, scales = (cache.head_dim, cache.value_dim), not options.on_cpu
    token_bytes = heads * head_bytes(choices.kv_dtype, choices.resolved.dtype, *dims, scales=scales)
    content = (heads, *dims, choices.kv_dtype)
    block = choices.block_tokens
    if cache.window_tokens is not None and not options.disable_sliding_window:
        if options.decode_context_parallel > 1:
            raise Refusal(BAD_FLAG, "decode_context_parallel_size above 1 does not support sliding windows.")
        shared = choices.window_page_bytes
        if options.rules.window_blocks:
            budget = block if shared is None else shared // token_bytes
            block = choices.kernel_of[cache].largest_block_within(budget)
        return LayerSpec(
            "sliding",
            block,
            block * token_bytes,
            content,
            padded_bytes=shared,
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
