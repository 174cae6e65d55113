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
from typing import Final

from e2e.labrun import Lab
from plimsoll.api import names
from tests.benchmarks import one_service
from tests.benchmarks.one_service import NAMESPACE, REPLICAS, SERVICE
from tests.benchmarks.report import figure

REQUESTS: Final = int(os.environ.get("REQUESTS", "1000"))
RATE: Final = 12.0


def main() -> None:
    """Print all figures."""
    with one_service.lab() as lab:
        one_service.apply(lab, 32_000)
        one_service.await_running(lab, 32_000)
        _rolled(lab, "rollout_surge", 31_000, max_gpus=REPLICAS + 1)
        _rolled(lab, "rollout_one_at_a_time", 30_000, max_gpus=REPLICAS)


def _rolled(lab: Lab, name: str, context: int, max_gpus: int) -> None:
    """Replace all pods while requests come in."""
    fleet = lab.fleet
    assert fleet is not None
    labels = {names.LABEL_SERVICE: SERVICE}
    load = fleet.fleet.load(NAMESPACE, labels, rate=RATE, prompt_tokens=50, output_tokens=30, seconds=REQUESTS / RATE)
    before, began = _writes(lab), time.perf_counter()
    with ThreadPoolExecutor() as pool:
        requests = pool.submit(fleet.run, load)
        one_service.apply(lab, context, max_gpus)
        one_service.await_running(lab, context)
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
