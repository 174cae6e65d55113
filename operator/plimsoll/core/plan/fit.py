"""Whether one shape of a replica starts and serves a request of the full context, judged at the low end of the memory.

What the planner may turn when the engine's defaults do not fit, in this order: tokens of a step, then the share of the
device's memory. What the user set is never turned.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll.api import reasons
from plimsoll.api.reasons import camel_reason
from plimsoll.core.kv import Capacity, EngineOptions, KVLayout, Refusal, capacity, plan_layout
from plimsoll.core.kv.refusals import KV_CACHE_TOO_SMALL, NO_MEMORY_FOR_KV
from plimsoll.core.memory import MemoryBudget, MemoryFlags, budget
from plimsoll.core.plan.correction import corrected
from plimsoll.core.plan.refuse import (
    NOT_ENOUGH_FREE_MEMORY,
    OOM_RISK,
    EngineStart,
    check_aftermath,
    check_device,
    check_flags,
    check_pool,
)
from plimsoll.core.plan.result import Rejected
from plimsoll.core.plan.shapes import Shape, partition_problem
from plimsoll.core.plan.wish import Wish
from plimsoll.core.pools import key_of, measured
from plimsoll.core.quantity import gib
from plimsoll.facts import engines
from plimsoll.facts.engine_flags import surely_knows
from plimsoll.facts.engines import default_utilisation

GDN_PREFILL_BACKEND: Final = "triton"
"""Left alone, an SM90 GPU takes FlashInfer with another block size; the layouts we verified are Triton's."""
MANY_SEQUENCES: Final = 256
FEW_SEQUENCES: Final = 32
MOST_SEQUENCES: Final = 1024
SEQUENCE_STEP: Final = 8
LEAST_STEP_TOKENS: Final = 1024
HIGHEST_UTILISATION: Final = 0.95
"""Above the engine's default only where nothing else fits: driver and NCCL need the rest (``vllm-memory.md`` 4.1)."""
LOWER_UTILISATIONS: Final = (0.9, 0.87, 0.84, 0.8)

_NODES_FLAG: Final = "--nnodes"
# Set from shape and knobs, which already hold what the user said.
_KNOBS: Final = frozenset({"max_model_len", "max_num_batched_tokens", "max_num_seqs"})
# Logits, their copies and the penalties' counts.
_BYTES_PER_LOGIT: Final = 16
_HELPED_BY_LESS: Final = frozenset({OOM_RISK, NOT_ENOUGH_FREE_MEMORY})
_HELPED_BY_MORE: Final = frozenset({KV_CACHE_TOO_SMALL, NO_MEMORY_FOR_KV})


@dataclass(frozen=True)
class Knobs:
    """What the planner turns on one shape; ``turned`` counts those that are not the engine's default."""

    batched_tokens: int
    utilisation: float | None
    sequences: int
    kv_dtype: str = "auto"
    turned: int = 0


@dataclass(frozen=True)
class Engine:
    """A shape that starts: its flags, cache layout and memory, the pool at the low end and in the middle."""

    shape: Shape
    knobs: Knobs
    start: EngineStart
    layout: KVLayout
    memory: MemoryBudget
    low: Capacity
    mid: Capacity

    def __str__(self) -> str:
        return named(self.shape, self.knobs.kv_dtype)

    @property
    def utilisation(self) -> float:
        """Share of the device's memory the engine may use."""
        share = self.start.flags.gpu_memory_utilization
        return default_utilisation(self.start.options.version) if share is None else share


@dataclass(frozen=True)
class Failed:
    """A shape that does not serve, and what would have to change for it."""

    shape: Shape
    rejected: Rejected
    context_that_fits: int = 0
    gpus_needed: int = 0


def named(shape: Shape, kv_dtype: str) -> str:
    """A shape and the KV dtype that was chosen for it, in short."""
    return str(shape) if kv_dtype == "auto" else f"{shape}, {kv_dtype} KV"


def fit(wish: Wish, shape: Shape, kv_dtype: str = "auto") -> Engine | Failed:
    """The engine of a shape with the fewest knobs turned, or why there is none."""
    needed = shape.gpus * wish.replicas
    if wish.most_replicas(shape) < wish.replicas:
        return Failed(shape, Rejected(str(shape), reasons.MAX_GPUS_EXCEEDED.name, _over(wish, shape)), 0, needed)
    problem = partition_problem(wish.facts, shape)
    if problem:
        return Failed(shape, Rejected(str(shape), reasons.HEADS_NOT_DIVISIBLE.name, f"{problem} ({shape})"))
    if shape.nodes > 1 and not surely_knows(_NODES_FLAG, wish.version):
        message = f"vLLM {wish.written_version} has no {_NODES_FLAG}: replicas over several nodes need a newer one"
        return Failed(shape, Rejected(str(shape), reasons.SEVERAL_NODES.name, message))
    return _too_heavy(wish, shape) or _turned(wish, shape, kv_dtype)


def _too_heavy(wish: Wish, shape: Shape) -> Failed | None:
    """Whether even an even share of the weights fills the GPU: then nothing else needs to be computed."""
    share = wish.least_weights_bytes / shape.gpus
    if share < _most_usable_bytes(wish, shape) or wish.overrides.memory.get("cpu_offload_bytes"):
        return None
    message = (
        f"spec.hardware.gpu: {shape.label} has {gib(shape.gpu.torch_total_bytes)}, at {_sizes(shape)} the "
        f"weights of {wish.spec.model.id} take at least {gib(share)} a GPU: nothing is left for KV cache"
    )
    return Failed(shape, Rejected(str(shape), reasons.NO_MEMORY_FOR_KV.name, message))


def default_knobs(wish: Wish, shape: Shape, kv_dtype: str = "auto") -> Knobs:
    """The engine's defaults, or what the user set."""
    batch = engines.batch_defaults(wish.version, shape.gpu)
    options, memory = wish.overrides.options, wish.overrides.memory
    sequences = options.get("max_num_seqs") or _at_most(sequences_for(wish), wish.correction.most_sequences)
    usual = _at_most(batch.max_num_batched_tokens, wish.correction.most_step_tokens)
    tokens = options.get("max_num_batched_tokens") or max(usual, sequences)
    share = memory.get("gpu_memory_utilization")
    if share is None and wish.share_left(shape) < 1:
        share = _share_of(wish, shape, default_utilisation(wish.version))
    return Knobs(tokens, share, sequences, kv_dtype)


def _share_of(wish: Wish, shape: Shape, utilisation: float) -> float:
    """A share of the device's memory where others hold a part of it: the same share of what they leave."""
    return math.floor(utilisation * wish.share_left(shape) * 1000) / 1000


def _most_usable_bytes(wish: Wish, shape: Shape) -> float:
    return shape.gpu.torch_total_bytes * wish.share_left(shape) * HIGHEST_UTILISATION


def _at_most(value: int, limit: int | None) -> int:
    return value if limit is None else min(value, limit)


def sequences_for(wish: Wish) -> int:
    """Requests one engine may run at once: the whole load, so that one replica can carry it while another is away.

    How many requests a rate makes depends on the engine: many are allowed, and cut when it is known.
    """
    wanted = wish.demand.concurrency
    if wanted is None or wish.demand.rate is not None:
        wanted = max(MANY_SEQUENCES, wanted or 0)
    return max(FEW_SEQUENCES, min(MOST_SEQUENCES, rounded_up(wanted)))


def rounded_up(sequences: int) -> int:
    """Sequences in whole steps, as CUDA graphs are captured for them."""
    return -(-sequences // SEQUENCE_STEP) * SEQUENCE_STEP


def rounded_down(sequences: int) -> int:
    """The same, of which no more are there; at least one."""
    return max(1, sequences if sequences < SEQUENCE_STEP else sequences // SEQUENCE_STEP * SEQUENCE_STEP)


def start_engine(wish: Wish, shape: Shape, knobs: Knobs) -> Engine:
    """The engine with these knobs.

    Raises:
        Refusal: vLLM would refuse the flags, or the start at the low end of the memory.
    """
    start = EngineStart(wish.facts, _options(wish, shape, knobs), _flags(wish, shape, knobs))
    layout = plan_layout(start.facts, start.options)
    check_flags(start, layout.resolved)
    memory = _memory(wish, start, layout)
    low = int(memory.available_kv_bytes.low)
    if low <= 0:
        raise _NothingLeft(memory)
    pool = capacity(layout, low)
    if _may_lower(wish, start, pool, knobs):
        return start_engine(wish, shape, replace(knobs, sequences=pool.num_blocks))
    check_device(start, memory.step, memory)
    check_pool(start, layout, low)
    check_aftermath(start, memory.step, memory, wish.correction.outside_bytes)
    return Engine(shape, knobs, start, layout, memory, pool, capacity(layout, int(memory.available_kv_bytes.mid)))


def _memory(wish: Wish, start: EngineStart, layout: KVLayout) -> MemoryBudget:
    """The estimate; or what running pods of the same start have found, which is better than any."""
    memory = corrected(budget(start.facts, start.options, start.flags), wish.correction)
    pools = wish.inventory.pools
    seen = pools.get(key_of(start)) if pools else None
    return memory if seen is None else measured(memory, seen, layout.bytes_per_block)


def _may_lower(wish: Wish, start: EngineStart, pool: Capacity, knobs: Knobs) -> bool:
    """A hybrid never gets more sequences than its pool has state blocks."""
    ours = "max_num_seqs" not in wish.overrides.options
    return ours and start.facts.has_state and 0 < pool.num_blocks < knobs.sequences


class _NothingLeft(Refusal):
    """Weights and activations take all of the memory."""

    def __init__(self, memory: MemoryBudget) -> None:
        super().__init__(NO_MEMORY_FOR_KV, "nothing is left for KV cache")
        self.memory = memory


def _turned(wish: Wish, shape: Shape, kv_dtype: str) -> Engine | Failed:
    """Try the defaults, then what the first refusal says could help."""
    knobs = default_knobs(wish, shape, kv_dtype)
    try:
        return start_engine(wish, shape, knobs)
    except Refusal as refusal:
        first = best = refusal
    for variant in _variants(wish, shape, knobs, first):
        try:
            return start_engine(wish, shape, variant)
        except Refusal as refusal:
            if (refusal.estimated_max_model_len or 0) > (best.estimated_max_model_len or 0):
                best = refusal
    return Failed(
        shape,
        Rejected(named(shape, kv_dtype), camel_reason(best.reason), _explained(wish, shape, best)),
        context_that_fits=best.estimated_max_model_len or 0,
    )


def _variants(wish: Wish, shape: Shape, knobs: Knobs, refusal: Refusal) -> Iterator[Knobs]:
    """Knobs turned one after the other, then together."""
    fixed_share = bool({"gpu_memory_utilization", "kv_cache_memory_bytes"} & wish.overrides.memory.keys())
    if refusal.reason in _HELPED_BY_LESS and not fixed_share:
        default = default_utilisation(wish.version)
        lower = (_share_of(wish, shape, share) for share in LOWER_UTILISATIONS if share < default)
        yield from (replace(knobs, utilisation=share, turned=1) for share in lower)
    if refusal.reason in _HELPED_BY_MORE and _weights_leave_room(wish, shape, refusal):
        fewer = [] if "max_num_batched_tokens" in wish.overrides.options else list(_fewer_tokens(knobs))
        shares = [] if fixed_share else [_share_of(wish, shape, HIGHEST_UTILISATION)]
        more = [replace(v, utilisation=share, turned=v.turned + 1) for share in shares for v in (knobs, *fewer)]
        everything = [*fewer, *more] or [knobs]
        fixed_sequences = "max_num_seqs" in wish.overrides.options
        if _far_off(wish, shape, knobs, refusal):
            # Everything together is not enough: only that is tried, to say what would fit.
            last = everything[-1]
            yield last if fixed_sequences else replace(last, sequences=min(SEQUENCE_STEP, last.sequences))
            return
        yield from everything
        if not fixed_sequences:
            yield from _fewer_sequences(tuple(dict.fromkeys((*fewer[-1:], everything[-1]))))


def _fewer_sequences(variants: tuple[Knobs, ...]) -> Iterator[Knobs]:
    """The variants with less than the load would like to run at once."""
    for sequences in (MANY_SEQUENCES, FEW_SEQUENCES, SEQUENCE_STEP):
        for variant in variants:
            if sequences < variant.sequences:
                yield replace(variant, sequences=sequences, turned=variant.turned + 1)


def _fewer_tokens(knobs: Knobs) -> Iterator[Knobs]:
    tokens = knobs.batched_tokens // 2
    while tokens >= max(LEAST_STEP_TOKENS, knobs.sequences):
        yield replace(knobs, batched_tokens=tokens, turned=1)
        tokens //= 2


def _weights_leave_room(wish: Wish, shape: Shape, refusal: Refusal) -> bool:
    """Whether the highest share of the device holds more than the weights."""
    return not isinstance(refusal, _NothingLeft) or refusal.memory.weights_bytes < _most_usable_bytes(wish, shape)


def _far_off(wish: Wish, shape: Shape, knobs: Knobs, refusal: Refusal) -> bool:
    """Whether one request needs more than every knob together could free."""
    spare = shape.gpu.torch_total_bytes * max(0.0, HIGHEST_UTILISATION - default_utilisation(wish.version))
    freed = spare + _could_be_freed(wish, knobs)
    if isinstance(refusal, _NothingLeft):
        return refusal.memory.available_kv_bytes.low + freed <= 0
    most = (refusal.available_bytes or 0) + freed
    return refusal.needed_bytes is not None and refusal.needed_bytes > most


def _could_be_freed(wish: Wish, knobs: Knobs) -> int:
    """Bytes that a smaller step and fewer sequences may give back, generously."""
    dims = wish.facts.dims
    step = knobs.batched_tokens * 2 * (8 * dims.hidden_size + 4 * dims.intermediate_size)
    return step + knobs.sequences * dims.vocab_size * _BYTES_PER_LOGIT + (1 << 30)


def _options(wish: Wish, shape: Shape, knobs: Knobs) -> EngineOptions:
    ours: dict[str, Any] = {
        "tensor_parallel": shape.tensor_parallel,
        "pipeline_parallel": shape.pipeline_parallel,
        "decode_context_parallel": shape.decode_context_parallel,
        "max_model_len": wish.context_tokens,
        "max_num_batched_tokens": knobs.batched_tokens,
        "max_num_seqs": knobs.sequences,
        "kv_cache_dtype": knobs.kv_dtype,
        "enable_prefix_caching": True,
        "gdn_prefill_backend": GDN_PREFILL_BACKEND,
        "text_only": wish.spec.model.text_only,
    }
    if wish.correction.kv_cache_dtype:
        ours["kv_cache_dtype"] = wish.correction.kv_cache_dtype
    theirs = {key: value for key, value in wish.overrides.options.items() if key not in _KNOBS}
    return EngineOptions(device=shape.gpu, version=wish.version, speculation=wish.speculation, **{**ours, **theirs})


def _flags(wish: Wish, shape: Shape, knobs: Knobs) -> MemoryFlags:
    ours: dict[str, Any] = {
        "gpu_memory_utilization": knobs.utilisation,
        "expert_parallel": shape.expert_parallel,
        "data_parallel": shape.data_parallel,
        "other_engines_bytes": wish.inventory.of(shape.label).reserve_bytes,
    }
    return MemoryFlags(**{**wish.overrides.memory, **ours})


def _over(wish: Wish, shape: Shape) -> str:
    needed, limit = shape.gpus * wish.replicas, wish.max_gpus
    if needed <= limit:
        if wish.placeable(shape) < wish.replicas:
            there, node = wish.inventory.of(shape.label).gpus, wish.node_gpus(shape.gpu, shape.label)
            return (
                f"inventory: {there} GPUs {shape.label} are there, {node} on a node: too few for {wish.replicas} x "
                f"{shape.gpus}"
            )
        return (
            f"scaling.maxReplicas: {wish.spec.scaling.max_replicas} is fewer than the {wish.replicas} replicas needed"
        )
    if limit < wish.spec.hardware.max_gpus:
        return f"inventory: {wish.replicas} x {shape.gpus} GPUs are {needed}, a service may hold {limit}"
    return (
        f"spec.hardware.maxGPUs: {wish.replicas} x {shape.gpus} GPUs are {needed}, the limit is {limit}; "
        "raise maxGPUs or lower the replicas"
    )


def _explained(wish: Wish, shape: Shape, refusal: Refusal) -> str:
    """The engine's refusal with field, value, limit."""
    if isinstance(refusal, _NothingLeft):
        return _nothing_left(wish, shape, refusal.memory)
    if refusal.needed_bytes is None or refusal.reason not in _HELPED_BY_MORE:
        return f"{refusal.message.rstrip('.')} ({shape})"
    fits = refusal.estimated_max_model_len
    return (
        f"spec.contextTokens: {wish.context_tokens} needs {gib(refusal.needed_bytes)} of KV per GPU, "
        f"{gib(max(refusal.available_bytes or 0, 0))} is left on {shape.label} at {_sizes(shape)}"
        + (f"; {fits} would fit" if fits else "")
    )


def _nothing_left(wish: Wish, shape: Shape, memory: MemoryBudget) -> str:
    others = sum(item.bytes for item in memory.items) - memory.weights_bytes
    return (
        f"spec.hardware.gpu: {shape.label} gives vLLM {gib(memory.requested_bytes)} a GPU, at "
        f"{_sizes(shape)} the weights of {wish.spec.model.id} take {gib(memory.weights_bytes)} and "
        f"everything else {gib(others)}: nothing is left for KV cache"
    )


def _sizes(shape: Shape) -> str:
    """The sizes that divide weights and cache, as a message names them."""
    stages = f" PP {shape.pipeline_parallel}" if shape.pipeline_parallel > 1 else ""
    return f"TP {shape.tensor_parallel}{stages}"
