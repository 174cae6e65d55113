"""Every weight matrix of a model, from its configuration alone."""

from collections.abc import Iterator
from dataclasses import dataclass

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
    facts = decoder.facts
    experts = read_experts(facts, decoder.text)
    matrices = matrices_of(facts)
    for index in range(facts.dims.layers):
        path = f"layers.{index}"
        yield _layer(decoder, index, path, experts, intermediate, matrices)


def _layer(decoder, index, path, experts, intermediate, matrices):  # type: ignore[no-untyped-def]
    layer = decoder.facts.layers[index]
    caches = layer.caches if layer.shares_cache_of is None else decoder.facts.layers[layer.shares_cache_of].caches
    for cache in caches:
        yield from mixer(decoder, path, cache)
    if experts is not None and experts.sparse[index]:
        yield from routed(f"{path}.mlp", decoder.hidden, experts, matrices)
    else:
        yield from dense(f"{path}.mlp", decoder.hidden, intermediate, matrices)
