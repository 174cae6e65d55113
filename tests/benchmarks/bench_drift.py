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
from e2e.look import Look, manifest
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
            lab.plane.kubectl.apply(_service(name))
        look = Look(lab, NAMESPACE)
        eventually(lambda: all(look.is_ready(name) for name in SERVICES), within_seconds=300)
        for what, edit in EDITS.items():
            seconds = [_repair(look, name, edit) for name in SERVICES]
            worst = round(max(seconds), 2)
            figure(f"drift_repair_{what}_p50", quantile(seconds, 0.5), "s", edits=len(seconds), worst=worst)


def _service(name: str) -> dict[str, Any]:
    hardware, scaling = {"gpu": GPU, "maxGPUs": 2}, {"mode": "Fixed"}
    return manifest(name, NAMESPACE, hardware=hardware, contextTokens=32_000, scaling=scaling)


def _repair(look: Look, name: str, edit: Edit) -> float:
    before, after, undone = edit
    look.kubectl(*before, name, *after, "-n", NAMESPACE)
    began = perf_counter()
    eventually(lambda: undone(look.get("deployments", name)), within_seconds=60)
    return perf_counter() - began
