"""The Deployment that runs the fleet. It never carries ``replicas``: that field has its own manager and writer."""

from collections.abc import Mapping
from typing import Any

from plimsoll.api import names
from plimsoll.core.manifests.identity import Owner, track_selector
from plimsoll.core.surge import Way, strategy


def deployment(owner: Owner, template: Mapping[str, Any], *, deadline_seconds: int, way: Way) -> dict[str, Any]:
    """The fleet with its pod template. ``way``: how its pods are replaced when the template changes."""
    metadata = owner.metadata()
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, "annotations": {names.ANNOTATION_WAY: way}},
        "spec": {
            "selector": {"matchLabels": track_selector(owner.name)},
            "strategy": strategy(way),
            "progressDeadlineSeconds": deadline_seconds,
            "revisionHistoryLimit": 5,
            "template": template,
        },
    }
