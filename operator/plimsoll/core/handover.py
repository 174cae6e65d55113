"""From replicas of one node to replicas of several, or back: two workloads, one service. Pure values.

A Deployment cannot become a LeaderWorkerSet, so the new fleet starts beside the old one, which serves until the new one
does. Both together stay within ``maxGPUs``; where nothing of the new fits beside it, the old one makes room.
"""

from dataclasses import dataclass

from plimsoll.api import reasons
from plimsoll.core.conditions import Problem


@dataclass(frozen=True)
class Old:
    """The workload of the other kind that still runs: its wanted replicas, and the GPUs of each."""

    replicas: int
    gpus_per_replica: int

    @property
    def gpus(self) -> int:
        """GPUs of all its replicas."""
        return self.replicas * self.gpus_per_replica


@dataclass(frozen=True)
class Handover:
    """What to run now."""

    replicas: int
    """Of the new fleet."""
    old_replicas: int | None
    """Of the old fleet; None: it goes."""
    problem: Problem | None = None


def decide(
    old: Old, *, wanted: int, gpus_per_replica: int, max_gpus: int, ready: int, may_stop: bool = False
) -> Handover:
    """The next step. ``ready``: replicas of the new fleet that serve; ``may_stop``: an interruption is allowed."""
    fit = (max_gpus - old.gpus) // gpus_per_replica
    beside = min(wanted, max(fit, 0))
    if wanted == 0 or (beside >= 1 and ready >= beside):
        return Handover(wanted, None)
    if beside >= 1:
        return Handover(beside, old.replicas)
    kept = (max_gpus - gpus_per_replica) // max(1, old.gpus_per_replica)
    if 1 <= kept < old.replicas:
        return Handover(0, kept)
    if may_stop:
        return Handover(wanted, None)
    return Handover(0, old.replicas, Problem(reasons.NO_ROOM_BESIDE.name, _no_room(old, gpus_per_replica, max_gpus)))


def _no_room(old: Old, gpus_per_replica: int, max_gpus: int) -> str:
    needed = gpus_per_replica + min(old.replicas, 1) * old.gpus_per_replica
    return (
        f"spec.hardware.maxGPUs: {max_gpus} leaves no room for a replica of {gpus_per_replica} GPUs beside the "
        f"{old.gpus} in use, which serve until it does; {needed} would do for the change, or set spec.replicas to 0 in "
        "scaling mode Fixed first if an interruption is acceptable"
    )
