"""What is left for KV on the worst GPU of an engine, item by item and as a range."""

import math
from dataclasses import dataclass

from plimsoll.core.kv import EngineOptions
from plimsoll.core.memory.coefficients import Coefficients, fitted
from plimsoll.core.memory.flags import MemoryFlags
from plimsoll.core.memory.loaded import LoadedWeights, loaded_weights
from plimsoll.core.memory.reserve import reserve
from plimsoll.core.memory.step import Step, read_step
from plimsoll.core.plan.result import MemoryItem, Range
from plimsoll.facts.engines import default_utilisation
from plimsoll.facts.models import ModelFacts


@dataclass(frozen=True)
class MemoryBudget:
    """Device memory of the worst rank. ``available_kv_bytes`` may be negative: then nothing is left.

    ``weights_bytes`` is all that is loaded, drafts and adapters included; ``total_bytes`` is what the engine sees of
    the device, ``requested_bytes`` the part it may use; ``step`` is the step that activations were computed for.
    """

    items: tuple[MemoryItem, ...]
    weights_bytes: int
    total_bytes: int
    requested_bytes: int
    available_kv_bytes: Range
    step: Step
    assumptions: tuple[str, ...] = ()


def budget(
    facts: ModelFacts, options: EngineOptions, flags: MemoryFlags | None = None, fit: Coefficients | None = None
) -> MemoryBudget:
    """Memory of the worst rank of one engine.

    Raises:
        Refusal: the options contradict the model (heads, context).
        ValueError: the device is a CPU, which has no device memory to divide.
    """
    flags, fit = flags or MemoryFlags(), fit or fitted()
    total = device_bytes(options)
    requested = requested_bytes(total, options, flags)
    weights = loaded_weights(facts, options, flags, requested)
    step = read_step(facts, options, flags)
    others = reserve(step, fit)
    return MemoryBudget(
        items=(*weights.items, *others),
        weights_bytes=weights.bytes,
        total_bytes=total,
        requested_bytes=requested,
        available_kv_bytes=_available(requested, weights, others, flags, _spread(requested, others, step, fit)),
        step=step,
        assumptions=weights.assumptions,
    )


def device_bytes(options: EngineOptions) -> int:
    """Memory of the device as vLLM sees it: what torch reports, a little less than the driver does."""
    if options.device == "cpu":
        raise ValueError("a CPU has no device memory: give available_kv_bytes or kv_cache_memory_bytes")
    return options.device.torch_total_bytes


def requested_bytes(total_bytes: int, options: EngineOptions, flags: MemoryFlags) -> int:
    """The part of the device that vLLM may use. Source: vLLM 0.32 ``v1/worker/utils.py request_memory``."""
    utilisation = flags.gpu_memory_utilization
    return math.ceil(total_bytes * (default_utilisation(options.version) if utilisation is None else utilisation))


def _spread(requested: int, others: tuple[MemoryItem, ...], step: Step, fit: Coefficients) -> int:
    """Half the width of the range: the fit's on discrete NVIDIA parts, several times that elsewhere."""
    share = fit.spread_requested if step.cuda and step.discrete else fit.spread_elsewhere
    reserved = sum(item.bytes for item in others)
    return round(fit.spread_reserve * reserved + share * requested) + fit.spread_bytes


def _available(
    requested: int, weights: LoadedWeights, others: tuple[MemoryItem, ...], flags: MemoryFlags, spread: int
) -> Range:
    """What is left, and how far off it may be: what was assumed about weights has bounds of its own."""
    if flags.kv_cache_memory_bytes is not None:
        given = flags.kv_cache_memory_bytes
        return Range(given, given, given)
    left = requested - weights.bytes - sum(item.bytes for item in others)
    return Range(left - spread - weights.may_be_more, left, left + spread + weights.may_be_less)
