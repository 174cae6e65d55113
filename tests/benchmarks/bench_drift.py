"""How fast an edit by hand of what the operator manages is undone. SERVICES=10 changes how many are edited.

Each service is edited once in each way: who edits the same object again and again is not answered at once any more
(docs/adr/0024).
"""

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from plimsoll.api import names
from tests.benchmarks.report import figure, quantile

GPU: Final = "NVIDIA-H100-80GB-HBM3"
NAMESPACE: Final = "default"
SERVICES: Final = [f"svc-{n:02d}" for n in range(int(os.environ.get("SERVICES", "10")))]

Edit = tuple[tuple[str, ...], tuple[str, ...], Callable[[dict[str, Any]], bool]]
"""kubectl's words before and after the Deployment's name, and whether it is undone."""
EDITS: Final[dict[str, Edit]] = {
    "label": (
        ("label", "deployment"),
        (f"{names.LABEL_SERVICE}-",),
        lambda fleet: names.LABEL_SERVICE in fleet["metadata"]["labels"],
    ),
    "image": (
        ("set", "image", "deployment"),
        ("vllm=other:1",),
        lambda fleet: fleet["spec"]["template"]["spec"]["containers"][0]["image"] != "other:1",
    ),
    "replicas": (("scale", "deployment"), ("--replicas=2",), lambda fleet: fleet["spec"]["replicas"] == 1),
}


def main() -> None:
    """Print a figure for each kind of edit."""
    with Lab(LabOptions(nodes=f"{len(SERVICES)}*{GPU}:2", load_seconds=1.0), log=lambda _: None) as lab:
        for name in SERVICES:
            _apply(lab, name)
        eventually(lambda: all(_ready(lab, name) for name in SERVICES), within_seconds=300)
        for what, edit in EDITS.items():
            seconds = [_repair(lab, name, edit) for name in SERVICES]
            worst = round(max(seconds), 2)
            figure(f"drift_repair_{what}_p50", quantile(seconds, 0.5), "s", edits=len(seconds), worst=worst)


def _apply(lab: Lab, name: str) -> None:
    spec = {
        "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
        "hardware": {"gpu": GPU, "maxGPUs": 2},
        "contextTokens": 32_000,
        "scaling": {"mode": "Fixed"},
    }
    meta = {"name": name, "namespace": NAMESPACE}
    lab.plane.kubectl.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec})


def _ready(lab: Lab, name: str) -> bool:
    status = _get(lab, names.API_VERSION, names.PLURAL, name).get("status", {})
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def _repair(lab: Lab, name: str, edit: Edit) -> float:
    before, after, undone = edit
    lab.plane.kubectl(*before, name, *after, "-n", NAMESPACE)
    began = perf_counter()
    eventually(lambda: undone(_get(lab, "apps/v1", "deployments", name)), within_seconds=60)
    return perf_counter() - began


def _get(lab: Lab, api_version: str, plural: str, name: str) -> dict[str, Any]:
    return lab.plane.api.get(f"/apis/{api_version}/namespaces/{NAMESPACE}/{plural}/{name}")
