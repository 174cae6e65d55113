"""How fast an edit by hand of what the operator manages is undone. EDITS=10 changes how many of each kind."""

import os
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

from e2e.eventually import eventually
from e2e.labrun import Lab
from plimsoll.api import names
from tests.benchmarks import one_service
from tests.benchmarks.one_service import NAMESPACE, SERVICE, engine
from tests.benchmarks.report import figure, quantile

EDITS: Final = int(os.environ.get("EDITS", "10"))
CONTEXT: Final = 32_000
DEPLOYMENT: Final = (f"deployment/{SERVICE}", "-n", NAMESPACE)

Edit = tuple[str, ...]
Undone = Callable[[dict[str, Any]], bool]
CASES: Final[dict[str, tuple[Edit, Undone]]] = {
    "label": (
        ("label", *DEPLOYMENT, f"{names.LABEL_SERVICE}-"),
        lambda fleet: names.LABEL_SERVICE in fleet["metadata"]["labels"],
    ),
    "image": (
        ("set", "image", *DEPLOYMENT, "vllm=other:1"),
        lambda fleet: engine(fleet)["image"] != "other:1",
    ),
    "replicas": (
        ("scale", *DEPLOYMENT, "--replicas=1"),
        lambda fleet: fleet["spec"]["replicas"] == one_service.REPLICAS,
    ),
}


def main() -> None:
    """Print one figure for each kind of edit."""
    with one_service.lab() as lab:
        one_service.apply(lab, CONTEXT)
        one_service.await_running(lab, CONTEXT)
        for what, (edit, undone) in CASES.items():
            seconds = [_repair(lab, edit, undone) for _ in range(EDITS)]
            worst = round(max(seconds), 2)
            figure(f"drift_repair_{what}_p50", quantile(seconds, 0.5), "s", edits=EDITS, worst=worst)


def _repair(lab: Lab, edit: Edit, undone: Undone) -> float:
    lab.plane.kubectl(*edit)
    began = perf_counter()
    eventually(lambda: undone(one_service.deployment(lab)), within_seconds=60)
    return perf_counter() - began
