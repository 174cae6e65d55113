"""From pressure that Prometheus shows to a workload with more replicas: the whole chain on the lab.

SERVICES=20 services with one small replica each get more requests than it may run, one service a second so that every
phase of the operator's tick is met; all ask the same Prometheus. Goal: one scrape interval and two seconds.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.look import Look, manifest
from plimsoll.api import names
from tests.benchmarks.report import figure, quantile

SERVICES: Final = [f"svc-{n:02d}" for n in range(int(os.environ.get("SERVICES", "20")))]
INTERVAL_SECONDS: Final = 15.0
GPU: Final = "NVIDIA-H100-80GB-HBM3"
NAMESPACE: Final = "default"
SEQUENCES: Final = 4
ALLOWED_SECONDS: Final = INTERVAL_SECONDS + 2
GIVE_UP_SECONDS: Final = 180.0
QUEUE: Final = f'sum by (service) (vllm:num_requests_waiting{{namespace="{NAMESPACE}"}}) > 0'
Moments = dict[str, float]


def main() -> None:
    """Print median and tail."""
    options = LabOptions(
        nodes=f"{len(SERVICES)}*{GPU}:2",
        load_seconds=1.0,
        operator_env={"PLIMSOLL_METRICS_INTERVAL_SECONDS": str(INTERVAL_SECONDS)},
    )
    with Lab(options, log=lambda _: None) as lab:
        for name in SERVICES:
            lab.plane.kubectl.apply(_service(name))
        look = Look(lab, NAMESPACE)
        eventually(lambda: all(look.is_ready(name) for name in SERVICES), within_seconds=300)
        time.sleep(2 * INTERVAL_SECONDS)
        with ThreadPoolExecutor(len(SERVICES)) as pool:
            for number, name in enumerate(SERVICES):
                pool.submit(_press, lab, name, float(number))
            seen, patched = _watch(lab, look)
    waits = [patched[name] - seen[name] for name in SERVICES]
    for share in (0.5, 0.99):
        figure(
            f"pressure_to_patch_p{share * 100:.0f}", quantile(waits, share), "s",
            services=len(waits), interval_seconds=INTERVAL_SECONDS, goal_seconds=ALLOWED_SECONDS,
        )  # fmt: skip


def _service(name: str) -> dict[str, Any]:
    return manifest(
        name, NAMESPACE, hardware={"gpu": GPU, "maxGPUs": 2}, contextTokens=8192,
        engine={"extraArgs": [f"--max-num-seqs={SEQUENCES}"]},
    )  # fmt: skip


def _press(lab: Lab, name: str, after_seconds: float) -> None:
    assert lab.fleet is not None
    time.sleep(after_seconds)
    selector = {names.LABEL_SERVICE: name}
    lab.fleet.run(
        lab.fleet.fleet.load(
            NAMESPACE, selector, rate=4 * SEQUENCES, prompt_tokens=100, output_tokens=4000, seconds=1.0
        )
    )


def _watch(lab: Lab, look: Look) -> tuple[Moments, Moments]:
    """When each service's queue was first to be read, and when its workload was first given more replicas."""
    seen: Moments = {}
    patched: Moments = {}
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while len(patched) < len(SERVICES):
        assert time.monotonic() < give_up, f"no answer for {sorted({*SERVICES} - {*patched})}; seen: {sorted(seen)}"
        for service in _queued(lab):
            seen.setdefault(service, time.monotonic())
        for fleet in look.all("deployments"):
            if fleet["spec"]["replicas"] > 1:
                patched.setdefault(fleet["metadata"]["name"], time.monotonic())
        time.sleep(0.1)
    return seen, patched


def _queued(lab: Lab) -> set[str]:
    return {series["metric"]["service"] for series in lab.plane.query(QUEUE)}


if __name__ == "__main__":
    main()
