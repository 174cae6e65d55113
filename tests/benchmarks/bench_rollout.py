"""A roll-out under load: requests lost, writes of the operator, seconds.

Three replicas of a fake engine that loads in a second, replaced once with a spare GPU and once without, while clients
stream completions to the Ready pods. REQUESTS=1000 changes how many. Through a Service and on a real kubelet the same
is measured by `make test-node`.
"""

import os
import re
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from plimsoll.api import names
from tests.benchmarks.report import figure

REQUESTS: Final = int(os.environ.get("REQUESTS", "1000"))
RATE: Final = 12.0
REPLICAS: Final = 3
PATIENCE_SECONDS: Final = 300.0
H100: Final = "NVIDIA-H100-80GB-HBM3"
NAMESPACE: Final = "default"


def main() -> None:
    """Print all figures."""
    with Lab(LabOptions(nodes=f"1*{H100}:{REPLICAS + 1}", load_seconds=1.0), log=lambda _: None) as lab:
        _apply(lab, 32_000, max_gpus=REPLICAS + 1)
        _await(lab, 32_000)
        _rolled(lab, "rollout_surge", 31_000, max_gpus=REPLICAS + 1)
        _rolled(lab, "rollout_one_at_a_time", 30_000, max_gpus=REPLICAS)


def _apply(lab: Lab, context: int, max_gpus: int) -> None:
    spec = {
        "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
        "hardware": {"gpu": H100, "maxGPUs": max_gpus},
        "contextTokens": context,
        "scaling": {"mode": "Fixed"},
        "replicas": REPLICAS,
    }
    meta = {"name": "svc", "namespace": NAMESPACE}
    lab.plane.kubectl.apply({"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": spec})


def _await(lab: Lab, context: int) -> None:
    """Until the fleet runs with this context and nothing else."""

    def done() -> bool:
        service = _get(lab, names.API_VERSION, names.PLURAL)
        status = service.get("status", {})
        current = status.get("observedGeneration") == service["metadata"]["generation"]
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
        return current and ready and str(context) in _template(_get(lab, "apps/v1", "deployments"))["args"]

    eventually(done, within_seconds=PATIENCE_SECONDS)


def _template(fleet: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = fleet["spec"]["template"]["spec"]["containers"][0]
    return container


def _get(lab: Lab, api_version: str, plural: str) -> dict[str, Any]:
    return lab.plane.api.get(f"/apis/{api_version}/namespaces/{NAMESPACE}/{plural}/svc")


def _rolled(lab: Lab, name: str, context: int, max_gpus: int) -> None:
    """Replace all pods while requests come in."""
    fleet = lab.fleet
    assert fleet is not None
    labels = {names.LABEL_SERVICE: "svc"}
    load = fleet.fleet.load(NAMESPACE, labels, rate=RATE, prompt_tokens=50, output_tokens=30, seconds=REQUESTS / RATE)
    before, began = _writes(lab), time.perf_counter()
    with ThreadPoolExecutor() as pool:
        requests = pool.submit(fleet.run, load)
        _apply(lab, context, max_gpus)
        _await(lab, context)
        seconds = time.perf_counter() - began
        report = requests.result()
    lost = report.sent - report.succeeded
    figure(f"{name}_requests_lost", lost, "requests", sent=report.sent, failures=dict(report.failures))
    writes = _writes(lab) - before
    figure(f"{name}_writes", writes.total(), "writes", replicas=REPLICAS, **writes)
    figure(f"{name}_seconds", seconds, "s", replicas=REPLICAS, load_s=1)


def _writes(lab: Lab) -> Counter[str]:
    """Writes that the operator has sent, by resource."""
    assert lab.operator is not None
    with urllib.request.urlopen(f"{lab.operator.url}/metrics", timeout=10) as answer:
        found = re.findall(
            r'^plimsoll_api_writes_total\{resource="(\w+)"\} (\S+)', answer.read().decode(), re.MULTILINE
        )
    return Counter({resource: int(float(count)) for resource, count in found})
