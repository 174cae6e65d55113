"""Every weight matrix of a model, from its configuration alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from plimsoll.core.memory.decoder import Decoder, open_decoder
from plimsoll.core.memory.mixers import cache_mixers, layer_mixers
from plimsoll.core.memory.mlps import Mlps, layer_mlp, read_mlps
from plimsoll.core.memory.rotary import rotary_tables
from plimsoll.core.memory.states import FLOAT32_BYTES
from plimsoll.core.memory.tensors import ANY_LAYER, Cut, Tensor
from plimsoll.core.memory.towers import open_wrapper, tower_tensors
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import ModelFacts

# Whatever the file says about quantisation, their classes build attention without it.
_PLAIN_MIXERS: Final = frozenset({"glm5_next_text"})
# Their classes build both ends on every stage of a pipeline. Source: vLLM 0.32 ``models/gpt_oss.py``.
_ENDS_EVERYWHERE: Final = frozenset({"gpt_oss"})


@dataclass(frozen=True)
class Inventory:
    """Matrices by where they live: before the first layer, in each layer, after the last, on every stage.

    Layers built alike share one tuple; their matrices are named ``layers.*.…``, to be numbered by whoever must tell
    them apart. ``draft`` is one module of the checkpoint's own multi-token predictor, loaded only to speculate.
    ``assumed`` names what the configuration did not say.
    """

    first: tuple[Tensor, ...]
    layers: tuple[tuple[Tensor, ...], ...]
    last: tuple[Tensor, ...]
    everywhere: tuple[Tensor, ...]
    draft: tuple[Tensor, ...]
    assumed: tuple[str, ...] = ()


def read_inventory(facts: ModelFacts, *, text_only: bool = False, whole_towers: bool = False) -> Inventory:
    """Matrices of the model; ``text_only`` leaves its towers out, ``whole_towers`` puts all of them on each rank.

    Source of every shape: vLLM 0.32 ``model_executor/models``.
    """
    top = open_wrapper(facts)
    decoder = open_decoder(facts)
    mlps = read_mlps(decoder)
    vocabulary = facts.dims.vocab_size
    embedding = Tensor("embed_tokens", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    head = Tensor("lm_head", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    towers = () if text_only else tuple(tower_tensors(top, decoder.hidden))
    if whole_towers:
        towers = tuple(replace(tensor, cut=Cut.NONE) for tensor in towers)
    last = () if ties_embeddings(facts, top) else (head,)
    everywhere = (embedding, *last) if facts.model_type in _ENDS_EVERYWHERE else ()
    return Inventory(
        first=(*(() if everywhere else (embedding,)), *towers, *embeddings_per_layer(decoder)),
        layers=_layers(decoder, mlps),
        last=() if everywhere else last,
        everywhere=(*everywhere, *rotary_tables(decoder)),
        draft=tuple(_draft_module(decoder, mlps)),
        assumed=mlps.assumed,
    )


def ties_embeddings(facts: ModelFacts, top: Fields) -> bool:
    """Whether one matrix serves both ends: the wrapper's word or its class's default, else the decoder's."""
    if top.get("tie_word_embeddings") is not None:
        return top.flag("tie_word_embeddings")
    return facts.dims.tie_word_embeddings


def _layers(decoder: Decoder, mlps: Mlps) -> tuple[tuple[Tensor, ...], ...]:
    """Each layer's matrices, built once for all that have the same caches, query heads and MLP."""
    built: dict[object, tuple[Tensor, ...]] = {}
    heads = decoder.text.integers("num_attention_heads_per_layer") or ()
    found = []
    for index, layer in enumerate(decoder.facts.layers[: decoder.facts.dims.layers]):
        alike = (layer, heads[index : index + 1], mlps.kinds[index], mlps.widths[index])
        if alike not in built:
            built[alike] = tuple(_layer(decoder, mlps, index))
        found.append(built[alike])
    return tuple(found)


def _layer(decoder: Decoder, mlps: Mlps, index: int) -> Iterator[Tensor]:
    path = f"layers.{ANY_LAYER}"
    mixers = layer_mixers(decoder, index, path)
    if decoder.facts.model_type in _PLAIN_MIXERS:
        mixers = (replace(tensor, linear=False) for tensor in mixers)
    return chain(
        mixers,
        layer_mlp(decoder, mlps, index, path),
        _residual(decoder, path),
    )


def _draft_module(decoder: Decoder, mlps: Mlps) -> Iterator[Tensor]:
    """One module of the predictor: a projection of two hidden states into one, and a layer like the target's last."""
    index = decoder.facts.dims.layers
    path = f"layers.{index}"
    for layer in decoder.facts.draft_layers[:1]:
        yield Tensor(f"{path}.eh_proj", decoder.hidden, 2 * decoder.hidden, linear=False)
        yield from cache_mixers(decoder, index - 1, path, layer)
        yield from layer_mlp(decoder, mlps, index - 1, path)


def _residual(decoder: Decoder, path: str) -> Iterator[Tensor]:
    """Mixing of several residual streams (hyper-connections) and embeddings added in each layer, whole on each rank."""
    streams = decoder.text.optional_int("hc_mult")
    if streams:
        mixed, width = (2 + streams) * streams, streams * decoder.hidden
        yield Tensor(f"{path}.hc_fn", 2 * mixed, width, linear=False, element_bytes=FLOAT32_BYTES)
    rank = decoder.text.optional_int("hc_lowrank")
    if rank:
        width = (decoder.text.optional_int("hc_count") or 1) * decoder.hidden
        yield Tensor(f"{path}.hc_lowrank", 4 * rank, width, linear=False)
    added = decoder.text.optional_int("hidden_size_per_layer_input")
    if added:
        yield Tensor(f"{path}.per_layer_input_gate", added, decoder.hidden)
        yield Tensor(f"{path}.per_layer_projection", decoder.hidden, added)


def embeddings_per_layer(decoder: Decoder) -> Iterator[Tensor]:
    """Gemma 3n and 4 look every token up once more for all layers."""
    added = decoder.text.optional_int("hidden_size_per_layer_input")
    if added:
        vocabulary = decoder.text.optional_int("vocab_size_per_layer_input") or decoder.facts.dims.vocab_size
        width = added * decoder.facts.dims.layers
        yield Tensor("embed_tokens_per_layer", vocabulary, width, Cut.VOCABULARY, linear=False)
        yield Tensor("per_layer_model_projection", width, decoder.hidden, Cut.OUTPUTS, linear=False)
