"""Caches of DeepSeek V4 and V4.1: windows of latents, pooled latents, indexer keys, and the state of their pooling.

Source: vLLM 0.32 ``models/deepseek_v4`` and ``models/deepseek_v41`` (attention, compressor), ``sparse_swa.py``.
"""

from dataclasses import dataclass

from plimsoll.core.kv.options import BLACKWELL, EngineOptions
from plimsoll.core.kv.specs import LayerSpec, round_up
from plimsoll.facts.models import CompressedAttention

_FLOAT32_BYTES = 4
_SCALED_KEY_GROUP = 128
_OVERLAPPING_RATIO = 4


@dataclass(frozen=True, slots=True)
class Records:
    """How a generation packs latents on a device: bytes a record, tokens a block, and the unit pages round up to."""

    window_bytes: int
    window_block_tokens: int
    pooled_bytes: int
    block_tokens: int
    alignment_bytes: int
    window_alignment_bytes: int


_V4 = Records(584, 64, 584, 256, 576, 576)
_V41 = Records(584, 32, 584, 64, 576, 576)
_V41_BLACKWELL = Records(528, 32, 288, 128, 512, 512)


def records(cache: CompressedAttention, options: EngineOptions) -> Records:
    """The records of this generation on this device."""
    if cache.generation == "v4":
        return _V4
    return _V41_BLACKWELL if options.generation == BLACKWELL else _V41


def compressed_block(cache: CompressedAttention, options: EngineOptions) -> int:
    """Block size of full attention in tokens; the kernels take no other."""
    return records(cache, options).block_tokens


def compressed_specs(cache: CompressedAttention, options: EngineOptions, kv_dtype: str) -> tuple[LayerSpec, ...]:
    """A window for every layer; pooled latents, indexer keys and pooling state where the layer owns them."""
    sizes = records(cache, options)
    window = _page(sizes.window_block_tokens, sizes.window_bytes, sizes.window_alignment_bytes)
    specs = [
        LayerSpec(
            "sliding_latent",
            sizes.window_block_tokens,
            window,
            ("window", sizes.window_bytes, kv_dtype),
            window_tokens=cache.window_tokens,
        )
    ]
    if cache.owns_keys and cache.ratio > 0:
        specs += _pooled(cache, sizes, options, kv_dtype)
    return tuple(specs)


def _pooled(cache: CompressedAttention, sizes: Records, options: EngineOptions, kv_dtype: str) -> list[LayerSpec]:
    states = sizes.block_tokens // cache.ratio
    found = []
    if cache.indexer_dim is not None:
        key_bytes = cache.indexer_dim + cache.indexer_dim // _SCALED_KEY_GROUP * _FLOAT32_BYTES
        page = _page(states, key_bytes, sizes.alignment_bytes)
        found.append(LayerSpec("latent", sizes.block_tokens, page, ("indexer", key_bytes, cache.ratio)))
        if cache.generation == "v4":
            found.append(_compressor_window(cache, cache.indexer_dim, sizes))
    page = _page(states, sizes.pooled_bytes, sizes.alignment_bytes)
    found.append(LayerSpec("latent", sizes.block_tokens, page, ("pooled", sizes.pooled_bytes, cache.ratio, kv_dtype)))
    if cache.generation == "v4":
        found.append(_compressor_window(cache, cache.head_dim, sizes))
    elif cache.ratio > 1:
        found.append(_compressor_ring(cache, options))
    return found


def _compressor_window(cache: CompressedAttention, dim: int, sizes: Records) -> LayerSpec:
    """Keys and scores still being pooled, in float32; ratio 4 overlaps two groups."""
    overlap, block = (2, 4) if cache.ratio == _OVERLAPPING_RATIO else (1, 8)
    state_bytes = 2 * overlap * dim * _FLOAT32_BYTES
    return LayerSpec(
        "sliding_latent",
        block,
        _page(block, state_bytes, sizes.alignment_bytes),
        ("compressor", state_bytes),
        window_tokens=overlap * cache.ratio,
    )


def _compressor_ring(cache: CompressedAttention, options: EngineOptions) -> LayerSpec:
    """The open group's keys and scores; a ring of a power of two rows, eight at least."""
    rows = max(8, 1 << (options.speculative_tokens + 1).bit_length())
    state_bytes = 2 * cache.head_dim * _FLOAT32_BYTES
    return LayerSpec("ring", rows, rows * state_bytes, ("compressor", state_bytes))


def _page(states: int, state_bytes: int, alignment_bytes: int) -> int:
    return round_up(states * state_bytes, alignment_bytes)
