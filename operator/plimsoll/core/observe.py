"""What is seen of a service's fleet, as the conditions need it. Pure: the live workload in, figures out."""

from collections.abc import Mapping
from typing import Any

from plimsoll.api import reasons
from plimsoll.core import rollout
from plimsoll.core.conditions import Fleet, Problem
from plimsoll.core.ownership import judge
from plimsoll.core.pods import Summary
from plimsoll.core.request import Request
from plimsoll.core.rollout import Target


def fleet(
    request: Request,
    live: Mapping[str, Any] | None,
    pods: Summary,
    replicas: int,
    *,
    old: Mapping[str, Any] | None = None,
    unseen: bool = False,
) -> Fleet | None:
    """The main workload as last seen, or None when there is none of ours. ``replicas``: how many are wanted.

    ``old``: a workload of the other kind that serves until this one does. ``unseen``: objects of this kind cannot be
    read now, so what serves is told from pods.
    """
    mine = live if live is not None and judge(live, request.name, request.uid).verdict == "ours" else None
    if unseen:
        serving = pods.count("ready")
        return Fleet(replicas, _floor(request, replicas), serving, serving, pods=pods)
    if mine is None and old is None:
        return None
    total, ready, updated = _figures(mine)
    old_total, old_ready, _ = _figures(old)
    seen = mine is not None and _seen(mine)
    return Fleet(
        wanted=replicas,
        floor=_floor(request, replicas),
        replicas=total + old_total,
        ready=ready + old_ready,
        updated_ready=min(ready, updated) if seen else 0,
        rolled_out=seen and old is None and updated == total and total >= min(replicas, 1),
        deadline_exceeded=_status(mine).get("progressReason") == "ProgressDeadlineExceeded",
        pods=pods,
    )


def _status(live: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (live or {}).get("status") or {}
    return found


def _figures(live: Mapping[str, Any] | None) -> tuple[int, int, int]:
    """Replicas there are, those that serve, those of the newest template."""
    status = _status(live)
    return (
        int(status.get("replicas", 0)),
        int(status.get("readyReplicas", 0)),
        int(status.get("updatedReplicas", 0)),
    )


def _seen(live: Mapping[str, Any]) -> bool:
    """Whether the status is about the spec as it is now."""
    return int(_status(live).get("observedGeneration", 0)) >= int(live["metadata"].get("generation", 0))


def limited(request: Request, target: Target, replicas: int) -> Problem | None:
    """Why fewer replicas run than ``spec.replicas`` asks for."""
    if target.revision is None or request.spec.scaling.mode == "Auto" or request.spec.replicas <= replicas:
        return None
    gpus = rollout.gpus_per_replica(target.revision)
    return Problem(
        reasons.MAX_GPUS.name,
        f"spec.replicas: {request.spec.replicas} would take {request.spec.replicas * gpus} GPUs, "
        f"spec.hardware.maxGPUs is {request.spec.hardware.max_gpus}: {replicas} run",
    )


def _floor(request: Request, replicas: int) -> int:
    """Replicas that must be ready before the service counts as Ready; an autoscaler's wish is not one."""
    return min(replicas, 1) if request.spec.scaling.mode == "External" else replicas
