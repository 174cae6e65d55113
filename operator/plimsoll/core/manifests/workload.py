"""What runs a plan's replicas: a Deployment, or a LeaderWorkerSet where each replica spans several nodes.

Everything that counts, scales or watches a fleet goes through here, and need not know which of the two it is.
"""

from dataclasses import dataclass
from typing import Any, Final

from plimsoll.core.manifests import group
from plimsoll.core.manifests.deployment import deployment
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.nodes import NodeTemplates
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.surge import Way

_DEPLOYMENT: Final = ("apps/v1", "Deployment")


@dataclass(frozen=True)
class Workload:
    """The object that runs a service's replicas, by its address in the service's namespace."""

    api_version: str
    kind: str
    name: str


def workloads(service: str) -> tuple[Workload, Workload]:
    """Both that a service may have: for replicas of one node, and of several."""
    return Workload(*_DEPLOYMENT, service), Workload(group.API_VERSION, group.KIND, group.set_name(service))


def workload_of(service: str, revision: Revision) -> Workload:
    """The one that runs this revision."""
    one_node, several = workloads(service)
    return several if revision.nodes > 1 else one_node


def workload(owner: Owner, revision: Revision, way: Way) -> dict[str, Any]:
    """The fleet of a revision, without its count. ``way``: how its pods are replaced when the template changes."""
    if revision.worker_template is None:
        return deployment(owner, revision.template, deadline_seconds=revision.deadline_seconds, way=way)
    templates = NodeTemplates(revision.template, revision.worker_template)
    return group.leader_worker_set(owner, templates, nodes=revision.nodes, way=way)


def scale(owner: Owner, target: Workload, replicas: int) -> dict[str, Any]:
    """The count alone, applied by its own field manager."""
    return {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name, "namespace": owner.namespace},
        "spec": {"replicas": replicas},
    }
