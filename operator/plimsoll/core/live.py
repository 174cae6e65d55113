"""The workload that runs a fleet, as last seen. Pure: a live Deployment (or what stands for one) in, values out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api import names
from plimsoll.core.placement import Needs, read_needs
from plimsoll.core.surge import SAID, Way


@dataclass(frozen=True)
class LiveFleet:
    """What the workload's controller was told last, and how far it is."""

    asked: int
    """``spec.replicas``."""
    replicas: int
    ready: int
    updated: int
    """Pods of the present template."""
    seen: bool
    """The controller has seen the present template and count."""
    template: Mapping[str, Any]
    way: Way | None = None
    deadline_exceeded: bool = False
    nodes: int = 1
    """Nodes, and so pods, of each replica."""
    refused: str = ""
    """Why pods cannot be made, in a stable sentence; empty: they can."""

    @property
    def template_hash(self) -> str:
        """The hash of the template that pods are made from; empty for those of the first release."""
        return template_hash(self.template)

    @property
    def needs(self) -> Needs:
        """What one of its pods asks of a node."""
        return read_needs(self.template.get("spec") or {})

    @property
    def gpus_per_replica(self) -> int:
        """GPUs (or slices) of a replica, over all its nodes."""
        return self.needs.gpus * self.nodes

    @property
    def mixed(self) -> bool:
        """Whether pods of an older template are still there, or the controller has not looked yet."""
        return not self.seen or self.updated < self.replicas


def template_hash(template: Mapping[str, Any]) -> str:
    """The hash that ``render`` put on a pod template."""
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_TEMPLATE, ""))


def read_live(obj: Mapping[str, Any]) -> LiveFleet:
    """The fleet of a live workload."""
    spec, status, meta = obj["spec"], obj.get("status") or {}, obj["metadata"]
    way = (meta.get("annotations") or {}).get(names.ANNOTATION_WAY)
    total, ready, updated = (int(status.get(k, 0)) for k in ("replicas", "readyReplicas", "updatedReplicas"))
    return LiveFleet(
        asked=int(spec.get("replicas", 1)),
        replicas=total,
        ready=ready,
        updated=updated,
        seen=int(status.get("observedGeneration", 0)) >= int(meta.get("generation", 0)),
        template=_template(spec),
        way=next((w for w in SAID if w == way), None),
        deadline_exceeded=status.get("progressReason") == "ProgressDeadlineExceeded",
        nodes=int((spec.get("leaderWorkerTemplate") or {}).get("size", 1)),
        refused=str(status.get("refused", "")),
    )


def _template(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Deployment's pod template, or the leader's of a LeaderWorkerSet."""
    found = spec.get("template") or (spec.get("leaderWorkerTemplate") or {}).get("leaderTemplate") or {}
    return found if isinstance(found, Mapping) else {}
