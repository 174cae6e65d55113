"""Containers → the pod status a kubelet patches. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from e2e.fleet.container import Container, Running, State, Terminated, Waiting
from e2e.fleet.nodes import timestamp

# These lists are merged by address otherwise: a pod that got another address would keep the old one too.
REPLACE = {"$patch": "replace"}


def build(
    pod: Mapping[str, Any],
    containers: Sequence[Container],
    sidecars: Sequence[Container],
    address: str,
    node_address: str,
    begun: datetime,
    now: datetime,
) -> dict[str, Any]:
    """The whole status; conditions keep their transition time until they flip (against ``pod``'s status)."""
    ready = all(container.ready for container in [*containers, *sidecars])
    opened = ready and gates_open(pod)
    phase = _phase(containers, pod["spec"].get("restartPolicy", "Always"))
    done = phase in {"Succeeded", "Failed"}
    wanted = [
        ("PodReadyToStartContainers", True, ""),
        ("Initialized", True, ""),
        ("ContainersReady", ready, "PodCompleted" if done else "ContainersNotReady"),
        ("Ready", opened, "PodCompleted" if done else "ReadinessGatesNotReady" if ready else "ContainersNotReady"),
    ]
    unready = [container.name for container in containers if not container.ready]
    message = f"containers with unready status: [{' '.join(unready)}]"
    before = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    return {
        "phase": phase,
        "podIP": address,
        "podIPs": [REPLACE, {"ip": address}],
        "hostIP": node_address,
        "hostIPs": [REPLACE, {"ip": node_address}],
        "startTime": timestamp(begun),
        "conditions": [_condition(*row, message, before, now) for row in wanted],
        "containerStatuses": [_container(container) for container in containers],
        "initContainerStatuses": _init_statuses(pod, sidecars, begun),
    }


def gates_open(pod: Mapping[str, Any]) -> bool:
    """Whether every readiness gate of the pod holds; who sets its condition is not the kubelet."""
    said = {c["type"]: c["status"] for c in (pod.get("status") or {}).get("conditions") or ()}
    return all(said.get(gate["conditionType"]) == "True" for gate in pod["spec"].get("readinessGates") or ())


def _phase(containers: Sequence[Container], policy: str) -> str:
    ended = [c.state for c in containers if isinstance(c.state, Terminated)]
    if policy != "Always" and len(ended) == len(containers):
        failed = any(state.exit.code for state in ended)
        return "Failed" if failed else "Succeeded"
    never_ran = any(isinstance(c.state, Waiting) and c.last is None and not c.restart_count for c in containers)
    return "Pending" if never_ran else "Running"


def _condition(
    kind: str, value: bool, reason: str, message: str, before: Mapping[str, Mapping[str, Any]], now: datetime
) -> dict[str, Any]:
    status = str(value)
    old = before.get(kind)
    since = old.get("lastTransitionTime") if old and old.get("status") == status else None
    why: dict[str, Any] = {"reason": None, "message": None} if value else {"reason": reason, "message": message}
    return {"type": kind, "status": status, "lastTransitionTime": since or timestamp(now), **why}


def _container(container: Container) -> dict[str, Any]:
    image = container.spec["image"]
    status = {
        "name": container.name,
        "image": image,
        "imageID": f"fake://{image}",
        "containerID": f"fake://{id(container):x}/{container.restart_count}",
        "restartCount": container.restart_count,
        "ready": container.ready,
        "started": container.started,
        "state": _state(container.state),
        "lastState": {},
    }
    if container.last is not None and container.state is not container.last:
        status["lastState"] = _state(container.last)
    return status


def _state(state: State) -> dict[str, Any]:
    if isinstance(state, Waiting):
        return {"waiting": {"reason": state.reason, "message": state.message}}
    if isinstance(state, Running):
        return {"running": {"startedAt": timestamp(state.since)}}
    return {
        "terminated": {
            "exitCode": state.exit.code,
            "reason": state.exit.shown_reason,
            "message": state.message,
            "startedAt": timestamp(state.started),
            "finishedAt": timestamp(state.finished),
        }
    }


def _init_statuses(pod: Mapping[str, Any], sidecars: Sequence[Container], begun: datetime) -> list[dict[str, Any]]:
    """Plain init containers are taken as done at once; sidecars run."""
    running = {container.name: container for container in sidecars}
    return [
        _container(running[spec["name"]]) if spec["name"] in running else _completed(spec, begun)
        for spec in pod["spec"].get("initContainers") or ()
    ]


def _completed(spec: Mapping[str, Any], at: datetime) -> dict[str, Any]:
    times = {"startedAt": timestamp(at), "finishedAt": timestamp(at)}
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": f"fake://{spec['image']}",
        "restartCount": 0,
        "ready": True,
        "started": False,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed", **times}},
    }
