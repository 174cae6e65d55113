"""One kubelet for all nodes: pods that are bound start, load, serve, crash, drain and end.

Containers run whatever was arranged in ``Ward``: an image that cannot be pulled, an engine that ends with words and an
exit code. Restarts wait 10 s, 20 s, 40 s … as with the real one.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.adapters.ports import NODES, PODS, REVISIONS, InvalidError
from plimsoll.api import names
from tests.faults.world.api import Api
from tests.faults.world.control_loop import ControlLoop, ready
from tests.faults.world.engines import Engine, Offered, pool_of
from tests.faults.world.store import Address, Event, Object, address_of

MANAGER: Final = "kubelet"
PULL_SECONDS: Final = 2.0
STOP_SECONDS: Final = 12.0
PULL_AGAIN_SECONDS: Final = 30.0
BACKOFF_SECONDS: Final = 10.0
GATE_PASSES: Final = '{"score": 0.99, "threshold": 0.95, "message": "all prompts"}'
BACKOFF_MAX_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Crash:
    """How an engine ends: while it loads, or some time after it is ready."""

    exit_code: int = 1
    reason: str = "Error"
    words: str = ""
    after_ready_seconds: float | None = None


@dataclass
class Ward:
    """What the world has arranged for containers. Functions of the pod, so that a new template may do better."""

    load_seconds: float = 40.0
    request_seconds: float = 4.0
    missing_image: Callable[[Object], bool] = lambda _: False
    crash: Callable[[Object], Crash | None] = lambda _: None
    flapping: Callable[[Object], bool] = lambda _: False
    """Its readiness probe fails every other time."""
    gate: Callable[[Object], tuple[float, int, str]] = lambda _: (30.0, 0, GATE_PASSES)
    """How a quality gate ends: after so many seconds, with an exit code and its last words."""
    offered: dict[tuple[str, str], Offered] = field(default_factory=dict)
    """Traffic by namespace and service."""


@dataclass
class Kubelet:
    """All kubelets, over one API server. ``engines`` are those that serve, by the pod's uid."""

    api: Api
    ward: Ward
    engines: dict[str, Engine] = field(default_factory=dict)
    logs: dict[tuple[str, bool], str] = field(default_factory=dict)
    """By uid, and whether of the run before."""
    _begun: dict[str, int] = field(default_factory=dict)
    """Runs of each pod's container; a later one makes what was planned for an earlier one void."""

    def __post_init__(self) -> None:
        self.loop = ControlLoop(self.api.agenda, _keys, self._sync)
        self.api.store.listeners.append(self.loop.on_event)

    def log(self, namespace: str, pod: str, previous: bool) -> str:
        """A container's log; InvalidError when there is none, as the API server answers."""
        found = self.api.get(PODS, namespace, pod)
        key = (found["metadata"]["uid"], previous)
        if key not in self.logs:
            raise InvalidError(f'container "vllm" in pod "{pod}" is waiting to start or has no such run', status=400)
        return self.logs[key]

    def _sync(self, key: Hashable) -> float | None:
        assert isinstance(key, Address)
        pod = self.api.store.get(PODS, key)
        if pod is None:
            return None
        uid = pod["metadata"]["uid"]
        if not self.is_here(pod):
            return None
        if pod["metadata"].get("deletionTimestamp"):
            if self._begun.get(uid) != -1:
                started = uid in self._begun
                self._begun[uid] = -1
                self.api.agenda.after(STOP_SECONDS if started else 0.1, lambda: self._end(key, uid))
        elif uid not in self._begun:
            self._begun[uid] = 0
            self._start(pod)
        elif ready(pod) != (_holds(pod, "ContainersReady") and _gates_open(pod)):
            self._report(pod, _container(pod), is_ready=_holds(pod, "ContainersReady"))
        return None

    def is_here(self, pod: Object) -> bool:
        """Its node is there: otherwise nobody does anything for it."""
        node = self.api.store.get(NODES, Address("", pod["spec"].get("nodeName", "")))
        return node is not None and ready(node)

    def back(self, node: str) -> None:
        """A node is there again: its pods are looked after, and end if they were to."""
        for pod in [*self.api.store.all(PODS)]:
            if pod["spec"].get("nodeName") == node:
                self.loop.look(address_of(pod))
                if pod["metadata"]["uid"] in self.engines and not pod["metadata"].get("deletionTimestamp"):
                    self._report(pod, self._running(pod, started=True), is_ready=True)

    def _end(self, key: Address, uid: str) -> None:
        pod = self.api.store.get(PODS, key)
        if pod is not None and pod["metadata"]["uid"] == uid and self.is_here(pod):
            self.engines.pop(uid, None)
            self.api.delete(PODS, *key, uid=uid, grace_seconds=0)
        elif pod is not None and pod["metadata"]["uid"] == uid:
            self._begun[uid] = 0  # the node is away: once it is back, again

    # Starting.

    def _start(self, pod: Object) -> None:
        if self.ward.missing_image(pod):
            image = pod["spec"]["containers"][0]["image"]
            waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": not found'}
            self._report(pod, {"state": {"waiting": waiting}, "started": False})
            self._later(pod, PULL_AGAIN_SECONDS, self._start)
            return
        self._report(pod, {"state": {"waiting": {"reason": "ContainerCreating"}}, "started": False})
        self._later(pod, PULL_SECONDS, self._load)

    def _load(self, pod: Object) -> None:
        self._report(pod, self._running(pod, started=False))
        if pod["spec"].get("restartPolicy") == "Never":
            seconds, code, words = self.ward.gate(pod)
            self._later(pod, seconds, lambda now: self._finish(now, code, words))
            return
        crash = self.ward.crash(pod)
        if crash is not None and crash.after_ready_seconds is None:
            self._later(pod, self.ward.load_seconds / 2, lambda now: self._crash(now, crash))
        elif self.ward.load_seconds >= _startup_seconds(pod):
            late = Crash(137, "Error", "startup probe failed")
            self._later(pod, _startup_seconds(pod), lambda now: self._crash(now, late))
        else:
            self._later(pod, self.ward.load_seconds, self._serve)

    def _serve(self, pod: Object) -> None:
        now, plan = self.api.agenda.now, self._plan_of(pod)
        if plan is not None:
            args = pod["spec"]["containers"][0].get("args") or ()
            self.engines[pod["metadata"]["uid"]] = Engine(pool_of(plan, self.ward.request_seconds, args), now)
        self._report(pod, self._running(pod, started=True), is_ready=True)
        crash = self.ward.crash(pod)
        if crash is not None and crash.after_ready_seconds is not None:
            self._later(pod, crash.after_ready_seconds, lambda at: self._crash(at, crash))
        if self.ward.flapping(pod):
            self._later(pod, 15.0, self.flap)

    def flap(self, pod: Object) -> None:
        """Its readiness changes every 15 s for as long as that is arranged."""
        up = not ready(pod) or not self.ward.flapping(pod)
        self._report(pod, self._running(pod, started=True), is_ready=up)
        if self.ward.flapping(pod):
            self._later(pod, 15.0, self.flap)

    def _crash(self, pod: Object, crash: Crash) -> None:
        uid, restarts = pod["metadata"]["uid"], _restarts(pod)
        self.engines.pop(uid, None)
        self.logs[uid, True] = self.logs[uid, False] = crash.words
        ended = {"exitCode": crash.exit_code, "reason": crash.reason, "message": crash.words[-2048:]}
        wait = min(BACKOFF_SECONDS * 2**restarts, BACKOFF_MAX_SECONDS)
        waiting = {"reason": "CrashLoopBackOff", "message": f"back-off {wait:.0f}s restarting failed container"}
        container = {
            "state": {"waiting": waiting},
            "lastState": {"terminated": ended},
            "started": False,
            "restartCount": restarts + 1,
        }
        self._report(pod, container)
        self._later(pod, wait, self._load)

    def _finish(self, pod: Object, code: int, words: str) -> None:
        """The one container has ended, and is not started again."""
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": words[-4096:]}
        self._report(pod, {"state": {"terminated": ended}, "started": False})

    def _later(self, pod: Object, seconds: float, what: Callable[[Object], None]) -> None:
        """Go on with a pod, if it is still there, still runs, and its node is."""
        key, uid = address_of(pod), pod["metadata"]["uid"]
        self._begun[uid] = run = self._begun.get(uid, 0) + 1

        def go_on() -> None:
            now = self.api.store.get(PODS, key)
            if now is None or now["metadata"]["uid"] != uid or self._begun.get(uid) != run:
                return
            if self.is_here(now):
                what(now)
            else:
                self.api.agenda.after(5.0, go_on)

        self.api.agenda.after(seconds, go_on)

    # Telling.

    def _running(self, pod: Object, *, started: bool) -> Object:
        old = _container(pod).get("state", {}).get("running")
        return {"state": {"running": old or {"startedAt": self.api.agenda.stamp()}}, "started": started}

    def _report(self, pod: Object, container: Mapping[str, Any], *, is_ready: bool = False) -> None:
        now, old = self.api.agenda.stamp(), _container(pod)
        kept = {key: old[key] for key in ("lastState", "restartCount") if key in old}
        status = {
            **pod["status"],
            "phase": _phase(container["state"], restarted=bool(kept.get("restartCount"))),
            "conditions": _conditions(pod, is_ready, now),
            "containerStatuses": [
                {
                    "name": pod["spec"]["containers"][0]["name"],
                    "restartCount": 0,
                    **kept,
                    **container,
                    "ready": is_ready,
                }
            ],
        }
        self.api.replace(PODS, {**pod, "status": status}, MANAGER, "status")

    def _plan_of(self, pod: Object) -> Mapping[str, Any] | None:
        """The plan that the pod's template was rendered from."""
        meta = pod["metadata"]
        wanted = (meta.get("annotations") or {}).get(names.ANNOTATION_TEMPLATE)
        for revision in self.api.store.all(REVISIONS, meta["namespace"]):
            template = revision["data"].get("template") or {}
            if template.get("metadata", {}).get("annotations", {}).get(names.ANNOTATION_TEMPLATE) == wanted:
                plan: Mapping[str, Any] = revision["data"]["plan"]
                return plan
        # A canary's template is in no revision: it is the fleet's plan with another flag.
        service = meta["labels"].get(names.LABEL_SERVICE)
        mine = [
            r
            for r in self.api.store.all(REVISIONS, meta["namespace"])
            if r["metadata"]["labels"].get(names.LABEL_SERVICE) == service
        ]
        newest = max(mine, key=lambda r: int(r["revision"]), default=None)
        return newest["data"]["plan"] if newest else None


def _keys(event: Event) -> list[Hashable]:
    bound = event.kind == PODS and event.type != "DELETED" and event.object["spec"].get("nodeName")
    return [address_of(event.object)] if bound else []


def _container(pod: Object) -> Object:
    found: Object = next(iter(pod["status"].get("containerStatuses") or ()), {})
    return found


def _restarts(pod: Object) -> int:
    return int(_container(pod).get("restartCount", 0))


def _startup_seconds(pod: Object) -> float:
    probe = pod["spec"]["containers"][0].get("startupProbe") or {}
    return float(probe.get("failureThreshold", 10**6) * probe.get("periodSeconds", 10))


def _phase(state: Mapping[str, Any], *, restarted: bool) -> str:
    if "terminated" in state:
        return "Failed" if state["terminated"]["exitCode"] else "Succeeded"
    return "Running" if "running" in state or restarted else "Pending"


def _holds(pod: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in pod["status"].get("conditions") or ())


def _gates_open(pod: Object) -> bool:
    return all(_holds(pod, gate["conditionType"]) for gate in pod["spec"].get("readinessGates") or ())


def _conditions(pod: Object, is_ready: bool, now: str) -> list[Object]:
    old = {c["type"]: c for c in pod["status"].get("conditions") or ()}

    def said(kind: str, holds: bool) -> Object:
        same = old.get(kind, {}).get("status") == str(holds)
        return {
            "type": kind,
            "status": str(holds),
            "lastTransitionTime": old[kind]["lastTransitionTime"] if same else now,
        }

    gates = [old[g["conditionType"]] for g in pod["spec"].get("readinessGates") or () if g["conditionType"] in old]
    opened = is_ready and _gates_open(pod)
    return [old["PodScheduled"], said("Ready", opened), said("ContainersReady", is_ready), *gates]
