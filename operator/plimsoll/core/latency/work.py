"""What one step of a model reads and computes on its fullest GPU, from model facts and flags alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from plimsoll.core.kv import EngineOptions
from plimsoll.core.kv.choices import choose
from plimsoll.core.kv.layers import specs_by_layer
from plimsoll.core.latency.attention import Attention, read_attention
from plimsoll.core.latency.precision import precision_of
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.memory.checkpoint import likely_quantisations
from plimsoll.core.memory.loaded import ranks_of
from plimsoll.core.memory.tensors import Cut, Padding, Ranks
from plimsoll.core.memory.weights import Counts, Stored, expert_padding, read_weights
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


def read_work(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags, gpu: GPU) -> Work:
    """Work of a model on ``gpu``, which is the options' device.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    weights = _weights(facts, flags.quantization, options.dtype, gpu.supports("fp8"))
    specs = specs_by_layer(facts, facts.layers, options, choose(facts, options))
    attention = read_attention(facts, specs, options)
    state_bytes = sum(spec.natural_bytes for layer in specs for spec in layer if spec.kind == "state")
    return _work(facts, weights.layers, weights.head, ranks_of(options, flags), gpu, attention, state_bytes)


def read_predictor_work(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags, gpu: GPU) -> Work:
    """Work of one module of the checkpoint's own multi-token predictor; it attends as one layer of the model.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    weights = _weights(facts, flags.quantization, options.dtype, gpu.supports("fp8"))
    whole = read_work(facts, options, flags, gpu)
    share = 1 / max(1, whole.layers)
    attention = tuple(Attention(part.reach_tokens).plus(part, share) for part in whole.attention)
    module = _work(facts, weights.draft, weights.head, ranks_of(options, flags), gpu, attention, 0.0)
    return replace(module, layers=1)


def _work(
    facts: ModelFacts,
    matrices: Counts,
    head: Counts,
    ranks: Ranks,
    gpu: GPU,
    attention: tuple[Attention, ...],
    state_bytes: float,
) -> Work:
    dims = facts.dims
    experts = {item: count for item, count in matrices.items() if item[0].of_experts}
    dense = {item: count for item, count in matrices.items() if not item[0].of_experts}
    return Work(
        dense=_matrices(dense, ranks, gpu),
        head=_matrices(head, ranks, gpu),
        experts=_matrices(experts, ranks, gpu),
        expert_share=dims.experts_per_token / dims.experts if experts and dims.experts else 0.0,
        expert_ranks=ranks.expert,
        attention=attention,
        state_bytes=state_bytes,
        layers=dims.layers,
        routed_layers=sum(count for (tensor, _), count in experts.items() if tensor.cut is Cut.EXPERT_INPUTS),
        matrices=sum(matrices.values()),
        hidden_size=dims.hidden_size,
    )


@dataclass(frozen=True, slots=True)
class _Weights:
    """Matrices of all layers together, those of one predictor module, and the one that makes logits."""

    layers: Counts
    draft: Counts
    head: Counts


@lru_cache(maxsize=_MODELS_KEPT)
def _weights(facts: ModelFacts, flag: str | None, dtype: str, has_fp8: bool) -> _Weights:
    """What a step multiplies. Reading it takes far longer than a prediction, and facts never change.

    Embeddings are looked up, not read, and vectors (norms, biases) are too small to matter.
    """
    read = read_weights(facts, likely_quantisations(facts, flag, has_fp8=has_fp8)[0], dtype, text_only=True)
    layers = Counter[Stored]()
    for layer in read.layers:
        layers.update(_multiplied(layer))
    hidden = facts.dims.hidden_size
    ends = [item for item in (*read.first, *read.last) if item[0].cut is Cut.VOCABULARY and item[0].inputs == hidden]
    return _Weights(layers, _multiplied(read.draft), {ends[-1]: 1} if ends else {})


def _multiplied(counts: Counts) -> Counts:
    return {item: count for item, count in counts.items() if min(item[0].outputs, item[0].inputs) > 1}


def _matrices(stored: Counts, ranks: Ranks, gpu: GPU) -> Matrices:
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
