"""A decision about the count in words: its inputs, what else there was, and what would change it. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from plimsoll.core.demand import Demand, ReplicaCapacity
from plimsoll.core.ledger import SCALE, Entry
from plimsoll.core.replay import Grounds, message_of, written
from plimsoll.core.scale import DEFAULTS, Decision, Limits, Tuning
from plimsoll.core.signals import FleetView, Signal


@dataclass(frozen=True)
class Scene:
    """What a decision was made on."""

    before: int
    view: FleetView
    capacity: ReplicaCapacity
    limits: Limits
    tuning: Tuning = DEFAULTS
    grounds: Callable[[], Grounds] | None = None
    """All that it was made from, once somebody writes it down: most looks change nothing."""


def entry_of(decision: Decision, reason: str, scene: Scene) -> Entry:
    """The decision as it is kept."""
    return Entry(
        kind=SCALE,
        reason=reason,
        message=message_of(decision),
        before=str(scene.before),
        after=str(decision.replicas),
        inputs=inputs(decision, scene),
        alternatives=alternatives(decision, scene),
        grounds=written(scene.grounds()) if scene.grounds else {},
    )


def inputs(decision: Decision, scene: Scene) -> Mapping[str, str]:
    """The figures that a decision rests on, each with how much of the fleet was seen."""
    view, found = scene.view, decision.demand
    told = {
        "serving": f"{len(view.serving)}",
        "loading": f"{view.count('loading')}",
        "kvUse": f"{view.mean(Signal.USAGE):.0%}",
        "waiting": f"{view.total(Signal.WAITING):.0f}",
        "running": f"{view.total(Signal.RUNNING):.0f}",
    }
    if found is not None:
        told |= {
            "blocksNeeded": f"{found.blocks:.0f} of {scene.capacity.usable_blocks:.0f} a replica",
            "replicasByBlocks": f"{found.by_blocks:.2f}",
            "replicasByCompute": f"{found.by_compute / scene.capacity.prefill_share:.2f}",
            "replicasBySequences": f"{found.by_sequences:.2f}",
            "replicasByQueue": f"{found.by_flow:.2f}",
        }
    return told


def alternatives(decision: Decision, scene: Scene) -> tuple[str, ...]:
    """The neighbouring counts, and what each would mean."""
    found, chosen = decision.demand, decision.replicas
    if found is None:
        return ()
    near = sorted({scene.before, chosen - 1, chosen + 1} - {chosen})
    told = [f"{count}: {_load(found, scene.capacity, count)}" for count in near if count > 0]
    if decision.wanted is not None and decision.wanted > chosen:
        told.append(f"{decision.wanted}: {decision.limited_by or 'more than one step'}")
    return tuple(told)


def grows_when(capacity: ReplicaCapacity, replicas: int, limits: Limits, tuning: Tuning = DEFAULTS) -> str:
    """What would add a replica."""
    if replicas >= limits.most:
        return f"never: {limits.most_is} is {limits.most}"
    if replicas == 0:
        return "a request waits at the gateway"
    blocks = _fullest(replicas, tuning.up_share, tuning) / replicas
    parts = [f"running and waiting requests need more than {blocks:.0%} of the KV blocks"]
    if capacity.prefill_seconds_per_token:
        parts.append(f"prompts need more than {capacity.prefill_share:.0%} of the time")
    if capacity.max_num_seqs:
        parts.append(f"more than {replicas * capacity.max_num_seqs:.0f} requests run and wait")
    return ", or ".join(parts)


def shrinks_when(capacity: ReplicaCapacity, replicas: int, limits: Limits, tuning: Tuning = DEFAULTS) -> str:
    """What would take a replica away."""
    fewer = replicas - 1
    if fewer < max(1, limits.least):
        return f"never: {limits.least_is} is {limits.least}" if limits.least else "it is idle"
    blocks = _fullest(fewer, tuning.down_share, tuning) / replicas
    parts = [f"{blocks:.0%} of the KV blocks"]
    if capacity.prefill_seconds_per_token:
        share = max(0.1, capacity.prefill_share - tuning.compute_gap) * fewer / replicas
        parts.append(f"{share:.0%} of the time for prompts")
    return f"for {tuning.hold_seconds:.0f} s never more than {' and '.join(parts)} are needed, and all is known"


def _load(found: Demand, capacity: ReplicaCapacity, replicas: int) -> str:
    text = f"{found.by_blocks / replicas:.0%} of the blocks"
    if found.by_compute:
        text += f", prompts {found.by_compute / replicas:.0%} of the time ({capacity.prefill_share:.0%} may be)"
    return text


def _fullest(replicas: int, share: float, tuning: Tuning) -> float:
    """Replicas' worth of blocks that so many hold with their head-room: the inverse of ``scale``'s rule."""
    half = tuning.noise / 2
    return min(replicas * share, (math.sqrt(half * half + replicas) - half) ** 2)
