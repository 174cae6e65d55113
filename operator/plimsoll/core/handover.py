"""From replicas of one node to replicas of several, or back: two workloads, one service. Pure values.

A Deployment cannot become a LeaderWorkerSet, so the new fleet starts beside the old one, which serves until the new one
does. Both together stay within ``maxGPUs``; where nothing of the new fits beside it, the old one makes room, and stops
only when the user allows it.
"""

from dataclasses import dataclass

from plimsoll.api import rollout_reasons
from plimsoll.core.live import LiveFleet
from plimsoll.core.obstacle import Obstacle

NOWHERE_SECONDS = 60.0
"""Pods of the new fleet that find no node for so long will not find one beside the old fleet."""


@dataclass(frozen=True)
class Handover:
    """What to run now."""

    replicas: int
    """Of the new fleet."""
    old_replicas: int | None
    """Of the old fleet; None: it goes."""
    why: str = ""
    waiting: Obstacle | None = None
    """Why the new fleet is not started."""


@dataclass(frozen=True)
class Wish:
    """The new fleet: replicas wanted, GPUs of each, and what user and cluster allow."""

    replicas: int
    gpus_per_replica: int
    max_gpus: int
    may_stop: bool = False
    """The user allows an interruption (``spec.rollout.noSpareGPU: Recreate``)."""


def decide(old: LiveFleet, wish: Wish, *, ready: int, unplaced_seconds: float = 0.0) -> Handover:
    """The next step. ``ready``: replicas of the new fleet that serve; ``unplaced_seconds``: its pods find no node."""
    spare = (wish.max_gpus - old.asked * old.gpus_per_replica) // wish.gpus_per_replica
    beside = min(wish.replicas, max(spare, 0))
    if wish.replicas == 0 or ready >= max(beside, 1):
        return Handover(wish.replicas, None)
    if beside >= 1 and not (wish.may_stop and unplaced_seconds >= NOWHERE_SECONDS):
        return Handover(beside, old.asked, "the new fleet starts beside the old one, which serves until it is ready")
    kept = (wish.max_gpus - wish.gpus_per_replica) // max(1, old.gpus_per_replica)
    if beside == 0 and kept >= 1:
        return Handover(0, kept, f"first {kept} replicas of the old fleet: a new one would exceed hardware.maxGPUs")
    if wish.may_stop:
        return Handover(wish.replicas, None, "the old fleet ends before the new one starts")
    return Handover(0, old.asked, waiting=_no_room(old, wish))


def _no_room(old: LiveFleet, wish: Wish) -> Obstacle:
    needed = wish.gpus_per_replica + min(old.asked, 1) * old.gpus_per_replica
    text = (
        f"the new fleet waits, the old one keeps serving: a replica of {wish.gpus_per_replica} GPUs beside the "
        f"{old.asked * old.gpus_per_replica} in use would exceed hardware.maxGPUs {wish.max_gpus}, {needed} would do. "
        "To interrupt the service instead, set spec.rollout.noSpareGPU: Recreate"
    )
    return Obstacle(rollout_reasons.NO_SPARE_GPU.name, text, lasting=True)
