"""The two pods of an experiment: canary and control, each a Deployment of one replica behind the same Service."""

from collections.abc import Mapping
from typing import Any

from plimsoll.api import names
from plimsoll.core.manifests.deployment import deployment
from plimsoll.core.manifests.identity import Owner, pod_labels
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.manifests.workload import Workload


def trial_name(service: str, track: str) -> str:
    """What the Deployment of a track is called."""
    return f"{service}-{track}"


def trial_workload(service: str, track: str) -> Workload:
    """Its address."""
    return Workload("apps/v1", "Deployment", trial_name(service, track))


def trial_deployment(owner: Owner, revision: Revision, track: str, *, gated: bool = False) -> dict[str, Any]:
    """One pod of a revision on another track than the fleet's: it serves, and is no part of the fleet's count.

    ``gated``: it takes no request of users until the operator has said that a quality gate has passed.
    """
    template = _on_track(revision.template, owner.name, track)
    return deployment(
        owner,
        _gated(template) if gated else template,
        deadline_seconds=revision.deadline_seconds,
        way="Recreate",
        name=trial_name(owner.name, track),
        track=track,
    )


def _on_track(template: Mapping[str, Any], service: str, track: str) -> dict[str, Any]:
    metadata = template["metadata"]
    labels = {**metadata.get("labels", {}), **pod_labels(service, track)}
    return {**template, "metadata": {**metadata, "labels": labels}}


def _gated(template: Mapping[str, Any]) -> dict[str, Any]:
    return {**template, "spec": {**template["spec"], "readinessGates": [{"conditionType": names.GATE_PASSED}]}}
