"""Every weight matrix of a model, from its configuration alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from plimsoll.core.memory.mixers import Decoder, mixer
from plimsoll.core.memory.mlps import dense, dense_intermediate, matrices_of, read_experts, routed
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
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


def read_inventory(facts: ModelFacts) -> Inventory:
    """Matrices of the model. Source of every shape: vLLM 0.32 ``model_executor/models``; ``vllm-memory.md`` 5.2."""
    text = Fields(facts.raw, "", facts.model_type)
    decoder = Decoder(facts, text, facts.dims.hidden_size)
    vocabulary = facts.dims.vocab_size
    embedding = Tensor("embed_tokens", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    head = Tensor("lm_head", vocabulary, decoder.hidden, Cut.VOCABULARY, linear=False)
    intermediate, written = dense_intermediate(facts, text)
    has_dense = facts.dims.experts <= 1
    return Inventory(
        first=(embedding,),
        layers=tuple(tuple(layer) for layer in _layers(decoder, intermediate)),
        last=() if facts.dims.tie_word_embeddings else (head,),
        assumed=() if written or not has_dense else ("intermediate_size",),
    )


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
