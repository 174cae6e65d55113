"""The fewest and the most replicas that may run, and who says so. Pure."""

from plimsoll.api import reasons, scaling_reasons
from plimsoll.core.request import Request
from plimsoll.core.scale import Limits


def limits(request: Request, gpus_per_replica: int, least: int | None = None, share: Limits | None = None) -> Limits:
    """Limits of a service. ``least``: in place of the spec's; ``share``: what a budget of several services leaves it.

    ``maxReplicas`` counts in Auto only: in the other modes it is the user's own count that ``maxGPUs`` bounds.
    """
    gpus, scaling = request.spec.hardware.max_gpus, request.spec.scaling
    found = [(gpus // gpus_per_replica, f"what hardware.maxGPUs ({gpus}) allows", reasons.MAX_GPUS.name)]
    if scaling.mode == "Auto" and scaling.max_replicas is not None:
        found.append((scaling.max_replicas, "scaling.maxReplicas", scaling_reasons.MAX_REPLICAS.name))
    if share is not None:
        found.append((share.most, share.most_is, share.reason))
    most, which, reason = min(found, key=lambda each: each[0])
    floor = scaling.min_replicas if least is None else least
    return Limits(min(floor, most), most, most_is=which, reason=reason)
