"""The scheduler: a pod gets the first node that it selects, tolerates and fits on.

What it does not know (required pod affinity, topology spread that forbids, volumes, preemption) it refuses loudly.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from plimsoll.adapters.ports import NODES, PODS
from plimsoll.core.quantity import quantity
from tests.faults.world.api import Api
from tests.faults.world.control_loop import ControlLoop, ready
from tests.faults.world.kinds import UnfaithfulError
from tests.faults.world.store import Address, Event, Object, address_of

MANAGER: Final = "kube-scheduler"
_ZERO: Final = Decimal(0)


@dataclass
class Scheduler:
    """Binds pods to nodes."""

    api: Api

    def __post_init__(self) -> None:
        self.loop = ControlLoop(self.api.agenda, self._keys, self._sync)
        self.api.store.listeners.append(self.loop.on_event)

    def _keys(self, event: Event) -> list[Hashable]:
        if event.kind == PODS and event.type != "DELETED" and not event.object["spec"].get("nodeName"):
            return [address_of(event.object)]
        if event.kind == NODES or (event.kind == PODS and event.type == "DELETED"):
            return [address_of(pod) for pod in self.api.store.all(PODS) if not pod["spec"].get("nodeName")]
        return []

    def _sync(self, key: Hashable) -> float | None:
        assert isinstance(key, Address)
        pod = self.api.store.get(PODS, key)
        if pod is None or pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return None
        reasons: dict[str, int] = {}
        for node in self.api.store.all(NODES):
            _refuse_what_is_not_known(pod["spec"])
            why = self._why_not(pod, node)
            if not why:
                self._bind(pod, node["metadata"]["name"])
                return None
            reasons[why] = reasons.get(why, 0) + 1
        self._tell(pod, reasons)
        return None

    def _why_not(self, pod: Object, node: Object) -> str:
        spec, labels = pod["spec"], node["metadata"].get("labels") or {}
        taints = node["spec"].get("taints") or []
        if not ready(node):
            taints = [*taints, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        for taint in taints:
            if taint["effect"] != "PreferNoSchedule" and not _tolerated(taint, spec.get("tolerations") or ()):
                return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
            return "node(s) didn't match Pod's node affinity/selector"
        return self._does_not_fit(pod, node)

    def _does_not_fit(self, pod: Object, node: Object) -> str:
        here = [p for p in self.api.store.all(PODS) if p["spec"].get("nodeName") == node["metadata"]["name"]]
        asked, free = requests(pod), {k: quantity(v) or _ZERO for k, v in node["status"]["allocatable"].items()}
        for other in here:
            if other["status"].get("phase") not in ("Succeeded", "Failed"):
                for name, amount in requests(other).items():
                    free[name] = free.get(name, _ZERO) - amount
        short = sorted(name for name, amount in asked.items() if amount > free.get(name, _ZERO))
        return f"Insufficient {short[0]}" if short else ""

    def _bind(self, pod: Object, node: str) -> None:
        now = self.api.agenda.stamp()
        bound = self.api.replace(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}}, MANAGER, "binding")
        placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        self.api.replace(PODS, {**bound, "status": {**bound["status"], "conditions": [placed]}}, MANAGER, "status")

    def _tell(self, pod: Object, reasons: Mapping[str, int]) -> None:
        nodes = sum(reasons.values())
        text = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        old = next((c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"), None)
        message = f"0/{nodes} nodes are available: {text}." if nodes else "no nodes available to schedule pods"
        if old is not None and old.get("message") == message:
            return
        since = old["lastTransitionTime"] if old else self.api.agenda.stamp()
        said = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": since,
        }
        self.api.replace(PODS, {**pod, "status": {**pod["status"], "conditions": [said]}}, MANAGER, "status")


def requests(pod: Object) -> dict[str, Decimal]:
    """What a pod asks of its node; what is only limited is asked too."""
    total: dict[str, Decimal] = {}
    for container in pod["spec"]["containers"]:
        asked = container.get("resources") or {}
        for name, value in {**(asked.get("limits") or {}), **(asked.get("requests") or {})}.items():
            total[name] = total.get(name, _ZERO) + (quantity(value) or _ZERO)
    return total


def _tolerated(taint: Mapping[str, Any], tolerations: Any) -> bool:
    return any(
        toleration.get("effect") in (None, taint["effect"])
        and (
            (toleration.get("operator") == "Exists" and toleration.get("key") in (None, taint["key"]))
            or (toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""))
        )
        for toleration in tolerations
    )


def _refuse_what_is_not_known(spec: Mapping[str, Any]) -> None:
    affinity = spec.get("affinity") or {}
    hard = any("required" in key for part in affinity.values() for key in part)
    spread = any(c["whenUnsatisfiable"] == "DoNotSchedule" for c in spec.get("topologySpreadConstraints") or ())
    claims = any("persistentVolumeClaim" in volume for volume in spec.get("volumes") or ())
    if hard or spread or claims:
        raise UnfaithfulError("this scheduler knows no required affinity, no hard topology spread and no volumes")
