"""The Job controller, as far as the operator uses it: one pod, one try, a deadline, and a condition at the end."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime

from plimsoll.adapters.ports import JOBS, PODS
from tests.faults.world.api import Api
from tests.faults.world.control_loop import ControlLoop
from tests.faults.world.deployments import owner_reference, owner_uid
from tests.faults.world.kinds import UnfaithfulError
from tests.faults.world.store import Address, Event, Object, address_of

MANAGER = "kube-controller-manager"


@dataclass
class Jobs:
    """Runs Jobs with ``backoffLimit: 0``; any other is refused loudly."""

    api: Api
    passed: set[str] = field(default_factory=set)
    """Uids of Jobs that have ever succeeded."""

    def __post_init__(self) -> None:
        self.loop = ControlLoop(self.api.agenda, self._keys, self._sync)
        self.api.store.listeners.append(self.loop.on_event)

    def _keys(self, event: Event) -> list[Hashable]:
        if event.kind == JOBS and event.type != "DELETED":
            return [address_of(event.object)]
        owners = event.object["metadata"].get("ownerReferences") or () if event.kind == PODS else ()
        namespace = event.object["metadata"].get("namespace", "")
        return [Address(namespace, owner["name"]) for owner in owners if owner["kind"] == JOBS.kind]

    def _sync(self, key: Hashable) -> float | None:
        assert isinstance(key, Address)
        job = self.api.store.get(JOBS, key)
        if job is None or job["metadata"].get("deletionTimestamp") or (job.get("status") or {}).get("conditions"):
            return None
        if job["spec"].get("backoffLimit") != 0:
            raise UnfaithfulError("this Job controller knows no second try")
        pods = [p for p in self.api.store.all(PODS, key.namespace) if owner_uid(p) == job["metadata"]["uid"]]
        if not (job.get("status") or {}).get("startTime"):
            self._tell(job, {"startTime": self.api.agenda.stamp()})
            self._create_pod(job)
            return float(job["spec"]["activeDeadlineSeconds"])
        return self._ended(job, pods)

    def _ended(self, job: Object, pods: list[Object]) -> float | None:
        left = self._left_seconds(job)
        phases = {pod["status"].get("phase") for pod in pods if not pod["metadata"].get("deletionTimestamp")}
        if "Succeeded" in phases:
            self.passed.add(job["metadata"]["uid"])
            self._tell(job, {**job["status"], "conditions": [_condition("Complete", "CompletionsReached")]})
        elif left <= 0:
            for pod in pods:
                self.api.delete(PODS, *address_of(pod))
            self._tell(job, {**job["status"], "conditions": [_condition("Failed", "DeadlineExceeded")]})
        elif "Failed" in phases or not phases:
            # A pod that was deleted counts as one that failed.
            self._tell(job, {**job["status"], "conditions": [_condition("Failed", "BackoffLimitExceeded")]})
        else:
            return left
        return None

    def _left_seconds(self, job: Object) -> float:
        began = datetime.fromisoformat(job["status"]["startTime"])
        gone = (datetime.fromisoformat(self.api.agenda.stamp()) - began).total_seconds()
        return float(job["spec"]["activeDeadlineSeconds"]) - gone

    def _create_pod(self, job: Object) -> None:
        meta, template = job["metadata"], job["spec"]["template"]
        manifest = {
            "metadata": {
                **template["metadata"],
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "ownerReferences": [owner_reference(JOBS.kind, job, "batch/v1")],
            },
            "spec": template["spec"],
        }
        self.api.create(PODS, manifest, MANAGER)

    def _tell(self, job: Object, status: Object) -> None:
        current = self.api.store.get(JOBS, address_of(job))
        if current:
            self.api.replace(JOBS, {**current, "status": status}, MANAGER, "status")


def _condition(kind: str, reason: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason}
