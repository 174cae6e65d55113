"""What a test asks about one namespace, and how it makes a VLLMService there."""

import json
from collections.abc import Callable
from typing import Any, Final

from e2e.controlplane.api import ApiError
from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.labrun import Lab
from plimsoll.api import names

H100: Final = "NVIDIA-H100-80GB-HBM3"
PREFIX: Final = {
    "vllmservices": "/apis/plimsoll.dev/v1alpha1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "poddisruptionbudgets": "/apis/policy/v1",
    "services": "/api/v1",
    "jobs": "/apis/batch/v1",
    "pods": "/api/v1",
    "events": "/api/v1",
}
OWNED: Final = ("deployments", "services", "poddisruptionbudgets", "controllerrevisions")

Apply = Callable[..., str]


def applier(kubectl: Kubectl, namespace: str) -> Apply:
    """Applies a VLLMService of this name; keyword arguments replace parts of a small valid spec."""

    def make(name: str = "svc", annotations: dict[str, str] | None = None, **spec: Any) -> str:
        kubectl.apply(manifest(name, namespace, annotations, **spec))
        return name

    return make


def manifest(name: str, namespace: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A small valid VLLMService; keyword arguments replace parts of its spec."""
    base: dict[str, Any] = {
        "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
        "hardware": {"gpu": H100},
        "contextTokens": 131072,
    }
    meta = {"name": name, "namespace": namespace, "annotations": annotations or {}}
    return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": base | spec}


class Look:
    """Questions about one namespace."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self.kubectl = lab.plane.kubectl
        self.namespace = namespace
        self._api = lab.plane.api

    def get(self, kind: str, name: str) -> dict[str, Any]:
        return self._api.get(f"{PREFIX[kind]}/namespaces/{self.namespace}/{kind}/{name}")

    def maybe(self, kind: str, name: str) -> dict[str, Any]:
        """The object, or nothing (an empty dict) when there is none."""
        try:
            return self.get(kind, name)
        except ApiError as error:
            if error.code != 404:
                raise
            return {}

    def all(self, kind: str) -> list[dict[str, Any]]:
        listed = self._api.get(f"{PREFIX[kind]}/namespaces/{self.namespace}/{kind}")
        return [{"kind": kind, **item} for item in listed["items"]]

    def args(self, name: str) -> list[str]:
        """Arguments of a Deployment's engine, each flag with its value, too."""
        found = self.maybe("deployments", name)
        args: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"] if found else []
        return [
            f"{arg}={after}" if not after.startswith("--") else arg
            for arg, after in zip(args, [*args[1:], "--"], strict=True)
        ] + args

    def trials(self, name: str) -> str:
        """All that the status says of experiments and of what they rest on; for a test's message."""
        status = self.get("vllmservices", name)["status"]
        conditions = [c for c in status["conditions"] if c["type"] in (names.EXPERIMENTING, names.METRICS_AVAILABLE)]
        return f"{status.get('tuning')} {conditions} {status.get('observed')} {status.get('recommendation')}"

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        return _condition(self.get("vllmservices", name), kind)

    def is_ready(self, name: str) -> bool:
        return bool(self.condition(name, "Ready").get("status") == "True")

    def until(self, name: str, kind: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """The condition once it has this status (and reason) for the current generation."""

        def there() -> dict[str, Any] | None:
            service = self.get("vllmservices", name)
            found = _condition(service, kind)
            current = found.get("observedGeneration") == service["metadata"]["generation"]
            right = found.get("status") == status and reason in (None, found.get("reason"))
            return found if current and right else None

        found = eventually(there, within_seconds=90, otherwise=lambda: self._story(name))
        assert found is not None
        return found

    def _story(self, name: str) -> str:
        """What a person would ask for first when a service does not get where it should."""
        service = self.get("vllmservices", name)
        status = service.get("status", {})
        parts = {
            "generation": service["metadata"]["generation"],
            "annotations": service["metadata"].get("annotations"),
            "status": {key: status.get(key) for key in ("conditions", "replicas", "readyReplicas", "scaling")},
            "deployment": self.maybe("deployments", name).get("status"),
            "pods": {pod["metadata"]["name"]: pod["status"] for pod in self.all("pods")},
            "events": [f"{e.get('reason')}: {e.get('message') or e.get('note')}" for e in self.all("events")][-20:],
        }
        return json.dumps(parts, indent=1)

    def versions(self) -> dict[str, str]:
        """The resourceVersion of everything the operator writes here."""
        objects = [obj for kind in (*OWNED, "vllmservices") for obj in self.all(kind)]
        return {f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for o in objects}

    def observed(self, name: str, bottleneck: str, *, within_seconds: float = 60) -> dict[str, Any]:
        """The service's ``status.observed`` once it says that this limits it."""

        def found() -> dict[str, Any]:
            seen: dict[str, Any] = self.get("vllmservices", name).get("status", {}).get("observed", {})
            return seen if seen.get("bottleneck") == bottleneck else {}

        return eventually(found, within_seconds=within_seconds)

    def quiet(self) -> dict[str, str]:
        """The versions once they have stopped to change."""
        last: dict[str, str] = {}

        def same() -> bool:
            nonlocal last
            before, last = last, self.versions()
            return before == last

        eventually(same, within_seconds=60)
        return last


def _condition(service: dict[str, Any], kind: str) -> dict[str, Any]:
    found = service.get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), {})
