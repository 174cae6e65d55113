"""The LeaderWorkerSet that runs replicas of several nodes each: a group is a replica.

As a Deployment it never carries ``replicas``: that field has its own manager and writer.
"""

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.drift import digest
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.nodes import NodeTemplates
from plimsoll.core.surge import Way, rolling

API_VERSION: Final = "leaderworkerset.x-k8s.io/v1"
KIND: Final = "LeaderWorkerSet"

_SUFFIX: Final = "-lws"
_NAME_LIMIT: Final = 48
"""A group's workers are a StatefulSet ``<set>-<index>``, whose pods carry its name and a hash of 10 in a label of at
most 63 characters: 52 are left for the name, four of them for the index."""


def set_name(service: str) -> str:
    """Name of the service's LeaderWorkerSet.

    Not the service's own: the set's controller makes a headless Service of the set's name, and ours serves under
    the service's.
    """
    name = service + _SUFFIX
    if len(name) <= _NAME_LIMIT:
        return name
    tail = f"-{digest(service)[:5]}{_SUFFIX}"
    return service[: _NAME_LIMIT - len(tail)].rstrip("-") + tail


def leader_worker_set(owner: Owner, templates: NodeTemplates, *, nodes: int, way: Way) -> dict[str, Any]:
    """The fleet of groups. ``way``: how groups are replaced when the templates change."""
    metadata = owner.metadata(set_name(owner.name))
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata, "annotations": {names.ANNOTATION_WAY: way}},
        "spec": {
            # One network for all groups: their pods are found as <pod>.<set>.
            "networkConfig": {"subdomainPolicy": "Shared"},
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"partition": 0, **rolling(way)},
            },
            "leaderWorkerTemplate": {
                "size": nodes,
                # Ranks find each other once, at start: a node that starts again alone would wait for ever.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": templates.leader,
                "workerTemplate": templates.worker,
            },
        },
    }


def read_status(status: Mapping[str, Any], generation: int) -> dict[str, int]:
    """The set's status as a Deployment's would say it. Sets before 0.9 do not say which generation they have seen."""
    seen = status.get("observedGeneration")
    if seen is None:
        seen = generation if status.get("conditions") else 0
    figures = ("replicas", "readyReplicas", "updatedReplicas")
    return {"observedGeneration": int(seen), **{name: int(status.get(name, 0)) for name in figures}}
