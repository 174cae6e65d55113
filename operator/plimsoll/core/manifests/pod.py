"""The pod template of an engine: what vLLM needs to start at the first try and to end without losing requests."""

from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.manifests.identity import pod_labels
from plimsoll.core.plan.result import Plan

HTTP_PORT: Final = 8000
HTTP_PORT_NAME: Final = "http"
CONTAINER: Final = "vllm"
DEFAULT_IMAGE: Final = "vllm/vllm-openai"

ENDPOINT_GRACE_SECONDS: Final = 10
"""preStop: time for endpoints to leave before SIGTERM; a draining vLLM answers new requests with 500."""
SHUTDOWN_TIMEOUT_SECONDS: Final = 120
"""``--shutdown-timeout``: in-flight requests may finish for so long."""
KILL_MARGIN_SECONDS: Final = 30
"""After the timeout vLLM's API server can hang on open connections: then SIGKILL is right."""

SHM_BYTES_PER_GPU: Final = 2 * 2**30
"""Shared memory for NCCL and the worker queues; the default 64 MiB ends a tensor-parallel start."""

PROBE_SECONDS: Final = 2
"""Startup probes are cheap (a refused connection), and a replica that is ready should serve at once."""


@dataclass(frozen=True)
class PodRequest:
    """What the pod depends on besides the plan."""

    service: str
    model: str
    image: str
    restart: str = ""
    """Value of the restart annotation: a new value is a new template."""


def pod_template(plan: Plan, request: PodRequest) -> dict[str, Any]:
    """The Deployment's pod template."""
    metadata: dict[str, Any] = {"labels": pod_labels(request.service)}
    if request.restart:
        metadata["annotations"] = {names.ANNOTATION_RESTART: request.restart}
    return {"metadata": metadata, "spec": _pod_spec(plan, request)}


def _pod_spec(plan: Plan, request: PodRequest) -> dict[str, Any]:
    return {
        "containers": [_engine(plan, request)],
        # A Service called "vllm" would set VLLM_PORT=tcp://…, which vLLM reads as its own setting.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": ENDPOINT_GRACE_SECONDS + SHUTDOWN_TIMEOUT_SECONDS + KILL_MARGIN_SECONDS,
        "nodeSelector": {names.GPU_PRODUCT_LABEL: plan.choice.gpu},
        "tolerations": [{"key": names.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(_shm_bytes(plan))}}],
    }


def _engine(plan: Plan, request: PodRequest) -> dict[str, Any]:
    gpus = str(_gpus(plan))
    return {
        "name": CONTAINER,
        "image": request.image,
        "args": [request.model, *plan.choice.args],
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "resources": {
            "requests": {"memory": str(plan.host_memory_bytes + _shm_bytes(plan))},
            "limits": {names.GPU_RESOURCE: gpus},
        },
        "startupProbe": _startup_probe(plan.load_seconds),
        "readinessProbe": {"httpGet": _health(), "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        # No liveness probe: a dead engine ends its own process, and a busy one must never be killed for being slow.
        "lifecycle": {"preStop": {"sleep": {"seconds": ENDPOINT_GRACE_SECONDS}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - a mount, not a temporary file
    }


def _startup_probe(load_seconds: int) -> dict[str, Any]:
    """Twice the estimated load time: the port stays closed until the engine is ready."""
    return {
        "httpGet": _health(),
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": 5,
        "failureThreshold": max(6, -(-2 * load_seconds // PROBE_SECONDS)),
    }


def _health() -> dict[str, Any]:
    return {"path": "/health", "port": HTTP_PORT_NAME}


def _shm_bytes(plan: Plan) -> int:
    return SHM_BYTES_PER_GPU * _gpus(plan)


def _gpus(plan: Plan) -> int:
    """GPUs of one pod: a replica's, or its share on one of its nodes."""
    return plan.choice.gpus_per_replica // plan.choice.nodes_per_replica
