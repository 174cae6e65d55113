"""What the operator knows of the cluster: services, their children and their pods, each as last seen.

Objects are kept as deflated JSON, trimmed to what a decision reads: eight megabytes for a thousand services instead of
nineteen, at a tenth of a millisecond a look.
Events may come late or twice; an older resourceVersion never replaces a newer one. Deletions may be missed by any
watch, so ``prune`` removes what a full listing did not show.
"""

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from plimsoll.adapters.ports import CHILDREN, DEPLOYMENTS, JOBS, LEADER_WORKER_SETS, OPTIONAL, PODS, SERVICES, Kind
from plimsoll.api import names
from plimsoll.core.managers import holders
from plimsoll.core.manifests.group import read_status
from plimsoll.core.pods import FLEET_TRACKS, PodState, pod_state
from plimsoll.core.stable_text import stable


class Key(NamedTuple):
    """A VLLMService's address."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """As people write it."""
        return f"{self.namespace}/{self.name}"


REFUSED_LIMIT: Final = 400
_FASTEST: Final = 1


@dataclass(frozen=True)
class _Stored:
    version: int
    seen: int
    service: Key
    body: bytes | PodState | None
    """Deflated JSON of an object; what a pod is doing; None of a pod that is not part of the fleet."""


_META_FIELDS: Final = (
    "name",
    "namespace",
    "uid",
    "generation",
    "labels",
    "annotations",
    "ownerReferences",
    "deletionTimestamp",
)


@dataclass
class Cache:
    """Objects by kind and address, pods by service."""

    _objects: dict[Kind, dict[Key, _Stored]] = field(default_factory=dict)
    _pods: dict[Key, dict[str, None]] = field(default_factory=dict)
    _children: dict[Key, dict[tuple[Kind, str], None]] = field(default_factory=dict)
    _sequence: int = 0
    _read: dict[tuple[Kind, str], tuple[_Stored, dict[str, Any]]] = field(default_factory=dict)
    """Objects of the service that was read last: one reconcile reads each of them several times."""
    _read_of: Key | None = None

    def put(self, kind: Kind, obj: Mapping[str, Any]) -> Key | None:
        """Remember the object; the key of the service to look at again, or None when nothing relevant changed."""
        meta = obj["metadata"]
        address = Key(meta.get("namespace", ""), meta["name"])
        known = self._objects.setdefault(kind, {})
        before, version = known.get(address), _version(meta)
        service = address if kind is SERVICES else owner_of(obj)
        if service is None and before is not None:
            service = before.service  # somebody took our label away: that is a change of what is ours
        if service is None:
            return None
        if before and version < before.version:
            return None
        body = pod_state(obj) if kind is PODS else _compact(kind, obj)
        self._sequence += 1
        known[address] = _Stored(version, self._sequence, service, body)
        self._link(kind, service, address.name)
        return service if before is None or before.body != body else None

    def drop(self, kind: Kind, obj: Mapping[str, Any]) -> Key | None:
        """Forget a deleted object; the key of the service to look at again."""
        meta = obj["metadata"]
        address = Key(meta.get("namespace", ""), meta["name"])
        before = self._objects.get(kind, {}).get(address)
        if before is None or _version(meta) < before.version:
            return None
        return self._forget(kind, address)

    def mark(self) -> int:
        """A point in time: it moves with all that is put or forgotten, and what is put later is newer than it."""
        return self._sequence

    def prune(self, kind: Kind, listed: Iterable[Key], since: int, namespace: str | None = None) -> set[Key]:
        """Forget what a listing started at ``since`` did not show; keys of the services concerned."""
        present = set(listed)
        gone = [
            address
            for address, stored in self._objects.get(kind, {}).items()
            if address not in present and stored.seen <= since and namespace in (None, address.namespace)
        ]
        return {self._forget(kind, address) for address in gone}

    def services(self) -> Iterator[Key]:
        """All services known."""
        yield from self._objects.get(SERVICES, {})

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        """An object as last seen (trimmed, with the version it was seen at), or None. Nobody may change it."""
        stored = self._objects.get(kind, {}).get(Key(namespace, name))
        if stored is None or not isinstance(stored.body, bytes):
            return None
        if self._read_of != stored.service:
            self._read_of, self._read = stored.service, {}
        before, found = self._read.get((kind, name), (None, {}))
        if before is not stored:
            found = json.loads(zlib.decompress(stored.body))
            if stored.version:
                found["metadata"]["resourceVersion"] = str(stored.version)
            self._read[kind, name] = stored, found
        return found

    def children(self, service: Key) -> dict[tuple[Kind, str], dict[str, Any]]:
        """The service's children by kind and name, pods left out."""
        found = {}
        for kind, name in self._children.get(service, {}):
            obj = self.get(kind, service.namespace, name)
            if obj is not None:
                found[kind, name] = obj
        return found

    def pods(self, service: Key, tracks: Collection[str] = FLEET_TRACKS) -> tuple[PodState, ...]:
        """What the pods of the service's fleet are doing, or those of other tracks."""
        known = self._objects.get(PODS, {})
        stored = (known[Key(service.namespace, name)].body for name in self._pods.get(service, ()))
        return tuple(body for body in stored if isinstance(body, PodState) and body.track in tracks)

    def _link(self, kind: Kind, service: Key, name: str) -> None:
        if kind is PODS:
            self._pods.setdefault(service, {})[name] = None
        elif kind is not SERVICES:
            self._children.setdefault(service, {})[kind, name] = None

    def _forget(self, kind: Kind, address: Key) -> Key:
        self._sequence += 1
        service = self._objects[kind].pop(address).service
        if kind is PODS:
            self._pods.get(service, {}).pop(address.name, None)
        elif kind is not SERVICES:
            self._children.get(service, {}).pop((kind, address.name), None)
        return service


def owner_of(obj: Mapping[str, Any]) -> Key | None:
    """The service an object belongs to: by its label, which only we write on objects we manage."""
    meta = obj["metadata"]
    name = (meta.get("labels") or {}).get(names.LABEL_SERVICE)
    return Key(meta.get("namespace", ""), name) if name else None


def is_listed(obj: Mapping[str, Any]) -> bool:
    """Whether a child has the label by which our watches and sweeps find it."""
    return (obj["metadata"].get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.MANAGED_BY


def _version(meta: Mapping[str, Any]) -> int:
    """Resource versions of one API server are ordered numbers (stated by Kubernetes since 1.35)."""
    text = meta.get("resourceVersion", "0")
    return int(text) if text.isdigit() else 0


def _compact(kind: Kind, obj: Mapping[str, Any]) -> bytes:
    meta = {k: obj["metadata"][k] for k in _META_FIELDS if k in obj["metadata"]}
    trimmed: dict[str, Any] = {k: v for k, v in obj.items() if k in ("spec", "data", "revision", "status")}
    if kind is DEPLOYMENTS:
        trimmed["status"] = _deployment_status(obj.get("status", {}))
    elif kind is JOBS:
        trimmed["status"] = _job_status(obj.get("status", {}))
    elif kind is LEADER_WORKER_SETS:
        trimmed["status"] = read_status(obj.get("status", {}), int(meta.get("generation", 0)))
    elif kind in CHILDREN or kind in OPTIONAL:
        trimmed.pop("status", None)
    managers = {m.get("manager") for m in obj["metadata"].get("managedFields") or ()}
    body = {"metadata": meta, **trimmed, "managers": sorted(m for m in managers if m)}
    if kind in (DEPLOYMENTS, LEADER_WORKER_SETS):
        body["countedBy"] = holders(obj, "spec", "replicas")
    return zlib.compress(json.dumps(body, separators=(",", ":"), sort_keys=True).encode(), _FASTEST)


def _deployment_status(status: Mapping[str, Any]) -> dict[str, Any]:
    figures = ("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    kept = {k: status[k] for k in figures if k in status}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    progressing, failure = (conditions.get(kind, {}) for kind in ("Progressing", "ReplicaFailure"))
    # The name of the pod that could not be made is another one each time.
    refused = stable(failure.get("message", ""), REFUSED_LIMIT) if failure.get("status") == "True" else ""
    return {**kept, "progressReason": progressing.get("reason", ""), "refused": refused}


def _job_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a Job is done, and why it failed."""
    holds = {c.get("type"): c for c in status.get("conditions") or () if c.get("status") == "True"}
    failed = holds.get("Failed", {})
    return {"complete": "Complete" in holds, "failed": (failed.get("reason") or "Failed") if failed else ""}
