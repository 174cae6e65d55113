"""What attention reads and computes for each token of context, layer kinds apart by how far back they look."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.core.kv import EngineOptions
from plimsoll.core.kv.specs import LayerSpec
from plimsoll.facts.models import (
    Cache,
    CompressedAttention,
    IndexerKeys,
    LatentAttention,
    Layer,
    ModelFacts,
    SoftmaxAttention,
)

EVERY_TOKEN: Final = 1 << 60
_TOP_K: Final = 2048
"""Tokens a sparse-attention indexer picks where the configuration does not say."""
_INDEXER_HEADS: Final = 64
_BLACKWELL: Final = (10, 0)
_HOPPER_TILE: Final = 64
_BLACKWELL_TILE: Final = 128
"""Query heads that sparse latent kernels pad to. Source: vLLM 0.32 ``v1/attention/backends/mla/flashmla_sparse.py``."""
_WINDOWED: Final = frozenset({"sliding", "sliding_latent", "chunked"})
_PER_TOKEN: Final = _WINDOWED | {"full", "latent"}


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention of all layers of one reach on one rank.

    A request reads ``bytes_per_token`` of each of its last ``reach_tokens`` of context. FLOPs are those of one query
    token with one token of context.
    """

    reach_tokens: int
    bytes_per_token: float = 0.0
    decode_flops: float = 0.0
    prefill_flops: float = 0.0

    def plus(self, other: "Attention", layers: float) -> "Attention":
        """Itself and as many layers like ``other``, which reach as far."""
        return Attention(
            self.reach_tokens,
            self.bytes_per_token + layers * other.bytes_per_token,
            self.decode_flops + layers * other.decode_flops,
            self.prefill_flops + layers * other.prefill_flops,
        )


def read_attention(
    facts: ModelFacts, specs: Sequence[tuple[LayerSpec, ...]], options: EngineOptions
) -> tuple[Attention, ...]:
    """Attention of a model by reach. A layer that shares an earlier one's cache reads it all the same."""
    owners = [
        index if layer.shares_cache_of is None else layer.shares_cache_of for index, layer in enumerate(facts.layers)
    ]
    first: dict[tuple[int, int], int] = {}
    alike = Counter(first.setdefault((id(facts.layers[owner]), id(specs[owner])), owner) for owner in owners)
    found: dict[int, Attention] = {}
    for owner, layers in alike.items():
        for part in _parts(facts.layers[owner], specs[owner], facts, options):
            reach = part.reach_tokens
            found[reach] = found.get(reach, Attention(reach)).plus(part, layers)
    return tuple(found.values())


def _parts(
    layer: Layer, specs: tuple[LayerSpec, ...], facts: ModelFacts, options: EngineOptions
) -> Iterator[Attention]:
    top_k = facts.raw.get("index_topk")
    picked = top_k if isinstance(top_k, int) else _TOP_K
    for spec in specs:
        if spec.kind in _PER_TOKEN:
            ranks = options.decode_context_parallel if spec.sharded else 1
            yield Attention(_reach(spec, layer, picked), spec.natural_bytes / spec.block_tokens / ranks)
    for cache in layer.caches:
        yield from _flops(cache, facts, options, picked)


def _reach(spec: LayerSpec, layer: Layer, picked: int) -> int:
    """Tokens of context that are read: a window, what an indexer picked (its own keys are read whole), or all."""
    if spec.kind in _WINDOWED:
        return spec.window_tokens
    what = spec.content[0] if isinstance(spec.content, tuple) else None
    for cache in layer.caches:
        if isinstance(cache, LatentAttention) and cache.sparse and what == "latent":
            return picked
        if isinstance(cache, CompressedAttention) and cache.indexer_dim is not None and what == "pooled":
            return picked * cache.ratio
    return EVERY_TOKEN


def _flops(cache: Cache, facts: ModelFacts, options: EngineOptions, picked: int) -> Iterator[Attention]:
    """Two matrix products for each pair of query and context token, on the heads of one rank."""
    ranks = options.tensor_parallel
    match cache:
        case SoftmaxAttention():
            reach = cache.window_tokens or cache.chunk_tokens or EVERY_TOKEN
            flops = 2.0 * cache.query_heads / ranks * (cache.head_dim + cache.value_dim)
            yield Attention(reach, decode_flops=flops, prefill_flops=flops)
        case LatentAttention():
            yield _latent(cache, options, picked)
        case IndexerKeys():
            heads, width = facts.raw.get("index_n_heads"), facts.raw.get("index_head_dim")
            count = heads if isinstance(heads, int) else _INDEXER_HEADS
            flops = 2.0 * count * (width if isinstance(width, int) else cache.key_bytes)
            yield Attention(EVERY_TOKEN, decode_flops=flops, prefill_flops=flops)
        case CompressedAttention():
            flops = 4.0 * facts.dims.query_heads / ranks * cache.head_dim
            yield Attention(cache.window_tokens, decode_flops=flops, prefill_flops=flops)
            if cache.ratio:
                reach = EVERY_TOKEN if cache.indexer_dim is None else picked * cache.ratio
                yield Attention(reach, decode_flops=flops / cache.ratio, prefill_flops=flops / cache.ratio)
        case _:
            return


def _latent(cache: LatentAttention, options: EngineOptions, picked: int) -> Attention:
    """Decoding works on the compressed vectors themselves; prefill expands them, unless attention is sparse.

    Latent kernels fill whole tiles of query heads, so splitting heads over ranks stops helping them.
    """
    ranks = options.tensor_parallel
    heads = cache.query_heads / ranks
    compressed = 2.0 * (2 * cache.latent_dim + cache.rope_dim)
    expanded = 2.0 * (cache.nope_dim + cache.rope_dim + cache.value_dim)
    tiled = max(heads, _HOPPER_TILE)
    if cache.sparse:
        tile = _BLACKWELL_TILE if options.capability >= _BLACKWELL else _HOPPER_TILE
        return Attention(picked, decode_flops=tiled * compressed, prefill_flops=max(heads, tile) * compressed)
    reach = cache.window_tokens or EVERY_TOKEN
    return Attention(reach, decode_flops=tiled * compressed, prefill_flops=heads * expanded)
