"""Why a child cannot be written now, and what to say: a right, a policy, a webhook, a kind that is gone."""

from collections.abc import Mapping
from typing import Any

from plimsoll.adapters.ports import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    OPTIONAL,
    ClusterError,
    ForbiddenError,
    Kind,
    NotFoundError,
    UnreachableError,
)
from plimsoll.api import reasons, write_reasons
from plimsoll.control.turns import Slot, Stop
from plimsoll.core.conditions import Problem
from plimsoll.core.manifests.identity import selector_text
from plimsoll.core.refusals import leaving, refusal, webhook_away


class StoppedError(Exception):
    """A child cannot be written now."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.text)
        self.stop = stop


def check_selector(slot: Slot, manifest: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """A Deployment with another selector, restored or made anew by hand, cannot be mended by a write."""
    if slot.kind is not DEPLOYMENTS:
        return
    wanted, found = (obj["spec"]["selector"]["matchLabels"] for obj in (manifest, known))
    if wanted != found:
        message = (
            f"{slot} selects {selector_text(found)}, which cannot be changed, and must select {selector_text(wanted)}; "
            f"delete it (kubectl delete deployment {slot.name} -n {slot.service.namespace}): its pods end, and it is "
            "made anew"
        )
        raise StoppedError(Stop(Problem(write_reasons.IMMUTABLE_FIELD.name, message)))


def why(slot: Slot, error: ClusterError) -> Stop | None:
    """What stopped a write, or None when only trying again can tell."""
    if isinstance(error, NotFoundError):
        gone = f"{slot.kind.kind} ({slot.kind.api_version}) is not served any more"
        return Stop(unusable(slot.kind, gone)) if slot.kind in OPTIONAL else None
    if isinstance(error, UnreachableError):
        webhook = webhook_away(error.message)
        return Stop(waiting=f"{slot}: admission webhook {webhook} does not answer") if webhook else None
    if leaving(error.message):
        return Stop(waiting="the namespace is being deleted")
    return Stop(refusal(str(slot), error.message, forbidden=isinstance(error, ForbiddenError)))


def unusable(kind: Kind, why: str) -> Problem:
    """A fleet of a kind that cannot be seen now is left as it is: whatever we did would be a guess."""
    if kind is not LEADER_WORKER_SETS:
        return Problem(reasons.KIND_UNUSABLE.name, why)
    return Problem(
        reasons.SEVERAL_NODES.name,
        f"{why}. The {kind.kind} can be neither seen nor changed; what runs is left as it is, and managed again as "
        "soon as the kind can be used",
    )
