"""A lab with one service of three replicas: apply it, wait for it, look at its Deployment."""

from typing import Any, Final

from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from plimsoll.api import names

REPLICAS: Final = 3
PATIENCE_SECONDS: Final = 300.0
H100: Final = "NVIDIA-H100-80GB-HBM3"
NAMESPACE: Final = "default"
SERVICE: Final = "svc"


def lab() -> Lab:
    """One node with a GPU more than the replicas need, and engines that load in a second."""
    return Lab(LabOptions(nodes=f"1*{H100}:{REPLICAS + 1}", load_seconds=1.0), log=lambda _: None)


def apply(lab: Lab, context: int, max_gpus: int = REPLICAS + 1) -> None:
    spec = {
        "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
        "hardware": {"gpu": H100, "maxGPUs": max_gpus},
        "contextTokens": context,
        "scaling": {"mode": "Fixed"},
        "replicas": REPLICAS,
    }
    meta = {"name": SERVICE, "namespace": NAMESPACE}
    lab.plane.kubectl.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec})


def await_running(lab: Lab, context: int) -> None:
    """Until the fleet runs with this context and nothing else."""

    def done() -> bool:
        service = get(lab, names.API_VERSION, names.PLURAL)
        status = service.get("status", {})
        current = status.get("observedGeneration") == service["metadata"]["generation"]
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        return current and ready and str(context) in engine(deployment(lab))["args"]

    eventually(done, within_seconds=PATIENCE_SECONDS)


def engine(deployment: dict[str, Any]) -> dict[str, Any]:
    """The engine's container in the pod template."""
    container: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return container


def deployment(lab: Lab) -> dict[str, Any]:
    return get(lab, "apps/v1", "deployments")


def get(lab: Lab, api_version: str, plural: str) -> dict[str, Any]:
    return lab.plane.api.get(f"/apis/{api_version}/namespaces/{NAMESPACE}/{plural}/{SERVICE}")
