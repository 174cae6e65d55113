"""What runs a plan's replicas: a Deployment, or a LeaderWorkerSet where each replica spans several nodes.

Everything that counts, scales or watches a fleet goes through here, and need not know which of the two it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.manifests import group
from plimsoll.core.manifests.deployment import deployment
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.nodes import NodeTemplates
from plimsoll.core.manifests.revision import Revision

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


def workload(owner: Owner, revision: Revision, replicas: int, spare_replicas: int) -> dict[str, Any]:
    """The fleet of a revision, without its count. ``spare_replicas``: how many more fit within ``maxGPUs``."""
    if revision.worker_template is None:
        return deployment(
            owner,
            revision.template,
            deadline_seconds=revision.deadline_seconds,
            replicas=replicas,
            spare_replicas=spare_replicas,
        )
    templates = NodeTemplates(revision.template, revision.worker_template)
    return group.leader_worker_set(
        owner, templates, nodes=revision.nodes, replicas=replicas, spare_replicas=spare_replicas
    )


def gpus_per_replica(live: Mapping[str, Any]) -> int:
    """GPUs (or MIG slices) that each replica of a live workload takes."""
    spec = live["spec"]
    if "leaderWorkerTemplate" not in spec:
        return _gpus(spec["template"])
    group_spec = spec["leaderWorkerTemplate"]
    worker = group_spec["workerTemplate"]
    return _gpus(group_spec.get("leaderTemplate") or worker) + (int(group_spec["size"]) - 1) * _gpus(worker)


def _gpus(template: Mapping[str, Any]) -> int:
    limits = ((c.get("resources") or {}).get("limits") or {} for c in template["spec"]["containers"])
    return sum(int(count) for each in limits for name, count in each.items() if name.startswith(names.GPU_VENDOR))


def scale(owner: Owner, target: Workload, replicas: int) -> dict[str, Any]:
    """The count alone, applied by its own field manager."""
    return {
        "apiVersion": target.api_version,
        "kind": target.kind,
        "metadata": {"name": target.name, "namespace": owner.namespace},
        "spec": {"replicas": replicas},
    }
