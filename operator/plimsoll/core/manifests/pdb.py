"""The PodDisruptionBudget: node drains take one replica at a time."""

from typing import Any

from plimsoll.core.manifests.identity import Owner, track_selector


def disruption_budget(owner: Owner) -> dict[str, Any]:
    """At most one main pod away at once; a pod that is not Ready yet may always be evicted.

    The API server's default refuses to evict a loading pod, which blocks a node drain for the whole load time.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": owner.metadata(),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": track_selector(owner.name)},
        },
    }
