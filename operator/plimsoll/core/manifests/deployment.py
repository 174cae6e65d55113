"""The Deployment that runs the fleet. It never carries ``replicas``: that field has its own manager and writer."""

from collections.abc import Mapping
from typing import Any

from plimsoll.core.manifests.identity import Owner, track_selector


def deployment(
    owner: Owner, template: Mapping[str, Any], *, deadline_seconds: int, replicas: int, spare_replicas: int
) -> dict[str, Any]:
    """The fleet with its pod template. ``spare_replicas``: how many more fit within the service's ``maxGPUs``."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": owner.metadata(),
        "spec": {
            "selector": {"matchLabels": track_selector(owner.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling(replicas, spare_replicas)},
            "progressDeadlineSeconds": deadline_seconds,
            "revisionHistoryLimit": 5,
            "template": template,
        },
    }


def scale(owner: Owner, replicas: int) -> dict[str, Any]:
    """The count alone, applied by its own field manager."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": owner.name, "namespace": owner.namespace},
        "spec": {"replicas": replicas},
    }


def _rolling(replicas: int, spare_replicas: int) -> dict[str, int]:
    """Surge needs a free GPU. With several replicas one at a time makes its own room and cannot deadlock; a single
    replica surges when ``maxGPUs`` allows, so that the running one serves until the new one does.
    """
    if replicas == 1 and spare_replicas >= 1:
        return {"maxSurge": 1, "maxUnavailable": 0}
    return {"maxSurge": 0, "maxUnavailable": 1}
