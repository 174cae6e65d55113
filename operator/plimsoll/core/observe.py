"""What is seen of a service's fleet, as the conditions need it. Pure: the live Deployment in, figures out."""

from collections.abc import Mapping
from typing import Any

from plimsoll.api import reasons
from plimsoll.core import rollout
from plimsoll.core.conditions import Fleet, Problem
from plimsoll.core.ownership import judge
from plimsoll.core.pods import Summary
from plimsoll.core.request import Request
from plimsoll.core.rollout import Target


def fleet(request: Request, live: Mapping[str, Any] | None, pods: Summary, replicas: int) -> Fleet | None:
    """The main Deployment as last seen, or None when there is none of ours. ``replicas``: how many are wanted."""
    if live is None or judge(live, request.name, request.uid).verdict != "ours":
        return None
    status = live.get("status", {})
    total, ready, updated = (int(status.get(k, 0)) for k in ("replicas", "readyReplicas", "updatedReplicas"))
    return Fleet(
        wanted=replicas,
        floor=_floor(request, replicas),
        replicas=total,
        ready=ready,
        updated_ready=min(ready, updated) if seen(live) else 0,
        rolled_out=seen(live) and updated == total and total >= min(replicas, 1),
        deadline_exceeded=status.get("progressReason") == "ProgressDeadlineExceeded",
        pods=pods,
    )


def seen(live: Mapping[str, Any]) -> bool:
    """Whether the Deployment's controller has looked at it as it is now; until then its figures are older."""
    observed = live.get("status", {}).get("observedGeneration", 0)
    return int(observed) >= int(live["metadata"].get("generation", 0))


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
