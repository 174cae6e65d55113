"""Garbage collector, namespace controller and node lifecycle: what goes because something else has gone."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final

from plimsoll.adapters.ports import NODES, PODS, Kind
from tests.faults.world.api import Api
from tests.faults.world.control_loop import ControlLoop, ready
from tests.faults.world.kinds import NAMESPACES, traits
from tests.faults.world.store import Address, Event, Object, address_of

MANAGER: Final = "kube-controller-manager"
EVICTION_SECONDS: Final = 300.0
"""How long a pod stays on a node that is lost: the default toleration of ``node.kubernetes.io/unreachable``."""
COLLECT_SECONDS: Final = 0.1


@dataclass
class Housekeeping:
    """The three controllers over one API server."""

    api: Api

    def __post_init__(self) -> None:
        self.namespaces = ControlLoop(self.api.agenda, _namespace_keys, self._sync_namespace)
        self.api.store.listeners += [self._on_event, self.namespaces.on_event]

    def _on_event(self, event: Event) -> None:
        if event.type == "DELETED":
            uid = event.object["metadata"]["uid"]
            self.api.agenda.after(COLLECT_SECONDS, lambda: self._collect(uid))
        elif event.object["metadata"].get("ownerReferences"):
            kind, address = event.kind, address_of(event.object)
            self.api.agenda.after(COLLECT_SECONDS, lambda: self._collect_orphan(kind, address))
        if event.kind == NODES and event.type == "MODIFIED" and not ready(event.object):
            self._lose(event.object["metadata"]["name"])

    # Owners.

    def _collect(self, uid: str) -> None:
        """What a deleted object owned goes, unless somebody else owns it too."""
        for kind, obj in self._everything():
            if any(owner["uid"] == uid for owner in obj["metadata"].get("ownerReferences") or ()):
                self._collect_orphan(kind, address_of(obj))

    def _collect_orphan(self, kind: Kind, address: Address) -> None:
        """An object all of whose owners are gone goes."""
        found = self.api.store.get(kind, address)
        owners = [owner["uid"] for owner in (found or {}).get("metadata", {}).get("ownerReferences") or ()]
        if found is None or not owners or found["metadata"].get("deletionTimestamp"):
            return
        alive = {obj["metadata"]["uid"] for _, obj in self._everything()}
        if not alive.intersection(owners):
            self.api.delete(kind, *address)

    def _everything(self, namespace: str | None = None) -> Iterator[tuple[Kind, Object]]:
        for kind in [*self.api.store.objects]:
            for obj in [*self.api.store.all(kind, namespace)]:
                yield kind, obj

    # Namespaces.

    def _sync_namespace(self, key: Hashable) -> float | None:
        assert isinstance(key, str)
        found = self.api.store.get(NAMESPACES, Address("", key))
        if found is None or not found["metadata"].get("deletionTimestamp"):
            return None
        left = [(kind, obj) for kind, obj in self._everything(key) if traits(kind).namespaced]
        if not left:
            self.api.store.drop(NAMESPACES, found)
            return None
        for kind, obj in left:
            if not obj["metadata"].get("deletionTimestamp"):
                self.api.delete(kind, *address_of(obj))
        return 1.0

    # Nodes.

    def _lose(self, node: str) -> None:
        """Pods of a node that is not there are not ready; those it does not come back to go after a while."""
        for pod in [*self.api.store.all(PODS)]:
            if pod["spec"].get("nodeName") == node:
                self._unready(pod)
        self.api.agenda.after(EVICTION_SECONDS, lambda: self._evict(node))

    def _unready(self, pod: Object) -> None:
        conditions = [
            {**c, "status": "False", "lastTransitionTime": self.api.agenda.stamp()} if c["type"] == "Ready" else c
            for c in pod["status"].get("conditions") or ()
        ]
        if conditions != (pod["status"].get("conditions") or []):
            status = {**pod["status"], "conditions": conditions}
            self.api.replace(PODS, {**pod, "status": status}, MANAGER, "status")

    def _evict(self, node: str) -> None:
        found = self.api.store.get(NODES, Address("", node))
        if found is not None and ready(found):
            return
        for pod in [*self.api.store.all(PODS)]:
            if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp"):
                # Nobody is there to confirm it: such a pod stays Terminating.
                self.api.delete(PODS, *address_of(pod))


def _namespace_keys(event: Event) -> list[Hashable]:
    if event.kind == NAMESPACES:
        return [event.object["metadata"]["name"]]
    return (
        [event.object["metadata"]["namespace"]]
        if event.type == "DELETED" and event.object["metadata"].get("namespace")
        else []
    )
