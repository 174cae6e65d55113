"""A quality gate's objects: a Service for each side, the Job that compares them, and the word that it has passed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api import names
from plimsoll.api.quality_gate import QualityGateSpec
from plimsoll.core.drift import digest
from plimsoll.core.manifests.container import GATE_CONTAINER, HTTP_PORT, HTTP_PORT_NAME
from plimsoll.core.manifests.identity import Owner, labels, traffic_selector
from plimsoll.core.manifests.pod import health_scheme
from plimsoll.core.manifests.userpart import beside_engines
from plimsoll.core.podtemplate.gate import plain_gate

SIDES: Final[Mapping[str, str]] = {"candidate": names.TRACK_CANARY, "baseline": names.TRACK_CONTROL}
"""The two Services of a gate, by what their names end with, and the pods behind each."""
GATE_NAME: Final = "vllm-gate"
BUILT_IN: Final = ("python3", "-m", "plimsoll.gate")
_NAME_DIGITS: Final = 6
"""A service's name has 50 characters at most, a Job's 63."""


@dataclass(frozen=True)
class GateRequest:
    """What a gate's Job depends on."""

    owner: Owner
    gate: QualityGateSpec
    experiment: str
    """What tells one experiment from every other: a result of an earlier one must never count."""
    image: str
    """The operator's own, for the built-in comparison."""
    args: Sequence[str] = ()
    """The engine's."""


def side_name(service: str, side: str) -> str:
    """What the Service of a side is called."""
    return f"{service}-{side}"


def job_name(service: str, experiment: str) -> str:
    """What the Job of an experiment is called."""
    return f"{service}-gate-{digest(experiment)[:_NAME_DIGITS]}"


def side_service(owner: Owner, side: str) -> dict[str, Any]:
    """The one way to a pod that is not Ready yet: a gate's, and nobody else's."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(side_name(owner.name, side)),
        "spec": {
            "type": "ClusterIP",
            "publishNotReadyAddresses": True,
            "selector": {**traffic_selector(owner.name), names.LABEL_TRACK: SIDES[side]},
            "ports": [{"name": HTTP_PORT_NAME, "port": HTTP_PORT, "targetPort": HTTP_PORT_NAME, "protocol": "TCP"}],
        },
    }


def is_built_in(gate: QualityGateSpec) -> bool:
    """Whether the comparison is Plimsoll's own: nobody has named another image."""
    own = plain_gate(gate).get("spec", {}).get("containers", ())
    return not any(each["name"] == GATE_CONTAINER and "image" in each for each in own)


def gate_job(request: GateRequest) -> dict[str, Any]:
    """One try, with an end: what failed is not tried again by Kubernetes."""
    owner = request.owner
    marks = {**labels(owner.name), names.LABEL_NAME: GATE_NAME, names.LABEL_TRACK: names.TRACK_GATE}
    metadata = owner.metadata(job_name(owner.name, request.experiment))
    template = beside_engines({"metadata": {"labels": marks}, "spec": _pod(request)}, plain_gate(request.gate))
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "labels": marks},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": max(1, round(request.gate.seconds)),
            "template": template,
        },
    }


def passed(pod: str, namespace: str, uid: str) -> dict[str, Any]:
    """The condition that a gated pod waits for, of this very pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": pod, "namespace": namespace, "uid": uid},
        "status": {"conditions": [{"type": names.GATE_PASSED, "status": "True", "reason": "GatePassed"}]},
    }


def _pod(request: GateRequest) -> dict[str, Any]:
    built_in = {"image": request.image, "command": [*BUILT_IN]} if is_built_in(request.gate) else {}
    return {
        "containers": [
            {
                "name": GATE_CONTAINER,
                **built_in,
                "env": _env(request),
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            }
        ],
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }


def _env(request: GateRequest) -> list[dict[str, str]]:
    scheme, owner = health_scheme(request.args).lower(), request.owner
    found = {
        f"PLIMSOLL_{side.upper()}_URL": f"{scheme}://{side_name(owner.name, side)}.{owner.namespace}.svc:{HTTP_PORT}"
        for side in SIDES
    }
    if request.gate.threshold is not None:
        found["PLIMSOLL_THRESHOLD"] = f"{request.gate.threshold:g}"
    return [{"name": name, "value": value} for name, value in found.items()]
