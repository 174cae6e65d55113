"""Every weight matrix of a model, from its configuration alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from plimsoll.core.memory.decoder import Decoder, open_decoder
from plimsoll.core.memory.mixers import layer_mixers
from plimsoll.core.memory.mlps import Mlps, layer_mlp, read_mlps
from plimsoll.core.memory.states import FLOAT32_BYTES
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.core.memory.towers import tower_tensors
from plimsoll.facts.fields import MAX_TOKENS, Fields
from plimsoll.facts.models import ModelFacts

# Served through transformers' own classes, which compute angles as they go.
_NO_ROTARY_TABLE: Final = frozenset({"SeedOssForCausalLM", "SmolLM3ForCausalLM"})


@dataclass(frozen=True)
class Inventory:
    """Matrices by where they live: before the first layer, in each layer, after the last.

    ``assumed`` names what the configuration did not say.
    """

    first: tuple[Tensor, ...]
    layers: tuple[tuple[Tensor, ...], ...]
    last: tuple[Tensor, ...]
    assumed: tuple[str, ...] = ()


def read_inventory(facts: ModelFacts, *, text_only: bool = False) -> Inventory:
    """Matrices of the model; ``text_only`` leaves its towers out.

    Source of every shape: vLLM 0.32 ``model_executor/models``; ``vllm-memory.md`` 5.2.
    """
    top = Fields(facts.config, "", str(facts.config.get("model_type") or ""))
    decoder = open_decoder(facts)
    mlps = read_mlps(decoder)
    vocabulary = facts.dims.vocab_size
    embedding = Tensor("embed_tokens", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    head = Tensor("lm_head", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    towers = () if text_only or not facts.multimodal else tower_tensors(top, decoder.hidden)
    return Inventory(
        first=(embedding, *towers, *embeddings_per_layer(decoder), *rotary(facts, decoder.text)),
        layers=tuple(tuple(_layer(decoder, mlps, index)) for index in range(facts.dims.layers)),
        last=() if ties_embeddings(facts, top) else (head,),
        assumed=mlps.assumed,
    )


def ties_embeddings(facts: ModelFacts, top: Fields) -> bool:
    """Whether one matrix serves both ends: the wrapper's word or its class's default, else the decoder's."""
    if top.get("tie_word_embeddings") is not None:
        return top.flag("tie_word_embeddings")
    return facts.dims.tie_word_embeddings


def rotary(facts: ModelFacts, text: Fields) -> Iterator[Tensor]:
    """Sines and cosines of every position, kept whole on each rank; one table for each way of rotating.

    Source: vLLM 0.32 ``layers/rotary_embedding``: linear scaling stretches a table by its factor.
    """
    positions = text.optional_int("max_position_embeddings", maximum=MAX_TOKENS)
    width = text.optional_int("rotary_dim", "qk_rope_head_dim") or facts.dims.head_dim
    if not positions or not width or facts.architecture in _NO_ROTARY_TABLE:
        return
    for rope in _ropes(text):
        stretch, share = _rope_number(rope, "factor", 1.0), _rope_number(rope, "partial_rotary_factor", 1.0)
        if rope.get("rope_type", rope.get("type")) != "linear":
            stretch = 1.0
        yield Tensor("rotary", round(positions * stretch), round(width * share), linear=False)


def _ropes(text: Fields) -> tuple[Mapping[str, object], ...]:
    """Each way of rotating: ``rope_parameters`` is one object, or one for each layer type."""
    written = text.get("rope_parameters") or text.get("rope_scaling")
    rope: Mapping[str, object] = written if isinstance(written, Mapping) else {}
    share = {"partial_rotary_factor": text.get("partial_rotary_factor") or 1.0}
    nested = [each for each in rope.values() if isinstance(each, Mapping)]
    if nested:
        return tuple({**share, **each} for each in nested)
    return ({**share, **rope}, share) if text.has("rope_local_base_freq") else ({**share, **rope},)


def _rope_number(rope: Mapping[str, object], key: str, default: float) -> float:
    value = rope.get(key)
    return float(value) if isinstance(value, int | float) else default


def _layer(decoder: Decoder, mlps: Mlps, index: int) -> Iterator[Tensor]:
    path = f"layers.{index}"
    return chain(
        layer_mixers(decoder, index, path),
        layer_mlp(decoder, mlps, index, path),
        _residual(decoder, path),
    )


def _residual(decoder: Decoder, path: str) -> Iterator[Tensor]:
    """Mixing of several residual streams (hyper-connections) and embeddings added in each layer, whole on each rank."""
    streams = decoder.text.optional_int("hc_mult")
    if streams:
        mixed, width = (2 + streams) * streams, streams * decoder.hidden
        yield Tensor(f"{path}.hc_fn", 2 * mixed, width, linear=False, element_bytes=FLOAT32_BYTES)
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
