"""What is seen of a service's fleet, as the conditions need it. Pure: the live workload in, figures out."""

from collections.abc import Sequence

from plimsoll.api import reasons
from plimsoll.core import rollout
from plimsoll.core.conditions import Fleet, Problem
from plimsoll.core.live import LiveFleet
from plimsoll.core.pods import PodState, counts
from plimsoll.core.request import Request
from plimsoll.core.rollout import Target


def fleet(
    live: LiveFleet,
    pods: Sequence[PodState],
    replicas: int,
    floor: int,
    *,
    waits: bool,
    old: LiveFleet | None = None,
) -> Fleet:
    """The main workload as last seen. ``replicas``: how many are wanted, ``floor`` of which must be ready for the
    service to be. ``waits``: for another template. ``old``: a workload of the other kind, which serves until this one
    does.
    """
    return Fleet(
        wanted=replicas,
        floor=floor,
        replicas=live.replicas + (old.replicas if old else 0),
        ready=live.ready + (old.ready if old else 0),
        updated_ready=0 if waits else _ready_now(live, pods),
        rolled_out=not waits and old is None and not live.mixed and live.replicas >= min(floor, 1),
        pods=counts(pods),
    )


def _ready_now(live: LiveFleet, pods: Sequence[PodState]) -> int:
    """Ready pods of the present template. The workload does not count them: it is asked where no pod may be seen."""
    if not live.seen:
        return 0
    most, mine = min(live.ready, live.updated), live.template_hash
    return min(most, sum(p.serves and p.phase == "ready" and p.template == mine for p in pods)) if pods else most


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
