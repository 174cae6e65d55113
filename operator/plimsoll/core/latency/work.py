"""What one step of a model reads and computes on its fullest GPU, from model facts and flags alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from plimsoll.core.kv import EngineOptions
from plimsoll.core.kv.layers import choose, specs_by_layer
from plimsoll.core.latency.attention import Attention, read_attention
from plimsoll.core.latency.precision import precision_of
from plimsoll.core.memory.tensors import Cut, Padding, Ranks
from plimsoll.core.memory.weights import Stored, expert_padding, read_weights
from plimsoll.facts.gpus import GPU, DataType
from plimsoll.facts.models import ModelFacts

_MODELS_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Matrices:
    """Matrices of one rank: bytes, elements that are unpacked before they are multiplied, FLOPs a token by data type.

    For experts, bytes and elements are of all experts on the rank, FLOPs of one token that visited every expert.
    """

    bytes: float
    unpacked: float
    flops: Mapping[DataType, float]


@dataclass(frozen=True, slots=True)
class Work:
    """One model on one rank of an engine.

    A token visits ``expert_share`` of the experts, which ``expert_ranks`` ranks hold whole (1: each rank holds a slice
    of every expert). ``matrices`` counts those of all layers, the measure of how many kernels a step launches;
    ``routed_layers`` choose experts.
    """

    dense: Matrices
    head: Matrices
    experts: Matrices
    expert_share: float
    expert_ranks: int
    attention: tuple[Attention, ...]
    state_bytes: float
    layers: int
    routed_layers: int
    matrices: int
    hidden_size: int


def read_work(facts: ModelFacts, options: EngineOptions, gpu: GPU, expert_ranks: int = 1) -> Work:
    """Work of a model on ``gpu``, which is the options' device.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    layers, head = _weights(_Identity(facts))
    ranks = Ranks(options.tensor_parallel, expert_ranks)
    experts = {item: count for item, count in layers.items() if item[0].of_experts}
    dense = {item: count for item, count in layers.items() if not item[0].of_experts}
    specs = specs_by_layer(facts, options, choose(facts, options))
    return Work(
        dense=_matrices(dense, ranks, gpu),
        head=_matrices(head, ranks, gpu),
        experts=_matrices(experts, ranks, gpu),
        expert_share=facts.dims.experts_per_token / facts.dims.experts if experts and facts.dims.experts else 0.0,
        expert_ranks=expert_ranks,
        attention=read_attention(facts, specs, options),
        state_bytes=sum(spec.natural_bytes for layer in specs for spec in layer if spec.kind == "state"),
        layers=facts.dims.layers,
        routed_layers=sum(count for (tensor, _), count in experts.items() if tensor.cut is Cut.EXPERT_INPUTS),
        matrices=sum(layers.values()),
        hidden_size=facts.dims.hidden_size,
    )


class _Identity:
    """A model by identity, for the cache below: facts hold mappings and cannot be hashed, but never change."""

    __slots__ = ("facts",)

    def __init__(self, facts: ModelFacts) -> None:
        self.facts = facts

    def __hash__(self) -> int:
        return id(self.facts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.facts is self.facts


@lru_cache(maxsize=_MODELS_KEPT)
def _weights(model: _Identity) -> tuple[Mapping[Stored, int], Mapping[Stored, int]]:
    """Matrices of the layers, and the one that makes logits; reading them takes far longer than a prediction.

    Embeddings are looked up, not read, and vectors (norms, biases) are too small to matter.
    """
    weights = read_weights(model.facts)
    layers = Counter[Stored]()
    for layer in weights.layers:
        layers.update({item: count for item, count in layer.items() if min(item[0].outputs, item[0].inputs) > 1})
    hidden = model.facts.dims.hidden_size
    ends = [item for item in weights.ends if item[0].cut is Cut.VOCABULARY and item[0].inputs == hidden]
    return layers, {ends[-1]: 1} if ends else {}


def _matrices(stored: Mapping[Stored, int], ranks: Ranks, gpu: GPU) -> Matrices:
    total = unpacked = 0.0
    flops: dict[DataType, float] = {}
    for (tensor, fmt), count in stored.items():
        padding = expert_padding(fmt, gpu.capability or (0, 0)) if tensor.of_experts else Padding()
        outputs, inputs, copies = tensor.on_rank(ranks, padding)
        dtype, unpacks = precision_of(fmt, gpu)
        elements = outputs * inputs * count
        total += fmt.bytes(outputs, inputs) * copies * count
        unpacked += elements * copies if unpacks else 0
        flops[dtype] = flops.get(dtype, 0.0) + 2.0 * elements * tensor.copies
    return Matrices(total, unpacked, flops)
