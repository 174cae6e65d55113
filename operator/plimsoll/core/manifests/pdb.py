"""The PodDisruptionBudget: node drains take one replica at a time."""

from typing import Any

from plimsoll.api import names
from plimsoll.core.manifests.identity import Owner, track_selector


def disruption_budget(owner: Owner, nodes: int = 1) -> dict[str, Any]:
    """At most one main pod away at once; a pod that is not Ready yet may always be evicted.

    The API server's default refuses to evict a loading pod, which blocks a node drain for the whole load time.
    A replica of several ``nodes`` is gone with any of its pods, so all of them count.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": track_selector(owner.name)} if nodes == 1 else _every_node(owner),
        },
    }


def _every_node(owner: Owner) -> dict[str, Any]:
    tracks = [names.TRACK_MAIN, names.TRACK_WORKER]
    return {
        "matchLabels": {names.LABEL_INSTANCE: owner.name},
        "matchExpressions": [{"key": names.LABEL_TRACK, "operator": "In", "values": tracks}],
    }
