"""Every weight matrix of a model, from its configuration alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from plimsoll.core.memory.mixers import Decoder, mixer
from plimsoll.core.memory.mlps import dense, dense_intermediate, matrices_of, read_experts, routed
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
    text = Fields(facts.raw, "", facts.model_type)
    decoder = Decoder(facts, text, facts.dims.hidden_size)
    vocabulary = facts.dims.vocab_size
    embedding = Tensor("embed_tokens", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    head = Tensor("lm_head", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    towers = () if text_only or not facts.multimodal else tower_tensors(top, decoder.hidden)
    intermediate, written = dense_intermediate(facts, text)
    has_dense = facts.dims.experts <= 1
    return Inventory(
        first=(embedding, *towers, *rotary(facts, text)),
        layers=tuple(tuple(layer) for layer in _layers(decoder, intermediate)),
        last=() if ties_embeddings(facts, top) else (head,),
        assumed=() if written or not has_dense else ("intermediate_size",),
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


def _layers(decoder: Decoder, intermediate: int) -> Iterator[Iterator[Tensor]]:
    experts = read_experts(decoder.facts, decoder.text)
    matrices = matrices_of(decoder.facts)
    for index in range(decoder.facts.dims.layers):
        path = f"layers.{index}"
        sparse = experts is not None and experts.sparse[index]
        yield chain(
            _mixers(decoder, index, path),
            routed(f"{path}.mlp", decoder.hidden, experts, matrices)
            if experts is not None and sparse
            else dense(f"{path}.mlp", decoder.hidden, intermediate, matrices),
        )


def _mixers(decoder: Decoder, index: int, path: str) -> Iterator[Tensor]:
    layers = decoder.facts.layers
    layer = layers[index]
    owner = layer if layer.shares_cache_of is None else layers[layer.shares_cache_of]
    return chain.from_iterable(mixer(decoder, index, path, cache) for cache in owner.caches)
