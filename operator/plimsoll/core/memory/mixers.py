"""Weight matrices of what mixes tokens in a layer: attention of every kind, recurrent state."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import (
    Cache,
    CrossAttention,
    IndexerKeys,
    LatentAttention,
    ModelFacts,
    RecurrentState,
    SoftmaxAttention,
)


@dataclass(frozen=True)
class Decoder:
    """What every mixer needs to know about the decoder around it."""

    facts: ModelFacts
    text: Fields
    hidden: int


def mixer(decoder: Decoder, index: int, path: str, cache: Cache) -> Iterator[Tensor]:
    """Matrices of the mixer that fills ``cache`` in layer ``index``, named below ``path`` (``layers.7``)."""
    match cache:
        case SoftmaxAttention():
            heads = decoder.text.integers("num_attention_heads_per_layer")
            own = replace(cache, query_heads=heads[index]) if heads else cache
            yield from attention(decoder, f"{path}.self_attn", own)
        case LatentAttention():
            yield from latent_attention(decoder, f"{path}.self_attn", cache)
        case IndexerKeys():
            yield from indexer(decoder, f"{path}.self_attn.indexer")
        case CrossAttention():
            yield from cross_attention(decoder, f"{path}.encoder_attn", cache)
        case RecurrentState(kind="gdn"):
            yield from gated_delta_net(decoder, f"{path}.linear_attn", cache)
        case _:
            return


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
    """Compressed queries (where the model has them), the shared latent, and its expansion a head."""
    width = heads.query_heads * (heads.nope_dim + heads.rope_dim)
    query_rank = decoder.text.optional_int("q_lora_rank")
    if query_rank:
        yield Tensor(f"{path}.q_a_proj", query_rank, decoder.hidden)
        yield Tensor(f"{path}.q_b_proj", width, query_rank, Cut.OUTPUTS)
    else:
        yield Tensor(f"{path}.q_proj", width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.kv_a_proj_with_mqa", heads.latent_dim + heads.rope_dim, decoder.hidden)
    expanded = heads.query_heads * (heads.nope_dim + heads.value_dim)
    yield Tensor(f"{path}.kv_b_proj", expanded, heads.latent_dim, Cut.OUTPUTS)
    yield Tensor(f"{path}.o_proj", decoder.hidden, heads.query_heads * heads.value_dim, Cut.INPUTS)


def indexer(decoder: Decoder, path: str) -> Iterator[Tensor]:
    """The sparse indexer: replicated on every rank, its head weights never quantised."""
    heads, width = decoder.text.integer("index_n_heads"), decoder.text.integer("index_head_dim")
    yield Tensor(f"{path}.wq_b", heads * width, decoder.text.optional_int("q_lora_rank") or decoder.hidden)
    yield Tensor(f"{path}.wk", width, decoder.hidden)
    yield Tensor(f"{path}.weights_proj", heads, decoder.hidden, linear=False)


def cross_attention(decoder: Decoder, path: str, heads: CrossAttention) -> Iterator[Tensor]:
    """Attention over an encoder's output."""
    width, kv_width = heads.query_heads * heads.head_dim, heads.kv_heads * heads.head_dim
    yield Tensor(f"{path}.q_proj", width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.k_proj", kv_width, decoder.hidden, Cut.HEADS, unit=heads.head_dim)
    yield Tensor(f"{path}.v_proj", kv_width, decoder.hidden, Cut.HEADS, unit=heads.head_dim)
    yield Tensor(f"{path}.out_proj", decoder.hidden, width, Cut.INPUTS)


def gated_delta_net(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Projections to queries, keys, values and gate, a short convolution, and the way back."""
    convolved = state.tensors[0].rows
    value_dim = decoder.text.integer("linear_value_head_dim")
    value_width = state.heads * value_dim
    yield Tensor(f"{path}.in_proj_qkv", convolved, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.in_proj_z", value_width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.in_proj_ba", 2 * state.heads, decoder.hidden, Cut.OUTPUTS)
    kernel = state.tensors[0].columns + 1
    yield Tensor(f"{path}.conv1d", convolved, kernel, Cut.OUTPUTS, linear=False)
    yield Tensor(f"{path}.out_proj", decoder.hidden, value_width, Cut.INPUTS)
