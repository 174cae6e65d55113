"""Room for one more replica: nodes that would take its pod now, and why the others would not. Pure.

Unknown is not zero and not plenty: who may not look at nodes has no ``Room`` at all, and counts on none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from plimsoll.core.placement import Needs, Requests, pod_requests, repelled_by, selects

_ZERO: Final = Decimal(0)
_OVER: Final = ("Succeeded", "Failed")
NAMED: Final = 3
"""Nodes a sentence names before it only counts."""


@dataclass(frozen=True)
class Node:
    """What scheduling reads of a node."""

    name: str
    labels: Mapping[str, str]
    allocatable: Requests
    taints: tuple[Mapping[str, Any], ...] = ()
    cordoned: bool = False
    ready: bool = True


@dataclass(frozen=True)
class Room:
    """What the nodes of one kind of pod look like. Each node is in one of the groups; ``fits`` counts whole pods."""

    fits: int = 0
    gpus_free: int = 0
    gpus_taken: int = 0
    most_free: int = 0
    """GPUs that are free on one node, at the most."""
    open: tuple[str, ...] = ()
    """Nodes that take such pods when they have room."""
    tainted: Mapping[str, str] = field(default_factory=dict)
    """Node → the taint that repels the pod."""
    away: tuple[str, ...] = ()
    """Cordoned or not Ready."""
    without_gpu: tuple[str, ...] = ()
    """Labelled with the product, with none to give: a node that joined without its GPU, a lost device plugin."""

    @property
    def matching(self) -> int:
        """Nodes of the product, whatever their state."""
        return len(self.open) + len(self.tainted) + len(self.away) + len(self.without_gpu)


def read_node(obj: Mapping[str, Any]) -> Node:
    """A node as the API server tells it."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), {})
    return Node(
        name=obj["metadata"]["name"],
        labels=obj["metadata"].get("labels") or {},
        allocatable=pod_requests({"overhead": status.get("allocatable") or {}}),
        taints=tuple(spec.get("taints") or ()),
        cordoned=bool(spec.get("unschedulable")),
        ready=ready.get("status") == "True",
    )


def taken_of(pods: Iterable[Mapping[str, Any]]) -> dict[str, Decimal]:
    """What the pods bound to a node ask for together; a pod that is over holds nothing, one that ends still does."""
    total: dict[str, Decimal] = {"pods": _ZERO}
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in _OVER:
            continue
        asked = {**pod_requests(pod.get("spec") or {}), "pods": Decimal(1)}
        for name, amount in asked.items():
            total[name] = total.get(name, _ZERO) + amount
    return total


def may_take(needs: Needs, node: Node) -> bool:
    """Whether what runs on the node matters: it is one of the pod's, and nothing else keeps the pod away."""
    return _obstacle(needs, node) == ""


def room(needs: Needs, nodes: Iterable[Node], taken: Mapping[str, Requests]) -> Room:
    """Room on these nodes; ``taken`` holds what is asked for on those that ``may_take`` the pod."""
    tainted: dict[str, str] = {}
    groups: dict[str, list[str]] = {"away": [], "no gpu": [], "": []}
    fits = free = used = most = 0
    for node in nodes:
        obstacle = _obstacle(needs, node)
        if obstacle == "other":
            continue
        if obstacle not in groups:
            tainted[node.name] = obstacle
            continue
        groups[obstacle].append(node.name)
        if obstacle == "":
            here = taken.get(node.name, {})
            resource = needs.gpu_resource
            used += int(here.get(resource, _ZERO))
            left = max(0, int(node.allocatable.get(resource, _ZERO) - here.get(resource, _ZERO)))
            free, most = free + left, max(most, left)
            fits += _fits(needs, node, here)
    return Room(fits, free, used, most, tuple(groups[""]), tainted, tuple(groups["away"]), tuple(groups["no gpu"]))


def _obstacle(needs: Needs, node: Node) -> str:
    """``other``: not a node for this pod at all. ``away``, ``no gpu``, a taint, or empty: nothing but its fill."""
    if not selects(needs, node.labels):
        return "other"
    if node.cordoned or not node.ready:
        return "away"
    repelled = repelled_by(needs, node.taints)
    if repelled:
        return repelled
    resource = needs.gpu_resource
    return "no gpu" if resource and not node.allocatable.get(resource, _ZERO) else ""


def _fits(needs: Needs, node: Node, taken: Requests) -> int:
    """Whole pods that fit beside what is there."""
    asked = {**needs.requests, "pods": Decimal(1)}
    left = {name: node.allocatable.get(name, _ZERO) - taken.get(name, _ZERO) for name in asked}
    return max(0, min(int(left[name] // amount) for name, amount in asked.items() if amount > 0))
