"""What a hold keeps from a fleet: whoever waits for ``Ready`` must not take what runs for what was asked. Pure."""

from plimsoll.core.live import LiveFleet
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.request import Request
from plimsoll.core.steps import starts_rollout


def withheld(request: Request, target: Revision | None, live: LiveFleet, wanted: int) -> bool:
    """Whether the request asks for another template, or in Fixed for another count, than the held fleet has.

    A count that an autoscaler wishes is no request: it never drops ``Ready`` (decision 11).
    """
    if not request.held_because or target is None:
        return False
    return starts_rollout(target, live) or (request.spec.scaling.mode == "Fixed" and live.asked != wanted)
