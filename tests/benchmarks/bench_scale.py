"""How the operator's cost grows with the number of services, on a real API server.

    SERVICES=1000 SECONDS=60 REST=150 python -m tests.benchmarks scale

makes them in three steps, and at each says: seconds until all are served, memory, CPU at rest, and, while 1 % of the
services change every minute, CPU, writes and the time from an edit to the Deployment that answers it.
"""

import asyncio
import os
import re
import time
from itertools import pairwise
from typing import Final

import psutil

from e2e.controlplane import ControlPlane
from e2e.controlplane.commands import CONTROLLER_QPS
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, Operator, create_account, install_crds
from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import DEPLOYMENTS, SERVICES
from tests.benchmarks.admin import admin_cluster
from tests.benchmarks.crowd import (
    COUNT,
    CREATORS,
    MIB,
    SECONDS,
    USUAL_TICKS,
    cpu_seconds,
    create,
    over,
    served,
    service_of,
    spread,
    start,
)
from tests.benchmarks.report import figure, quantile

STEPS: Final = (0.25, 0.5, 1.0)
REST_SECONDS: Final = float(os.environ.get("REST", "150"))
"""After eight ticks alike a service counts as resting."""
CHANGED_A_MINUTE: Final = 0.01
LEAST_EDITS: Final = 10
POLL_SECONDS: Final = 0.005
_BUCKET: Final = re.compile(r'plimsoll_reconcile_seconds_bucket\{le="([^"]+)"\} (\S+)')


def main() -> None:
    """Print the figures of every step, and the curve."""
    with ControlPlane(prometheus=False, qps=CONTROLLER_QPS, log=lambda _: None) as plane:
        install_crds(plane.kubectl, CHECKOUT / "crds")
        create_account(plane.kubectl)
        plane.kubectl("create", "namespace", "many")
        operator = Operator(plane, MANIFEST, extra_env=USUAL_TICKS)
        asyncio.run(_all(plane, operator))


async def _all(plane: ControlPlane, operator: Operator) -> None:
    async with admin_cluster(plane) as admin:
        await start(operator)
        there, curve = 0, []
        for share in STEPS:
            wanted = max(there + 1, round(COUNT * share))
            curve.append(await _step(admin, operator, there, wanted))
            there = wanted
        await asyncio.to_thread(operator.stop)
    for (few, cost), (many, more) in pairwise(curve):
        per_service = {key: round(more[key] / many / (cost[key] / few), 2) for key in cost if cost[key]}
        figure(
            "scale_growth_per_service", per_service.get("cpu_s", 0.0), "ratio", to=many, **{"from": few}, **per_service
        )


async def _step(admin: KubeCluster, operator: Operator, there: int, wanted: int) -> tuple[int, dict[str, float]]:
    """One more part of the services: what it cost to serve them, to do nothing, and to follow edits."""
    process = psutil.Process(operator.process.pid)
    began, cpu = time.perf_counter(), cpu_seconds(process)
    await spread(CREATORS, (service_of("many", f"svc-{n:04d}") for n in range(there, wanted)), create(admin))
    await served(admin, operator)
    cost = {"served_s": time.perf_counter() - began, "cpu_s": cpu_seconds(process) - cpu, "added": wanted - there}
    figure("scale_served", cost["served_s"], "s", services=wanted, **_rounded(cost))
    await asyncio.sleep(REST_SECONDS)
    idle = await over(process, operator, asyncio.sleep(SECONDS))
    rss = process.memory_info().rss / MIB
    figure("scale_idle_cpu", idle["cpu_percent"], "percent of a core", services=wanted, writes=idle["writes"])
    figure("scale_rss", rss, "MiB", services=wanted, threads=process.num_threads())
    waits: list[float] = []
    before = await _buckets(operator)
    churn = await over(process, operator, _edits(admin, wanted, waits))
    reconciles = {le: count - before.get(le, 0.0) for le, count in (await _buckets(operator)).items()}
    figure("scale_churn_cpu", churn["cpu_percent"], "percent of a core", services=wanted, **_rounded(churn))
    figure(
        "scale_edit_to_deployment_p99",
        quantile(waits, 0.99),
        "ms",
        services=wanted,
        edits=len(waits),
        p50=quantile(waits, 0.5),
    )
    for share in (0.5, 0.99):
        figure(f"scale_reconcile_p{share * 100:.0f}_at_most", _within(reconciles, share), "s", services=wanted)
    per_added = (wanted - there) or 1
    return wanted, {"cpu_s": cost["cpu_s"] / per_added * wanted, "rss": rss, "churn": max(0.1, churn["cpu_percent"])}


async def _edits(admin: KubeCluster, services: int, waits: list[float]) -> None:
    """Edit services evenly over the time: 1 % of them a minute, or as many as make a percentile worth its name."""
    edits = max(LEAST_EDITS, round(services * CHANGED_A_MINUTE * SECONDS / 60))
    began = time.perf_counter()
    for number in range(edits):
        name = f"svc-{number * 37 % services:04d}"
        live = await admin.get(DEPLOYMENTS, "many", name)
        edited = service_of("many", name)
        edited["spec"]["podTemplate"] = {"metadata": {"annotations": {"edit": f"{number}-{time.time_ns()}"}}}
        at = time.perf_counter()
        await admin.apply(SERVICES, edited, "bench")
        before = live["metadata"]["generation"]
        while (await admin.get(DEPLOYMENTS, "many", name))["metadata"]["generation"] == before:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)
        waits.append((time.perf_counter() - at) * 1000)
        await asyncio.sleep(max(0.0, began + (number + 1) * SECONDS / edits - time.perf_counter()))


async def _buckets(operator: Operator) -> dict[float, float]:
    _, text = await asyncio.to_thread(operator.answer, "/metrics")
    return {float(le): float(count) for le, count in _BUCKET.findall(text)}


def _within(buckets: dict[float, float], share: float) -> float:
    """The bound of the bucket that holds the quantile."""
    total = max(buckets.values(), default=0.0)
    return next((le for le, count in sorted(buckets.items()) if count >= share * total), 0.0)


def _rounded(figures: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in figures.items()}
