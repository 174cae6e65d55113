"""What one engine start would do: start with which pool, or be refused for which reason, and how sure that is.

The memory model gives a range; the answer is judged at its middle and, for what a plan may promise, at its low end.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from plimsoll.core.kv import Capacity, KVLayout, Refusal, fitting_max_model_len, plan_layout
from plimsoll.core.latency import LatencyEstimate, Load, predict_latency, running_limit
from plimsoll.core.memory import MemoryBudget, budget
from plimsoll.core.memory.loaded import loaded_weights
from plimsoll.core.plan.refuse import EngineStart, check_aftermath, check_device, check_flags, check_pool
from plimsoll.core.plan.result import MemoryItem, Range

Outcome = Literal["starts", "refused", "unknown"]
UNKNOWN_ARCHITECTURE: Final = "unknown_architecture"
UNKNOWN_MODEL: Final = "unknown_model"
BAD_ROW: Final = "bad_row"
_EVERYTHING: Final = 1 << 62


@dataclass(frozen=True)
class Prediction:
    """The answer for one start; what could not be known is None. Field names are those of ``plimsoll predict``."""

    outcome: Outcome
    outcome_at_low: Outcome
    reason: str | None = None
    message: str = ""
    needed_bytes: int | None = None
    estimated_max_model_len: int | None = None
    available_kv_bytes: Range | None = None
    weights_bytes: int | None = None
    memory: tuple[MemoryItem, ...] = ()
    block_size: int | None = None
    bytes_per_block: int | None = None
    num_blocks: int | None = None
    kv_cache_size_tokens: int | None = None
    max_concurrency: float | None = None
    blocks_per_request: int | None = None
    latency: LatencyEstimate | None = None
    assumptions: tuple[str, ...] = ()


def predict(
    start: EngineStart,
    *,
    available_bytes: int | None = None,
    load: Load | None = None,
    accepted_tokens_per_step: float | None = None,
) -> Prediction:
    """Predict one start; ``available_bytes`` a GPU replaces the memory model."""
    try:
        layout = plan_layout(start.facts, start.options)
        check_flags(start, layout.resolved)
    except Refusal as refusal:
        return _refused(refusal)
    if available_bytes is not None:
        known = Prediction(
            "starts",
            "starts",
            available_kv_bytes=Range(available_bytes, available_bytes, available_bytes),
            weights_bytes=_weights_alone(start),
        )
        found = _judged(start, layout, known, None)
    else:
        memory = budget(start.facts, start.options, start.flags)
        found = _judged(start, layout, _from_budget(memory), memory)
    if load is None or found.outcome != "starts":
        return found
    return _under_load(found, start, layout, load, accepted_tokens_per_step)


def _under_load(
    found: Prediction, start: EngineStart, layout: KVLayout, load: Load, accepted_tokens_per_step: float | None
) -> Prediction:
    """What the load's requests take of the pool, and how long they wait."""
    assert found.num_blocks is not None  # noqa: S101 # it starts, so it has a pool
    return replace(
        found,
        blocks_per_request=layout.blocks_for_request(load.prompt_tokens + load.output_tokens),
        latency=predict_latency(
            start.facts,
            start.options,
            load,
            start.flags,
            accepted_tokens_per_step=accepted_tokens_per_step,
            running_limit=running_limit(layout, found.num_blocks, load),
        ),
    )


def _from_budget(memory: MemoryBudget) -> Prediction:
    return Prediction(
        "starts",
        "starts",
        available_kv_bytes=memory.available_kv_bytes,
        weights_bytes=memory.weights_bytes,
        memory=memory.items,
        assumptions=memory.assumptions,
    )


def _weights_alone(start: EngineStart) -> int:
    return loaded_weights(start.facts, start.options, start.flags, _EVERYTHING).bytes


def _judged(start: EngineStart, layout: KVLayout, known: Prediction, memory: MemoryBudget | None) -> Prediction:
    """The same start judged at the middle and at the low end of what is left."""
    known = replace(known, block_size=layout.block_tokens, bytes_per_block=layout.bytes_per_block)
    left = known.available_kv_bytes
    assert left is not None  # noqa: S101 # every caller fills it in
    at_low = _outcome(start, layout, memory, int(left.low))
    at_mid = _outcome(start, layout, memory, int(left.mid))
    outcome_at_low: Outcome = "refused" if isinstance(at_low, Refusal) else "starts"
    if isinstance(at_mid, Refusal):
        return replace(_refused(at_mid, known), outcome_at_low=outcome_at_low)
    return replace(
        known,
        outcome_at_low=outcome_at_low,
        message=at_low.message if isinstance(at_low, Refusal) else "",
        num_blocks=at_mid.num_blocks,
        kv_cache_size_tokens=at_mid.tokens,
        max_concurrency=at_mid.max_concurrency,
    )


def _outcome(
    start: EngineStart, layout: KVLayout, memory: MemoryBudget | None, available_bytes: int
) -> Capacity | Refusal:
    """The pool, or the first refusal in the order vLLM would meet them."""
    try:
        if memory is not None:
            check_device(start, memory.step, memory)
        layout = _fitted(layout, available_bytes)
        pool = check_pool(start, layout, available_bytes)
        if memory is not None:
            check_aftermath(start, memory.step, memory)
    except Refusal as refusal:
        return refusal
    return pool


def _fitted(layout: KVLayout, available_bytes: int) -> KVLayout:
    """With ``max_model_len`` -1, the layout at the longest context that fits."""
    if layout.options.max_model_len != -1:
        return layout
    length = fitting_max_model_len(layout, available_bytes)
    return replace(layout, resolved=replace(layout.resolved, max_model_len=max(1, length)))


def _refused(refusal: Refusal, known: Prediction | None = None) -> Prediction:
    return replace(
        known or Prediction("refused", "refused"),
        outcome="refused",
        reason=refusal.reason,
        message=refusal.message,
        needed_bytes=refusal.needed_bytes,
        estimated_max_model_len=refusal.estimated_max_model_len,
    )
