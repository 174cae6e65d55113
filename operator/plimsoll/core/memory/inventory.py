"""Every weight matrix of a model, from its configuration alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from plimsoll.core.memory.mixers import Decoder, mixer
from plimsoll.core.memory.mlps import dense, dense_intermediate, matrices_of, read_experts, routed
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.core.memory.towers import tower_tensors
from plimsoll.facts.fields import MAX_TOKENS, Fields
from plimsoll.facts.models import ModelFacts


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
    """Sines and cosines of every position, kept on each rank. Source: vLLM 0.32 ``layers/rotary_embedding``."""
    positions = text.optional_int("max_position_embeddings", maximum=MAX_TOKENS)
    head = text.optional_int("qk_rope_head_dim") or facts.dims.head_dim
    if positions and head:
        yield Tensor("rotary", positions, head, linear=False)


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
    return chain.from_iterable(mixer(decoder, path, cache) for cache in owner.caches)
