"""The operator against a real API server: latency of one service, a thousand at once, idle, noise, restart.

SERVICES=1000 and SECONDS=60 change the size. The bare client beside it makes the same server-side applies, with the
operator's own adapter and as many at a time as the operator has workers.
"""

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import psutil

from e2e.controlplane import ControlPlane
from e2e.controlplane.commands import CONTROLLER_QPS
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, Operator, create_account, install_crds
from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import (
    CHILDREN,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    Kind,
    NotFoundError,
    Object,
)
from plimsoll.api import names
from tests.benchmarks.admin import admin_cluster
from tests.benchmarks.crowd import (
    COUNT,
    CREATORS,
    MIB,
    SECONDS,
    SETTLED_SECONDS,
    USUAL_TICKS,
    create,
    over,
    served,
    service_of,
    settled,
    spread,
    start,
    writes_of,
)
from tests.benchmarks.report import figure, quantile

ONE_BY_ONE: Final = 100
WORKERS: Final = 8
POLL_SECONDS: Final = 0.005
NOISE_PER_SECOND: Final = 20


def main() -> None:
    """Print all figures."""
    with ControlPlane(prometheus=False, qps=CONTROLLER_QPS, log=lambda _: None) as plane:
        kubectl = plane.kubectl
        install_crds(kubectl, CHECKOUT / "crds")
        create_account(kubectl)
        for namespace in ("one", "many", "bare"):
            kubectl("create", "namespace", namespace)
        operator = Operator(plane, MANIFEST, extra_env={**USUAL_TICKS, "PLIMSOLL_WORKERS": str(WORKERS)})
        asyncio.run(_all(plane, operator))


async def _all(plane: ControlPlane, operator: Operator) -> None:
    async with admin_cluster(plane) as admin:
        await start(operator)
        await _one_by_one(admin)
        seconds = await _at_once(admin, operator)
        await _quiet(operator, "idle")
        await _noise(admin, operator)
        await _restart(operator)
        await asyncio.to_thread(operator.stop)
        bare = await _bare(admin)
        figure("operator_1000_at_once_over_bare_client", seconds / bare, "ratio", operator_s=seconds, bare_s=bare)


async def _one_by_one(admin: KubeCluster) -> None:
    waits = []
    for number in range(ONE_BY_ONE):
        name = f"one-{number:03d}"
        began = time.perf_counter()
        await admin.apply(SERVICES, service_of("one", name), "bench")
        while not await _exists(admin, DEPLOYMENTS, "one", name):  # noqa: ASYNC110 - as a user would poll
            await asyncio.sleep(POLL_SECONDS)
        waits.append((time.perf_counter() - began) * 1000)
    for share in (0.5, 0.99):
        figure(f"operator_apply_to_deployment_p{share * 100:.0f}", quantile(waits, share), "ms", services=ONE_BY_ONE)


async def _exists(admin: KubeCluster, kind: Kind, namespace: str, name: str) -> bool:
    try:
        await admin.get(kind, namespace, name)
    except NotFoundError:
        return False
    return True


async def _at_once(admin: KubeCluster, operator: Operator) -> float:
    before = await writes_of(operator)
    began = time.perf_counter()
    await spread(CREATORS, (service_of("many", f"svc-{n:04d}") for n in range(COUNT)), create(admin))
    created = time.perf_counter() - began
    await served(admin, operator)
    seconds = time.perf_counter() - began - SETTLED_SECONDS
    made = await writes_of(operator) - before
    figure("operator_1000_at_once", seconds, "s", services=COUNT, created_s=round(created, 2), writes=made)
    return seconds


async def _quiet(operator: Operator, what: str, noise: Callable[[], Awaitable[None]] | None = None) -> None:
    await settled(operator)
    process = psutil.Process(operator.process.pid)
    cost = await over(process, operator, noise() if noise else asyncio.sleep(SECONDS))
    figure(f"operator_writes_{what}", cost["writes"], "writes", seconds=cost["seconds"], services=COUNT)
    figure(f"operator_cpu_{what}", cost["cpu_percent"], "percent of a core", services=COUNT)
    figure(f"operator_rss_{what}", process.memory_info().rss / MIB, "MiB", services=COUNT)


async def _noise(admin: KubeCluster, operator: Operator) -> None:
    pods = [pod async for pod in admin.list(PODS, "many")]

    async def shake() -> None:
        """Heartbeats of pods: their status changes, nothing about them does."""
        until, number = time.perf_counter() + SECONDS, 0
        while time.perf_counter() < until:
            pod = pods[number % len(pods)]
            number += 1
            beat = {"type": "PodScheduled", "status": "False", "lastProbeTime": f"2026-01-01T00:00:{number % 60:02d}Z"}
            meta = {key: pod["metadata"][key] for key in ("namespace", "name")}
            status = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "status": {"conditions": [beat]}}
            await admin.apply(PODS, status, "kubelet", subresource="status")
            await asyncio.sleep(1 / NOISE_PER_SECOND)

    await _quiet(operator, "noise", shake)


async def _restart(operator: Operator) -> None:
    await asyncio.to_thread(operator.stop)
    began = time.perf_counter()
    await start(operator)
    figure("operator_restart_to_ready", time.perf_counter() - began, "s", services=COUNT)
    await settled(operator)
    figure("operator_restart_writes", await writes_of(operator), "writes", services=COUNT)
    figure("operator_restart_to_quiet", time.perf_counter() - began - SETTLED_SECONDS, "s", services=COUNT)


async def _bare(admin: KubeCluster) -> float:
    """The same server-side applies by a client that decides nothing: copies of what the operator made.

    A status twice, as the operator does: that it is planned, and that its pods find no node. Its Events are left out.
    """
    model = await admin.get(SERVICES, "many", "svc-0000")
    children = [c for kind in CHILDREN async for c in _of(admin, kind, "svc-0000")]
    began = time.perf_counter()

    async def one(number: int) -> None:
        name = f"bare-{number:04d}"
        created = await admin.apply(SERVICES, service_of("bare", name), "bench")
        for kind, child in children:
            await admin.apply(kind, _renamed(child, created), names.MANAGER_CHILDREN)
        meta = {"namespace": "bare", "name": name}
        for told in ({**model["status"], "summary": {"replicas": "0/0"}}, model["status"]):
            status = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "status": told}
            await admin.apply(SERVICES, status, names.MANAGER_STATUS, subresource="status")

    await spread(WORKERS, range(COUNT), one)
    return time.perf_counter() - began


async def _of(admin: KubeCluster, kind: Kind, service: str) -> AsyncIterator[tuple[Kind, dict[str, Any]]]:
    async for obj in admin.list(kind, "many", f"{names.LABEL_SERVICE}={service}"):
        meta = {k: obj["metadata"][k] for k in ("name", "namespace", "labels", "annotations", "ownerReferences")}
        body = {k: v for k, v in obj.items() if k in ("spec", "data", "revision")}
        if kind.kind == "Service":
            body["spec"] = {k: body["spec"][k] for k in ("type", "selector", "ports")}
        yield kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **body}


def _renamed(child: dict[str, Any], owner: Object) -> dict[str, Any]:
    renamed = copy.deepcopy(child)
    meta = renamed["metadata"]
    meta["name"] = meta["name"].replace("svc-0000", owner["metadata"]["name"])
    meta["namespace"] = "bare"
    meta["ownerReferences"][0] |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    return renamed
