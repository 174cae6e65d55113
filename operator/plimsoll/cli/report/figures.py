"""What the pictures of one service are drawn from, worked out once and without drawing."""

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.api.units import duration_seconds
from plimsoll.api.v1alpha1 import LoadSpec, SLOSpec
from plimsoll.cli.planning import Planned
from plimsoll.cli.report.plots import Mark
from plimsoll.core.plan.curves import FleetSize, capacity_curve, fleet_size, requests_at_once
from plimsoll.core.plan.readback import planned_engine
from plimsoll.core.plan.result import Plan, Range
from plimsoll.facts import gpus


@dataclass(frozen=True)
class Capacity:
    """Requests at once over their length, and GPUs over load."""

    curve: Sequence[tuple[int, float]]
    marks: Sequence[Mark]
    sequence_cap: int | None
    fleet: FleetSize
    load_requests: float | None


def gpu_memory_bytes(plan: Plan) -> int:
    """What the engine sees of one GPU; 0 when the product is not known."""
    gpu = gpus.find(plan.choice.gpu)
    return gpu.torch_total_bytes if gpu else 0


def capacity_of(planned: Planned, plan: Plan) -> Capacity | None:
    """None when the plan's argv does not give the plan's own layout back, or nothing is cached."""
    if planned.config is None:
        return None
    engine = planned_engine(plan, planned.config)
    if engine is None or not engine.layout.groups:
        return None
    layout = engine.layout
    longest, typical = planned.spec.context_tokens, typical_tokens(planned.spec.load)
    wanted = {"full context": longest} | ({"typical request": typical} if typical else {})
    marks = [
        _mark(name, tokens, requests_at_once(layout, plan.kv.num_blocks, tokens)) for name, tokens in wanted.items()
    ]
    return Capacity(
        curve=capacity_curve(layout, plan.kv.num_blocks, longest),
        marks=marks,
        sequence_cap=layout.resolved.max_num_seqs,
        fleet=fleet_size(plan, layout, typical or longest),
        load_requests=planned.spec.load.concurrency if planned.spec.load else None,
    )


def _mark(name: str, tokens: int, requests: float) -> Mark:
    return Mark(f"{name}: {requests:,.1f}", tokens, requests)


def typical_tokens(load: LoadSpec | None) -> int:
    """Tokens of a typical request, 0 when the spec does not say."""
    return (load.prompt_tokens or 0) + (load.output_tokens or 0) if load else 0


def latencies(plan: Plan, slo: SLOSpec | None) -> list[tuple[str, Range, float | None]]:
    """(name, milliseconds, limit) of every latency that is known."""
    limits = {"ttft": slo.ttft, "itl": slo.itl} if slo else {}
    found = []
    for short_name, words in (("ttft", "Time to first token"), ("itl", "Between two tokens")):
        span = next((span for name, span in plan.latency.items() if name.lower().startswith(short_name)), None)
        limit = limits.get(short_name)
        if span is not None:
            found.append((words, span, duration_seconds(limit) * 1000 if limit else None))
    return found
