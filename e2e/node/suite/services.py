"""VLLMServices of one namespace: make one, wait for it, look at its pods, talk to its engines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.node.images.store import ENGINE_NAME, GPU
from plimsoll.api import names

SYSTEM: Final = "plimsoll-system"
PATIENCE_SECONDS: Final = 120.0
CLIENT_SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Services:
    """Questions and answers about one namespace."""

    kubectl: Kubectl
    namespace: str

    def apply(self, name: str, **spec: Any) -> None:
        """A small model on the node's GPUs; keyword arguments replace parts of the spec."""
        base: Object = {
            "model": {"id": "Qwen/Qwen3-1.7B"},
            "hardware": {"gpu": GPU, "maxGPUs": 4},
            "contextTokens": 8192,
            "scaling": {"mode": "Fixed"},
        }
        metadata = {"name": name, "namespace": self.namespace}
        self.kubectl.apply(
            {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata, "spec": base | spec}
        )

    def delete(self, name: str) -> None:
        """Without waiting for its pods to drain."""
        self.kubectl("delete", "vllmservice", name, "-n", self.namespace)

    def get(self, kind: str, name: str) -> Object:
        return self.kubectl.get(kind, name, "-n", self.namespace)

    def condition(self, name: str, kind: str) -> Object:
        """As it stands for the current generation; empty before."""
        service = self.get("vllmservice", name)
        generation = service["metadata"]["generation"]
        conditions = service.get("status", {}).get("conditions") or ()
        found = (c for c in conditions if c["type"] == kind and c.get("observedGeneration") == generation)
        return next(found, {})

    def until(self, name: str, kind: str, status: str, *, message: str = "") -> Object:
        """The condition once it has this status and its message holds this text."""

        def there() -> Object | None:
            found = self.condition(name, kind)
            right = found.get("status") == status and message in found.get("message", "")
            return found if right else None

        found = eventually(there, within_seconds=PATIENCE_SECONDS)
        assert found is not None
        return found

    def pods(self, name: str) -> list[Object]:
        """The service's pods that are not on their way out."""
        selector = f"{names.LABEL_INSTANCE}={name}"
        listed: list[Object] = self.kubectl.get("pods", "-n", self.namespace, "-l", selector)["items"]
        return [pod for pod in listed if not pod["metadata"].get("deletionTimestamp")]

    def engine(self, pod: Object) -> Object:
        """The status of its engine container."""
        current = self.get("pod", pod["metadata"]["name"])
        return next((c for c in current["status"].get("containerStatuses") or ()), {})

    def run_python(self, pod: Object, code: str) -> str:
        """Run code in the pod's container with its own rights; what it printed."""
        return self.kubectl("exec", pod["metadata"]["name"], "-n", self.namespace, "--", "python3", "-c", code)

    def signal(self, pod: Object, signal: str) -> None:
        """Send the container's first process a signal, such as SIGUSR1; that may end the very command that sends it."""
        try:
            self.run_python(pod, f"import os, signal; os.kill(1, signal.{signal})")
        except KubectlError as error:
            if "137" not in str(error):
                raise

    def start_client(self, name: str, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """A pod that runs `python -m e2e.fleet.load` with these arguments."""
        container = {
            "name": "client",
            "image": ENGINE_NAME,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-m", "e2e.fleet.load", *arguments],
            "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            "securityContext": CLIENT_SECURITY,
        }
        metadata = {"name": name, "namespace": self.namespace}
        spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def client_report(self, name: str, *, within_seconds: float) -> Object:
        """What the client saw, once it has ended."""
        phase = ("get", "pod", name, "-n", self.namespace, "-o", "jsonpath={.status.phase}")
        eventually(lambda: self.kubectl(*phase) in {"Succeeded", "Failed"}, within_seconds=within_seconds)
        report: Object = json.loads(self.kubectl("logs", name, "-n", self.namespace).splitlines()[-1])
        return report

    def address(self, name: str) -> str:
        """The Service's cluster address."""
        return str(self.get("service", name)["spec"]["clusterIP"])


def process_facts(status: str) -> dict[str, str]:
    """A `/proc/PID/status` as a dictionary."""
    return dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
