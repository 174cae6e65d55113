"""The Deployment and ReplicaSet controllers: templates become ReplicaSets, ReplicaSets become pods.

Left out, because nothing here depends on it: proportional scaling of several ReplicaSets while a roll-out is under way
(the newest one takes the difference), pausing, rollback annotations, adoption of orphans by label.
"""

import hashlib
import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, PODS, ForbiddenError, Kind
from tests.faults.world.api import Api
from tests.faults.world.control_loop import ControlLoop, ready
from tests.faults.world.kinds import REPLICA_SETS
from tests.faults.world.store import Address, Event, Object, address_of

MANAGER: Final = "kube-controller-manager"
HASH_LABEL: Final = "pod-template-hash"


def owner_uid(obj: Mapping[str, Any]) -> str:
    """The uid of the object's controller, or empty."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _leaving(obj: Mapping[str, Any]) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def _over(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def owner_reference(kind: str, owner: Object, api_version: str = "apps/v1") -> Object:
    """The controller's claim on what it makes."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass
class Deployments:
    """Both controllers over one API server."""

    api: Api

    def __post_init__(self) -> None:
        self.deployments = ControlLoop(self.api.agenda, self._deployment_keys, self._sync_deployment)
        self.sets = ControlLoop(self.api.agenda, self._set_keys, self._sync_set)
        self.api.store.listeners += [self.deployments.on_event, self.sets.on_event]

    def _deployment_keys(self, event: Event) -> list[Hashable]:
        return self._concerned(event, DEPLOYMENTS, REPLICA_SETS)

    def _set_keys(self, event: Event) -> list[Hashable]:
        return self._concerned(event, REPLICA_SETS, PODS)

    def _concerned(self, event: Event, owners: Kind, owned: Kind) -> list[Hashable]:
        """Of a kind of owners, whom an event of their own or of what they own concerns."""
        if event.kind == owners:
            return [address_of(event.object)]
        if event.kind != owned:
            return []
        uid, namespace = owner_uid(event.object), event.object["metadata"]["namespace"]
        return [address_of(each) for each in self.api.store.all(owners, namespace) if each["metadata"]["uid"] == uid]

    # Deployments.

    def _sync_deployment(self, key: Hashable) -> float | None:
        assert isinstance(key, Address)
        found = self.api.store.get(DEPLOYMENTS, key)
        if found is None or _leaving(found):
            return None
        sets = self._sets_of(found)
        wanted = _template_hash(found["spec"]["template"])
        new = next((s for s in sets if s["metadata"]["labels"].get(HASH_LABEL) == wanted), None)
        old = [s for s in sets if s is not new]
        if found["spec"]["strategy"]["type"] == "Recreate":
            self._recreate(found, new, old, wanted)
        else:
            self._roll(found, new, old, wanted)
        self._clean_up(found, wanted)
        return self._tell(found, wanted)

    def _sets_of(self, deployment: Object) -> list[Object]:
        uid = deployment["metadata"]["uid"]
        return [s for s in self.api.store.all(REPLICA_SETS, deployment["metadata"]["namespace"]) if owner_uid(s) == uid]

    def _recreate(self, deployment: Object, new: Object | None, old: list[Object], wanted: str) -> None:
        """Old pods end before new ones start."""
        for each in old:
            self._scale(each, 0)
        uids = {each["metadata"]["uid"] for each in old}
        if any(owner_uid(pod) in uids and not _over(pod) for pod in self._pods(deployment)):
            return
        replicas = deployment["spec"]["replicas"]
        if new is None:
            self._create_set(deployment, wanted, replicas)
        else:
            self._scale(new, replicas)

    def _roll(self, deployment: Object, new: Object | None, old: list[Object], wanted: str) -> None:
        replicas = deployment["spec"]["replicas"]
        surge, unavailable = _bounds(deployment["spec"]["strategy"]["rollingUpdate"], replicas)
        of_old = sum(each["spec"]["replicas"] for each in old)
        if new is None:
            room = max(0, replicas + surge - of_old)
            self._create_set(deployment, wanted, min(replicas, room))
            return
        have = new["spec"]["replicas"]
        if have > replicas:
            self._scale(new, replicas)
        elif have < replicas:
            self._scale(new, min(replicas, have + max(0, replicas + surge - have - of_old)))
        self._shrink_old(new, old, replicas, unavailable)

    def _shrink_old(self, new: Object, old: list[Object], replicas: int, unavailable: int) -> None:
        """Old pods go as far as enough stay available; those that are not available go first."""
        new_missing = new["spec"]["replicas"] - _figure(new, "availableReplicas")
        total = sum(each["spec"]["replicas"] for each in (*old, new))
        may_go = total - (replicas - unavailable) - new_missing
        for each in old:
            bad = max(0, each["spec"]["replicas"] - _figure(each, "availableReplicas"))
            gone = min(bad, max(0, may_go))
            may_go -= gone
            if gone:
                self._scale(each, each["spec"]["replicas"] - gone)
        available = sum(_figure(each, "availableReplicas") for each in (*old, new))
        may_go = min(may_go, available - (replicas - unavailable))
        for each in old:
            current = self.api.store.get(REPLICA_SETS, address_of(each)) or each
            gone = min(current["spec"]["replicas"], max(0, may_go))
            may_go -= gone
            if gone:
                self._scale(current, current["spec"]["replicas"] - gone)

    def _create_set(self, deployment: Object, wanted: str, replicas: int) -> None:
        meta, template = deployment["metadata"], deployment["spec"]["template"]
        labels = {**template["metadata"]["labels"], HASH_LABEL: wanted}
        numbers = [int(_annotation(s, "deployment.kubernetes.io/revision") or 0) for s in self._sets_of(deployment)]
        self.api.create(
            REPLICA_SETS,
            {
                "metadata": {
                    "name": f"{meta['name']}-{wanted}",
                    "namespace": meta["namespace"],
                    "labels": labels,
                    "annotations": {"deployment.kubernetes.io/revision": str(max(numbers, default=0) + 1)},
                    "ownerReferences": [owner_reference("Deployment", deployment)],
                },
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {**deployment["spec"]["selector"]["matchLabels"], HASH_LABEL: wanted}},
                    "template": {**template, "metadata": {**template["metadata"], "labels": labels}},
                },
            },
            MANAGER,
        )

    def _scale(self, replica_set: Object, replicas: int) -> None:
        if replica_set["spec"]["replicas"] != replicas:
            change = {"spec": {"replicas": replicas}}
            self.api.patch(REPLICA_SETS, *address_of(replica_set), change, MANAGER)

    def _clean_up(self, deployment: Object, wanted: str) -> None:
        """Old ReplicaSets beyond the limit go."""
        idle = [
            s
            for s in self._sets_of(deployment)
            if s["metadata"]["labels"].get(HASH_LABEL) != wanted
            and s["spec"]["replicas"] == 0
            and not _figure(s, "replicas")
        ]
        idle.sort(key=lambda s: int(s["metadata"]["resourceVersion"]))
        for each in idle[: max(0, len(idle) - deployment["spec"]["revisionHistoryLimit"])]:
            self.api.delete(REPLICA_SETS, *address_of(each))

    def _tell(self, deployment: Object, wanted: str) -> float | None:
        sets = self._sets_of(deployment)
        new = [s for s in sets if s["metadata"]["labels"].get(HASH_LABEL) == wanted]
        replicas = sum(_figure(s, "replicas") for s in sets)
        available = sum(_figure(s, "availableReplicas") for s in sets)
        asked = deployment["spec"]["replicas"]
        figures = {
            "replicas": replicas,
            "updatedReplicas": sum(_figure(s, "replicas") for s in new),
            "readyReplicas": sum(_figure(s, "readyReplicas") for s in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, asked - available),
        }
        least = asked - _bounds(deployment["spec"]["strategy"].get("rollingUpdate") or {}, asked)[1]
        conditions, again = self._conditions(deployment, figures, new[0] if new else None, available >= least)
        status = {
            "observedGeneration": deployment["metadata"]["generation"],
            **{key: value for key, value in figures.items() if value},
            "conditions": conditions,
        }
        if status != deployment.get("status"):
            self.api.replace(DEPLOYMENTS, {**deployment, "status": status}, MANAGER, "status")
        return again

    def _conditions(
        self, deployment: Object, figures: Mapping[str, int], new: Object | None, enough: bool
    ) -> tuple[list[Object], float | None]:
        """Available, Progressing and, if pods cannot be made, ReplicaFailure; when the deadline is to be looked at."""
        now = self.api.agenda.stamp()
        old = {c["type"]: c for c in (deployment.get("status") or {}).get("conditions") or ()}
        asked = deployment["spec"]["replicas"]
        complete = figures["updatedReplicas"] == asked == figures["replicas"] == figures["availableReplicas"]
        was = old.get("Progressing") or {"reason": "", "lastUpdateTime": now, "lastTransitionTime": now}
        before = {
            k: (deployment.get("status") or {}).get(k, 0)
            for k in ("updatedReplicas", "readyReplicas", "availableReplicas")
        }
        moved = any(figures[k] > before[k] for k in before) or (
            (deployment.get("status") or {}).get("observedGeneration") != deployment["metadata"]["generation"]
            and was["reason"] != "NewReplicaSetAvailable"
        )
        deadline = deployment["spec"]["progressDeadlineSeconds"]
        waited = self._seconds_since(was["lastUpdateTime"])
        again: float | None = None
        if complete:
            reason = "NewReplicaSetAvailable"
        elif was["reason"] == "NewReplicaSetAvailable" and figures["updatedReplicas"] == figures["replicas"]:
            reason = "NewReplicaSetAvailable"  # scaling is no roll-out
        elif moved or was["reason"] in ("", "NewReplicaSetAvailable"):
            reason = "ReplicaSetUpdated"
        elif was["reason"] == "ProgressDeadlineExceeded" or waited >= deadline:
            reason = "ProgressDeadlineExceeded"
        else:
            reason = "ReplicaSetUpdated"
        fresh = moved or reason != was["reason"]
        if reason == "ReplicaSetUpdated":
            again = deadline - (0 if fresh else waited) + 1
        progressing = {
            "type": "Progressing",
            "status": "False" if reason == "ProgressDeadlineExceeded" else "True",
            "reason": reason,
            "message": f"ReplicaSet: {reason}",
            "lastUpdateTime": now if fresh else was["lastUpdateTime"],
            "lastTransitionTime": was["lastTransitionTime"],
        }
        found = [
            _condition(
                "Available", enough, "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable", old, now
            ),
            progressing,
        ]
        refused = next(
            (c for c in (new or {}).get("status", {}).get("conditions") or () if c["type"] == "ReplicaFailure"), None
        )
        return [*found, refused] if refused else found, again

    def _seconds_since(self, stamp: str) -> float:
        return (self.api.agenda.wall() - datetime.fromisoformat(stamp)).total_seconds()

    # ReplicaSets.

    def _sync_set(self, key: Hashable) -> float | None:
        assert isinstance(key, Address)
        found = self.api.store.get(REPLICA_SETS, key)
        if found is None or _leaving(found):
            return None
        uid = found["metadata"]["uid"]
        pods = [p for p in self._pods(found) if owner_uid(p) == uid and not _leaving(p) and not _over(p)]
        missing, refused, again = found["spec"]["replicas"] - len(pods), "", None
        for _ in range(missing):
            try:
                self._create_pod(found)
            except ForbiddenError as error:  # the namespace is ending
                refused, again = error.message, 5.0
        for pod in sorted(pods, key=_worth)[: max(0, -missing)]:
            self.api.delete(PODS, *address_of(pod))
        self._tell_set(found, refused)
        return again

    def _create_pod(self, replica_set: Object) -> None:
        meta, template = replica_set["metadata"], replica_set["spec"]["template"]
        manifest = {
            "metadata": {
                **template["metadata"],
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "ownerReferences": [owner_reference("ReplicaSet", replica_set)],
            },
            "spec": template["spec"],
        }
        self.api.create(PODS, manifest, MANAGER)

    def _tell_set(self, replica_set: Object, refused: str) -> None:
        uid = replica_set["metadata"]["uid"]
        pods = [p for p in self._pods(replica_set) if owner_uid(p) == uid and not _leaving(p) and not _over(p)]
        serving = sum(map(ready, pods))
        status: Object = {"replicas": len(pods), "observedGeneration": replica_set["metadata"]["generation"]}
        if serving:
            status |= {"readyReplicas": serving, "availableReplicas": serving}
        if refused:
            old = {c["type"]: c for c in (replica_set.get("status") or {}).get("conditions") or ()}
            said = _condition("ReplicaFailure", True, "FailedCreate", old, self.api.agenda.stamp())
            status["conditions"] = [{**said, "message": refused}]
        if status != replica_set.get("status"):
            current = self.api.store.get(REPLICA_SETS, address_of(replica_set))
            if current:
                self.api.replace(REPLICA_SETS, {**current, "status": status}, MANAGER, "status")

    def _pods(self, owner: Object) -> list[Object]:
        return [*self.api.store.all(PODS, owner["metadata"]["namespace"])]


def _condition(kind: str, holds: bool, reason: str, old: Mapping[str, Object], now: str) -> Object:
    was = old.get(kind)
    same = was is not None and was["status"] == str(holds)
    since = was["lastTransitionTime"] if was and same else now
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "message": reason,
        "lastTransitionTime": since,
    }


def _bounds(rolling: Mapping[str, int | str], replicas: int) -> tuple[int, int]:
    """``maxSurge`` and ``maxUnavailable`` in pods; not both 0."""
    surge = _share(rolling.get("maxSurge", 0), replicas, up=True)
    unavailable = _share(rolling.get("maxUnavailable", 0), replicas, up=False)
    return surge, unavailable if surge or unavailable else 1


def _share(value: int | str, of: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    exact = int(value.removesuffix("%")) * of / 100
    return math.ceil(exact) if up else math.floor(exact)


def _template_hash(template: Object) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _figure(obj: Object, name: str) -> int:
    return int((obj.get("status") or {}).get(name, 0))


def _annotation(obj: Object, name: str) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(name, ""))


def _worth(pod: Object) -> tuple[bool, bool, bool, float, str]:
    """Pods that go first come first: without a node, pending, not ready, the youngest."""
    made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
    status = pod["status"]
    return (
        bool(pod["spec"].get("nodeName")),
        status.get("phase") == "Running",
        ready(pod),
        -made,
        pod["metadata"]["name"],
    )
