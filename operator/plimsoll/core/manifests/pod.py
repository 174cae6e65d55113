"""The pod template of an engine: what vLLM needs to start at the first try and to end without losing requests.

Deterministic: the same plan and request give the same bytes, lists in a fixed order (F21).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.api import names
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.container import CONTAINER, HTTP_PORT, HTTP_PORT_NAME, SHM, SHM_VOLUME
from plimsoll.core.manifests.gpu import gpu_claim
from plimsoll.core.manifests.identity import pod_labels, track_selector
from plimsoll.core.manifests.image import command, engine_image
from plimsoll.core.manifests.security import Security, security
from plimsoll.core.manifests.userpart import with_template
from plimsoll.core.manifests.weights import Weights, weights
from plimsoll.core.plan.result import Plan
from plimsoll.core.policy import PodPolicy

PROBE_SECONDS: Final = 2
"""Startup probes are cheap (a refused connection), and a replica that is ready should serve at once."""
PROBE_TIMEOUT_SECONDS: Final = 5
_SPREAD_OVER: Final = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
_TLS_FLAG: Final = "--ssl-certfile"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class PodRequest:
    """What the pod depends on besides the plan. ``restart``: a new value of the annotation is a new template."""

    service: str
    spec: VLLMServiceSpec
    restart: str = ""
    policy: PodPolicy = field(default_factory=PodPolicy)
    track: str = names.TRACK_MAIN


def pod_template(plan: Plan, request: PodRequest) -> Manifest:
    """The template of a fleet's pods."""
    metadata: Manifest = {"labels": pod_labels(request.service, request.track)}
    if request.restart:
        metadata["annotations"] = {names.ANNOTATION_RESTART: request.restart}
    rights = security(request.spec, plan.choice.engine_version, request.policy.engine)
    found: Manifest = {"metadata": metadata, "spec": _pod_spec(plan, request, rights)}
    for template in (request.policy.defaults, request.spec.pod_template):
        found = with_template(found, template, restricted=rights.restricted)
    return found


def _pod_spec(plan: Plan, request: PodRequest, rights: Security) -> Manifest:
    spec, choice, policy = request.spec, plan.choice, request.policy
    files = weights(spec.model.source, spec.model.id, f"{choice.engine_version}-{choice.gpu}")
    shared = {"medium": "Memory", "sizeLimit": str(plan.host.shared_memory_bytes)}
    return {
        "containers": [_engine(plan, request, files, rights)],
        # A Service called "vllm" would set VLLM_PORT=tcp://…, which vLLM reads as its own setting.
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": plan.drain.grace_seconds,
        "nodeSelector": gpu_claim(choice.gpu, policy.gpus.mig_strategy).node_selector,
        "tolerations": [{"key": names.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [_spread(request, key) for key in _SPREAD_OVER],
        "securityContext": rights.pod,
        "volumes": [{"name": SHM_VOLUME, "emptyDir": shared}, *rights.volumes, *files.volumes],
    }


def _spread(request: PodRequest, key: str) -> Manifest:
    """Replicas on several nodes and zones where that is possible: never a reason not to run."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": track_selector(request.service, request.track)},
    }


def _engine(plan: Plan, request: PodRequest, files: Weights, rights: Security) -> Manifest:
    choice, engine = plan.choice, request.spec.engine
    started_by = command(engine.image, choice.engine_version)
    return {
        "name": CONTAINER,
        "image": engine_image(engine.image, choice.engine_version),
        **({"command": started_by} if started_by else {}),
        "args": [files.model, *files.args, *choice.args],
        "env": [*rights.env, *files.env],
        "ports": [{"name": HTTP_PORT_NAME, "containerPort": HTTP_PORT, "protocol": "TCP"}],
        "resources": _resources(plan, request),
        "startupProbe": _startup_probe(plan),
        "readinessProbe": {
            "httpGet": _health(plan),
            "periodSeconds": 5,
            "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
            "failureThreshold": 3,
        },
        # No liveness probe: a dead engine ends its own process, and a busy one must never be killed for being slow.
        "lifecycle": {"preStop": {"sleep": {"seconds": plan.drain.pre_stop_seconds}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": rights.engine,
        "volumeMounts": [{"name": SHM_VOLUME, "mountPath": SHM}, *rights.mounts, *files.mounts],
    }


def _resources(plan: Plan, request: PodRequest) -> Manifest:
    """Requests from the plan; no limit but the GPUs: a limit ends an engine that a larger page cache only helps."""
    claim = gpu_claim(plan.choice.gpu, request.policy.gpus.mig_strategy)
    gpus = plan.choice.gpus_per_replica // plan.choice.nodes_per_replica
    return {
        "requests": {"cpu": str(plan.host.cpu_cores), "memory": str(plan.host.memory_bytes)},
        "limits": {claim.resource: str(gpus)},
    }


def _startup_probe(plan: Plan) -> Manifest:
    """The port stays closed until the engine is ready (``vllm-server.md``): nothing else tells that it loads."""
    return {
        "httpGet": _health(plan),
        "periodSeconds": PROBE_SECONDS,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
        "failureThreshold": max(1, -(-plan.startup.probe_seconds // PROBE_SECONDS)),
    }


def _health(plan: Plan) -> Manifest:
    tls = health_scheme(plan.choice.args) == "HTTPS"
    return {"path": "/health", "port": HTTP_PORT_NAME, **({"scheme": "HTTPS"} if tls else {})}


def health_scheme(args: Iterable[str]) -> str:
    """HTTPS where the engine is given a certificate, else HTTP."""
    tls = any(arg.partition("=")[0].replace("_", "-") == _TLS_FLAG for arg in args)
    return "HTTPS" if tls else "HTTP"
