"""The Deployment that runs the fleet. It never carries ``replicas``: that field has its own manager and writer."""

from collections.abc import Mapping
from typing import Any

from plimsoll.api import names
from plimsoll.core.manifests.identity import Owner, track_selector
from plimsoll.core.surge import Way, strategy


def deployment(
    owner: Owner,
    template: Mapping[str, Any],
    *,
    deadline_seconds: int,
    way: Way,
    name: str | None = None,
    track: str = names.TRACK_MAIN,
) -> dict[str, Any]:
    """Pods of one track with their template. ``way``: how they are replaced when the template changes."""
    metadata = owner.metadata(name)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**metadata, "annotations": {names.ANNOTATION_WAY: way}},
        "spec": {
            "selector": {"matchLabels": track_selector(owner.name, track)},
            "strategy": strategy(way),
            "progressDeadlineSeconds": deadline_seconds,
            "revisionHistoryLimit": 5,
            "template": template,
        },
    }
