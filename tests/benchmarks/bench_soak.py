"""Twenty real minutes of churn on the lab: do memory, threads and tasks of the operator stay flat?

    MINUTES=20 python -m tests.benchmarks soak

Services come, change and go all the time, with fake engines that load and serve. The slope is that of the last two
thirds: caches fill at first.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import linear_regression
from typing import Any, Final

import psutil

from e2e.labrun import Lab, LabOptions
from e2e.operator_process import Operator
from plimsoll.api import names
from tests.benchmarks.report import figure

MINUTES: Final = float(os.environ.get("MINUTES", "20"))
SERVICES: Final = 12
EDIT_SECONDS: Final = 2.0
SAMPLE_SECONDS: Final = 10.0
MIB: Final = 2**20
CONTEXTS: Final = (4096, 8192, 16384)


@dataclass(frozen=True)
class Sample:
    """The operator at one moment. Times in hours."""

    hours: float
    rss_mib: float
    threads: int
    files: int
    tasks: float


def main() -> None:
    """Print the slopes."""
    with Lab(LabOptions(nodes="4*NVIDIA-L40S:8", load_seconds=1.0), log=lambda _: None) as lab:
        assert lab.operator is not None
        samples = _churned(lab, lab.operator)
        restarts = lab.operator.process.restarts
    settled = samples[len(samples) // 3 :]
    for name, unit in (("rss_mib", "MiB/h"), ("threads", "1/h"), ("files", "1/h"), ("tasks", "1/h")):
        first, last = getattr(settled[0], name), getattr(settled[-1], name)
        figure(
            f"soak_{name}_slope",
            _slope(settled, name),
            unit,
            minutes=MINUTES,
            first=round(first, 1),
            last=round(last, 1),
        )
    figure("soak_restarts", restarts, "restarts", minutes=MINUTES)


def _churned(lab: Lab, operator: Operator) -> list[Sample]:
    random, process, samples = Random(1), psutil.Process(operator.process.pid), []
    began = time.monotonic()
    sampled = began
    while (now := time.monotonic()) < began + 60 * MINUTES:
        _edit(lab, random)
        if now - sampled >= SAMPLE_SECONDS:
            sampled = now
            samples.append(_sample(process, operator, (now - began) / 3600))
        time.sleep(max(0.0, EDIT_SECONDS - (time.monotonic() - now)))
    return samples


def _edit(lab: Lab, random: Random) -> None:
    """One service comes, changes or goes."""
    name = f"soak-{random.randrange(SERVICES)}"
    if random.random() < 0.25:
        lab.plane.kubectl("delete", "vllm", name, "--ignore-not-found", "--wait=false")
        return
    manifest: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": "default", "labels": {"edit": str(random.randrange(10**6))}},
        "spec": {
            "model": {"id": "Qwen/Qwen3-8B"},
            "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 3},
            "contextTokens": random.choice(CONTEXTS),
            "scaling": {"minReplicas": random.choice((1, 2))},
        },
    }
    lab.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(manifest))


def _sample(process: psutil.Process, operator: Operator, hours: float) -> Sample:
    rss = process.memory_info().rss / MIB
    return Sample(hours, rss, process.num_threads(), process.num_fds(), operator.metric("plimsoll_tasks"))


def _slope(samples: Sequence[Sample], name: str) -> float:
    """Least squares, per hour."""
    return linear_regression([each.hours for each in samples], [float(getattr(each, name)) for each in samples]).slope
