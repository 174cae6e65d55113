"""Weight matrices of attention in all its kinds."""

from collections.abc import Iterator
from dataclasses import replace

from plimsoll.core.memory.decoder import Decoder
from plimsoll.core.memory.states import state_mixer
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import (
    CompressedAttention,
    CrossAttention,
    IndexerKeys,
    LatentAttention,
    Layer,
    RecurrentState,
    SoftmaxAttention,
)


def layer_mixers(decoder: Decoder, index: int, path: str) -> Iterator[Tensor]:
    """Matrices of everything in layer ``index`` that mixes tokens, named below ``path`` (``layers.7``).

    A layer that shares an earlier one's cache computes queries only.
    """
    layers = decoder.facts.layers
    layer = layers[index]
    if layer.shares_cache_of is not None:
        for tensor in cache_mixers(decoder, index, path, layers[layer.shares_cache_of]):
            if not tensor.path.endswith((".k_proj", ".v_proj")):
                yield tensor
        return
    yield from cache_mixers(decoder, index, path, layer)


def cache_mixers(decoder: Decoder, index: int, path: str, layer: Layer) -> Iterator[Tensor]:
    """Matrices of whatever fills the caches of ``layer``, built as at position ``index``."""
    for cache in layer.caches:
        match cache:
            case SoftmaxAttention() if decoder.text.has("kv_lora_rank"):
                yield from latent_attention(decoder, f"{path}.self_attn", _as_latent(decoder.text, cache))
            case SoftmaxAttention():
                yield from attention(decoder, f"{path}.self_attn", _of_layer(decoder.text, index, cache))
            case LatentAttention():
                yield from latent_attention(decoder, f"{path}.self_attn", cache)
            case IndexerKeys():
                yield from indexer(decoder, f"{path}.self_attn.indexer")
            case CompressedAttention():
                yield from compressed_attention(decoder, f"{path}.self_attn", cache)
            case CrossAttention():
                yield from cross_attention(decoder, f"{path}.encoder_attn", cache)
            case RecurrentState():
                yield from state_mixer(decoder, path, cache)


def _of_layer(text: Fields, index: int, heads: SoftmaxAttention) -> SoftmaxAttention:
    """Query heads where layers differ in them: a list, or Step's second setting for sliding layers."""
    listed = text.integers("num_attention_heads_per_layer")
    if listed and index < len(listed):
        return replace(heads, query_heads=listed[index])
    other = text.child("attention_other_setting")
    if other is not None and heads.window_tokens is not None:
        return replace(heads, query_heads=other.optional_int("num_attention_heads") or heads.query_heads)
    return heads


def _as_latent(text: Fields, heads: SoftmaxAttention) -> LatentAttention:
    """Latent projections of a class that caches whole heads (MiniCPM3, or MLA switched off)."""
    return LatentAttention(
        query_heads=heads.query_heads,
        latent_dim=text.integer("kv_lora_rank"),
        rope_dim=text.integer("qk_rope_head_dim", minimum=0),
        nope_dim=text.integer("qk_nope_head_dim"),
        value_dim=text.optional_int("v_head_dim") or decoder_head_dim(text),
    )


def decoder_head_dim(text: Fields) -> int:
    """Width of a head by division."""
    return text.integer("hidden_size") // text.integer("num_attention_heads")


def attention(decoder: Decoder, path: str, heads: SoftmaxAttention) -> Iterator[Tensor]:
    """Query, key, value and output projections; a gated model's query projection is doubled."""
    query = heads.query_heads * heads.head_dim * (2 if gates_output(decoder.text) else 1)
    yield Tensor(f"{path}.q_proj", query, decoder.hidden, Cut.OUTPUTS)
    key, value = heads.kv_heads * heads.head_dim, heads.kv_heads * heads.value_dim
    yield Tensor(f"{path}.k_proj", key, decoder.hidden, Cut.HEADS, unit=heads.head_dim)
    yield Tensor(f"{path}.v_proj", value, decoder.hidden, Cut.HEADS, unit=heads.value_dim)
    yield Tensor(f"{path}.o_proj", decoder.hidden, heads.query_heads * heads.value_dim, Cut.INPUTS)


def gates_output(text: Fields) -> bool:
    """Whether attention's output is gated by a second half of the query projection."""
    return text.flag("attn_output_gate", default=text.has("linear_num_value_heads"))


def latent_attention(decoder: Decoder, path: str, heads: LatentAttention) -> Iterator[Tensor]:
    """Compressed queries (where the model has them), the shared latent, its expansion a head, and an output gate."""
    text = decoder.text
    width = heads.query_heads * (heads.nope_dim + heads.rope_dim)
    query_rank = text.optional_int("q_lora_rank")
    if query_rank:
        yield Tensor(f"{path}.q_a_proj", query_rank, decoder.hidden)
        yield Tensor(f"{path}.q_b_proj", width, query_rank, Cut.OUTPUTS)
    else:
        yield Tensor(f"{path}.q_proj", width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.kv_a_proj_with_mqa", heads.latent_dim + heads.rope_dim, decoder.hidden)
    expanded = heads.query_heads * (heads.nope_dim + heads.value_dim)
    yield Tensor(f"{path}.kv_b_proj", expanded, heads.latent_dim, Cut.OUTPUTS)
    yield Tensor(f"{path}.o_proj", decoder.hidden, heads.query_heads * heads.value_dim, Cut.INPUTS)
    if text.flag("mla_use_output_gate") or text.flag("gated_mla"):
        yield Tensor(f"{path}.g_proj", heads.query_heads * heads.value_dim, decoder.hidden, Cut.OUTPUTS)


def indexer(decoder: Decoder, path: str) -> Iterator[Tensor]:
    """The sparse indexer: whole on every rank, its head weights never quantised."""
    heads = decoder.text.optional_int("index_n_heads", "indexer_n_heads") or 0
    width = decoder.text.optional_int("index_head_dim", "indexer_head_dim") or 0
    yield Tensor(f"{path}.wq_b", heads * width, decoder.text.optional_int("q_lora_rank") or decoder.hidden)
    yield Tensor(f"{path}.wk", width, decoder.hidden)
    yield Tensor(f"{path}.weights_proj", heads, decoder.hidden, linear=False)


def compressed_attention(decoder: Decoder, path: str, cache: CompressedAttention) -> Iterator[Tensor]:
    """DeepSeek V4: one latent of a head's width for all heads, low-rank queries and outputs, compressors.

    Source: vLLM 0.32 ``models/deepseek_v4/attention.py``, ``compressor.py``.
    """
    text, hidden = decoder.text, decoder.hidden
    rank, groups = text.integer("q_lora_rank"), text.integer("o_groups")
    width = text.integer("num_attention_heads") * cache.head_dim
    grouped = groups * text.integer("o_lora_rank")
    yield Tensor(f"{path}.wq_a", rank, hidden)
    yield Tensor(f"{path}.wkv", cache.head_dim, hidden)
    yield Tensor(f"{path}.wq_b", width, rank, Cut.OUTPUTS)
    yield Tensor(f"{path}.wo_a", grouped, width // groups, Cut.OUTPUTS)
    yield Tensor(f"{path}.wo_b", hidden, grouped, Cut.INPUTS)
    if cache.ratio and cache.owns_keys:
        yield Tensor(f"{path}.compressor.wkv_gate", 2 * _overlap(cache) * cache.head_dim, hidden, linear=False)
    if cache.indexer_dim:
        yield Tensor(f"{path}.indexer.wq_b", text.integer("index_n_heads") * cache.indexer_dim, rank)
        yield Tensor(f"{path}.indexer.weights_proj", text.integer("index_n_heads"), hidden, linear=False)
        yield Tensor(
            f"{path}.indexer.compressor.wkv_gate", 2 * _overlap(cache) * cache.indexer_dim, hidden, linear=False
        )


def _overlap(cache: CompressedAttention) -> int:
    """Windows of pooling overlap where few tokens are pooled: twice the width."""
    return 2 if 0 < cache.ratio <= 4 else 1  # noqa: PLR2004


def cross_attention(decoder: Decoder, path: str, heads: CrossAttention) -> Iterator[Tensor]:
    """Attention over an encoder's output."""
    width, kv_width = heads.query_heads * heads.head_dim, heads.kv_heads * heads.head_dim
    yield Tensor(f"{path}.q_proj", width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.k_proj", kv_width, decoder.hidden, Cut.HEADS, unit=heads.head_dim)
    yield Tensor(f"{path}.v_proj", kv_width, decoder.hidden, Cut.HEADS, unit=heads.head_dim)
    yield Tensor(f"{path}.out_proj", decoder.hidden, width, Cut.INPUTS)
