"""What is left for KV on the worst GPU of an engine, item by item and as a range."""

import math
from dataclasses import dataclass

from plimsoll.core.kv import EngineOptions, resolve
from plimsoll.core.memory.coefficients import Coefficients, fitted
from plimsoll.core.memory.flags import MemoryFlags
from plimsoll.core.memory.reserve import Step, reserve
from plimsoll.core.memory.tensors import Ranks
from plimsoll.core.memory.weights import read_weights
from plimsoll.core.plan.result import MemoryItem, Range
from plimsoll.facts.engines import default_utilisation
from plimsoll.facts.models import ModelFacts


@dataclass(frozen=True)
class MemoryBudget:
    """Device memory of the worst rank. ``available_kv_bytes`` may be negative: then nothing is left."""

    items: tuple[MemoryItem, ...]
    weights_bytes: int
    total_bytes: int
    requested_bytes: int
    available_kv_bytes: Range
    assumptions: tuple[str, ...] = ()


def budget(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags | None = None) -> MemoryBudget:
    """Memory of the worst rank of one engine.

    Raises:
        Refusal: the options contradict the model (heads, context).
    """
    flags = flags or MemoryFlags()
    fit = fitted()
    total = device_bytes(options)
    utilisation = flags.gpu_memory_utilization or default_utilisation(options.version)
    requested = math.ceil(total * utilisation)
    weights = _weights(facts, options, flags)
    items = (weights, *reserve(facts, _step(facts, options, flags), fit))
    used = sum(item.bytes for item in items)
    return MemoryBudget(
        items=items,
        weights_bytes=weights.bytes,
        total_bytes=total,
        requested_bytes=requested,
        available_kv_bytes=_range(requested - used, requested, fit, flags),
    )


def device_bytes(options: EngineOptions) -> int:
    """Memory of the device as vLLM sees it."""
    if options.device == "cpu":
        raise ValueError("a CPU has no device memory: give kv_cache_memory_bytes")
    return options.device.torch_total_bytes


def _weights(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags) -> MemoryItem:
    tensor, world = options.tensor_parallel, options.tensor_parallel * options.pipeline_parallel
    if facts.weights_bytes is not None:
        per_rank = math.ceil(facts.weights_bytes / world)
        return MemoryItem("weights", per_rank, "exact", "sum of the checkpoint's tensors over ranks")
    found = read_weights(facts)
    expert_ranks = tensor * flags.data_parallel if flags.expert_parallel else 1
    per_rank = math.ceil(found.bytes_on(Ranks(tensor, expert_ranks)) / options.pipeline_parallel)
    return MemoryItem("weights", per_rank, "fitted", "matrices that the configuration describes")


def _step(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags) -> Step:
    resolved = resolve(facts, options)
    return Step(
        tokens=resolved.max_num_batched_tokens,
        seqs=resolved.max_num_seqs,
        tensor_parallel=options.tensor_parallel,
        world=options.tensor_parallel * options.pipeline_parallel,
        version=options.version,
        eager=flags.enforce_eager,
        samples=not flags.pooling,
    )


def _range(left: int, requested: int, fit: Coefficients, flags: MemoryFlags) -> Range:
    if flags.kv_cache_memory_bytes is not None:
        return Range(flags.kv_cache_memory_bytes, flags.kv_cache_memory_bytes, flags.kv_cache_memory_bytes)
    spread = round(fit.relative_spread * requested) + fit.fixed_spread_bytes
    return Range(left - spread, left, left + spread)
