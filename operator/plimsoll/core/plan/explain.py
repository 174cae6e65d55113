"""A chosen candidate as a plan: the arithmetic, why it was chosen, what was assumed; bounded in size."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from plimsoll.core import speed
from plimsoll.core.flags import engine_args
from plimsoll.core.kv import Capacity
from plimsoll.core.plan.fit import Engine
from plimsoll.core.plan.pods import about_pods, drain_of, host_of, startup_of
from plimsoll.core.plan.result import Answer, Choice, KVBudget, Plan, Range, Rejected, to_json
from plimsoll.core.plan.search import Candidate, Found, objective, why_not
from plimsoll.core.plan.serving import FULLEST_POOL, Serving, request_blocks
from plimsoll.core.plan.shapes import Shape
from plimsoll.core.plan.wish import Wish
from plimsoll.core.pools import key_of
from plimsoll.core.quantity import gib

MOST_REJECTED: Final = 8
MOST_ASSUMPTIONS: Final = 24
LONGEST_TEXT: Final = 320
LARGEST_PLAN: Final = 16_000
"""Bytes of a plan as JSON: it is kept in ``status.plan``, whose bound is 16 KiB with the revision's name."""


def plan_of(wish: Wish, best: Candidate, rejected: tuple[Rejected, ...]) -> Plan:
    """The plan of a candidate."""
    engine, shape = best.engine, best.engine.shape
    latency = {name: found for name, found in _latency(best.serving) if found is not None}
    start, end = startup_of(wish, engine), drain_of(wish, best.service)
    notes = (*_notes(wish, best), *about_pods(wish, end))
    return Plan(
        choice=Choice(
            gpu=shape.label,
            replicas=best.serving.replicas,
            gpus_per_replica=shape.gpus,
            engine_version=wish.written_version,
            args=engine_args(
                engine.start,
                wish.demand,
                wish.spec.model.id,
                wish.spec.engine.extra_args,
                features=wish.features,
                drain_seconds=end.timeout_seconds,
            ),
            tensor_parallel=shape.tensor_parallel,
            pipeline_parallel=shape.pipeline_parallel,
            data_parallel=shape.data_parallel,
            decode_context_parallel=shape.decode_context_parallel,
            expert_parallel=shape.expert_parallel,
            nodes_per_replica=shape.nodes,
            engines_per_replica=shape.data_parallel,
        ),
        kv=_kv(wish, engine, engine.mid),
        memory=engine.memory.items,
        available_kv_bytes=engine.memory.available_kv_bytes,
        startup=start,
        drain=end,
        host=host_of(wish, engine),
        typical=best.service.typical(),
        latency=latency,
        slo_met=_slo_met(wish, best.serving),
        rejected=rejected,
        assumptions=tuple(_short(note) for note in notes)[:MOST_ASSUMPTIONS],
        pool_key=key_of(engine.start),
        step_key=speed.key_of(engine.start),
        step_factor=best.service.factor,
        policy=wish.inventory.policy,
    )


def rejections(wish: Wish, best: Candidate, found: Found) -> tuple[Rejected, ...]:
    """The best of what was not chosen, then what failed, at most eight together with room for both."""
    others = []
    for other in found.candidates[1:]:
        reason, message = why_not(wish, best, other)
        others.append(Rejected(_short(str(other)), reason, _short(message)))
    for skipped in found.skipped:
        message = f"at least {skipped.gpus} GPUs, cost {skipped.cost:.5g} against {best.cost:.5g}"
        others.append(Rejected(_short(str(skipped.shape)), "Costlier", message))
    failed = [*(_failed(each.rejected) for each in found.failed), *map(_failed, wish.excluded)]
    half = MOST_REJECTED // 2
    kept = others[: max(half, MOST_REJECTED - len(failed))]
    return (*kept, *failed[: MOST_REJECTED - len(kept)])


def bounded(plan: Plan) -> Plan:
    """The plan within its size: the last rejected candidates and assumptions go first."""
    while len(json.dumps(to_json(plan)).encode()) > LARGEST_PLAN and (plan.rejected or plan.assumptions):
        if plan.rejected:
            plan = replace(plan, rejected=plan.rejected[:-1])
        else:
            plan = replace(plan, assumptions=plan.assumptions[:-1])
    return plan


def _failed(found: Rejected) -> Rejected:
    return Rejected(_short(found.choice), found.reason, _short(found.message))


def _latency(serving: Serving) -> Iterator[tuple[str, Range | None]]:
    yield "ttftMs", serving.ttft_ms
    yield "itlMs", serving.itl_ms


def _kv(wish: Wish, engine: Engine, pool: Capacity) -> KVBudget:
    blocks, saved = request_blocks(engine, wish.demand)
    at_once = (pool.num_blocks - 1 - saved) / max(1, blocks - saved)
    given = wish.demand.given or wish.spec.load is not None
    return KVBudget(
        block_size=engine.layout.block_tokens,
        bytes_per_block=engine.layout.bytes_per_block,
        num_blocks=pool.num_blocks,
        tokens=pool.tokens,
        max_concurrency=round(pool.max_concurrency, 6),
        blocks_per_request_at_load=blocks if given else None,
        concurrency_at_load=round(max(0.0, at_once), 2) if given else None,
    )


def _slo_met(wish: Wish, serving: Serving) -> Answer:
    """Yes and no only where somebody said what the traffic is; one request that is too slow alone is always a no."""
    if not wish.demand.has_targets or serving.ttft_ms is None:
        return "unknown"
    if not serving.good:
        return "no"
    return "yes" if wish.demand.given else "unknown"


def _notes(wish: Wish, best: Candidate) -> Iterator[str]:
    engine, serving = best.engine, best.serving
    yield f"model facts: {wish.config.origin}"
    yield from wish.assumptions
    yield from wish.demand.assumptions
    yield _why(wish, best)
    if wish.demand.given:
        yield _held(wish, best)
    if not serving.good and serving.limited_by:
        yield _what_limits(wish, serving)
    yield from _about_latency(wish, best)
    if (factor := best.service.factor) is not None:
        yield f"latency: pods of this engine take {factor:g} times the predicted time a step; that was counted with"
    yield from _about_scaling(wish)
    yield from _about_speculation(wish)
    yield from _about_inventory(wish, engine.shape)
    yield from _about_shape(engine)
    yield from _about_knobs(engine)
    yield from engine.memory.assumptions
    yield from (f"model: {name} was absent, its documented default is taken" for name in wish.facts.assumed)


def _why(wish: Wish, best: Candidate) -> str:
    unit = "the price table" if wish.priced else "GPUs weighted by their memory in GiB, as there is no price table"
    rule = {
        "Latency": "the fastest for a typical request",
        "Throughput": "the most output tokens for its cost",
        "Balanced": "the cheapest",
    }[objective(wish)]
    among = "that meets load and targets" if best.serving.good else "none meets load and targets: the nearest to them"
    return f"choice: {rule} {among}; cost {best.cost:.5g} ({unit})"


def _held(wish: Wish, best: Candidate) -> str:
    serving, engine = best.serving, best.engine
    blocks, saved = request_blocks(engine, wish.demand)
    shared = f", {saved} more shared" if saved else ""
    prefill = "" if serving.prefill_share is None else f", prompts take {serving.prefill_share:.0%} of its time"
    return (
        f"load: {serving.running:.1f} requests at once in each engine, {blocks - saved} blocks each{shared}, of "
        f"{engine.low.num_blocks - 1} blocks at the low end (at most {FULLEST_POOL:.0%} used){prefill}"
    )


def _what_limits(wish: Wish, serving: Serving) -> str:
    change = {
        "KV": "more GPUs, a larger GPU or fp8 KV",
        "sequences": "a larger --max-num-seqs",
        "prefill FLOPs": "more or faster GPUs, or shorter prompts",
        "weights' bandwidth": "a GPU with more bandwidth, more tensor parallelism or a quantised checkpoint",
        "KV bandwidth": "more replicas, so that fewer requests share a step",
        "queue": "more replicas, so that fewer prompts wait for each other",
    }[serving.limited_by or "KV"]
    return (
        f"limit: {serving.limited_by} ({serving.excess:.2f} times what is asked, {wish.max_gpus} GPUs allowed); what "
        f"would help: {change}"
    )


def _about_latency(wish: Wish, best: Candidate) -> Iterator[str]:
    if best.serving.ttft_ms is None:
        label = best.engine.shape.label
        yield f"latency: unknown, no bandwidth or FLOP/s of {label}; replicas follow from the pool alone"
        return
    tokens = wish.context_tokens - 1
    found = best.service.alone(max(1, tokens))
    if found is not None:
        low, mid, high = (value / 1e3 for value in (found.low, found.mid, found.high))
        yield f"latency: a prompt of the whole context alone answers after {mid:.2f} s ({low:.2f} to {high:.2f})"


def _about_scaling(wish: Wish) -> Iterator[str]:
    mode = wish.spec.scaling.mode
    if mode != "Auto":
        yield f"replicas: set by spec.replicas (scaling.mode {mode}), within maxGPUs"


def _about_speculation(wish: Wish) -> Iterator[str]:
    """What a draft costs is in the arithmetic; what it gains depends on how often it is right."""
    speculation = wish.speculation
    if speculation is None:
        return
    yields = wish.demand.tokens_per_step
    counted = f"{yields:g} counted" if yields > 1 else "1 counted until acceptedTokensPerStep is measured"
    yield f"speculation: {speculation.tokens} tokens drafted a step by {speculation.method}, {counted}"
    if speculation.method == "mtp" and not wish.facts.draft_modules:
        yield "speculation: config.json declares no predictor module: one is counted"


def _about_inventory(wish: Wish, shape: Shape) -> Iterator[str]:
    """What the operator's owner says of the product."""
    stock = wish.inventory.of(shape.label)
    if stock.memory_bytes is not None:
        yield f"inventory: {shape.label} has {gib(stock.memory_bytes)} here"
    if stock.reserve_bytes:
        yield f"inventory: {gib(stock.reserve_bytes)} of each {shape.label} are kept for others"


def _about_shape(engine: Engine) -> Iterator[str]:
    shape = engine.shape
    if shape.pipeline_parallel > 1:
        yield f"pipeline: the model's class is taken to support {shape.pipeline_parallel} stages"
    if shape.nodes > 1:
        each = shape.gpus // shape.nodes
        yield (
            f"nodes: a replica spans {shape.nodes}: rank 0 leads and serves, ranks 1 to {shape.nodes - 1} work, {each} "
            f"GPUs each (--nnodes {shape.nodes} --node-rank R --master-addr of the leader)"
        )
    if shape.data_parallel > 1:
        yield f"engines: {shape.data_parallel} in each replica share the experts; figures of KV are of one engine"


def _about_knobs(engine: Engine) -> Iterator[str]:
    knobs, memory = engine.knobs, engine.memory
    if knobs.kv_dtype != "auto":
        yield f"kv: {knobs.kv_dtype} cache, as tuning.allow permits (KVCacheDtype): compare answers with those without"
    if knobs.turned:
        yield (
            f"flags: not the engine's defaults, which do not fit: {knobs.batched_tokens} tokens a step, utilisation "
            f"{engine.utilisation:g} ({gib(memory.requested_bytes)} of {gib(memory.total_bytes)})"
        )


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
