"""Many services on a real API server: made, waited for, counted. What several benchmarks share."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import psutil

from e2e.operator_process import Operator
from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import SERVICES, Object
from plimsoll.api import names

COUNT: Final = int(os.environ.get("SERVICES", "1000"))
SECONDS: Final = float(os.environ.get("SECONDS", "60"))
CREATORS: Final = 8
SETTLED_SECONDS: Final = 2.0
MIB: Final = 2**20
USUAL_TICKS: Final = {
    "PLIMSOLL_METRICS_INTERVAL_SECONDS": "15",
    "PLIMSOLL_METRICS_WINDOW_SECONDS": "60",
    "PLIMSOLL_METRICS_STALE_SECONDS": "90",
}
"""The defaults: the kit's own operators ask every 2 s, so that tests need not wait."""


def service_of(namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True},
            "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"},
            "contextTokens": 131072,
        },
    }


def create(admin: KubeCluster) -> Callable[[Object], Awaitable[object]]:
    return lambda manifest: admin.apply(SERVICES, manifest, "bench")


async def unreported(admin: KubeCluster) -> int:
    left = 0
    async for service in admin.list(SERVICES, "many"):
        left += service.get("status", {}).get("observedGeneration") != service["metadata"]["generation"]
    return left


async def start(operator: Operator) -> None:
    """Start it, and wait until it is ready."""
    await asyncio.to_thread(operator.process.start)
    await asyncio.to_thread(operator.await_ready)


async def served(admin: KubeCluster, operator: Operator) -> None:
    """Wait until every service says something of its present spec, and nothing more is written.

    All are listed only when writes have stopped: a thousand statuses a second are more work than the operator makes.
    """
    await settled(operator)
    while await unreported(admin) > 0:
        await settled(operator)


async def settled(operator: Operator) -> None:
    """Wait until the operator has written nothing for a while."""
    while True:
        before = await writes_of(operator)
        await asyncio.sleep(SETTLED_SECONDS)
        if await writes_of(operator) == before:
            return


async def spread(workers: int, items: Iterable[Any], work: Callable[[Any], Awaitable[object]]) -> None:
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(worker() for _ in range(workers)))


async def writes_of(operator: Operator) -> int:
    """Writes that the operator has sent since it started."""
    return int(await asyncio.to_thread(operator.metric, "plimsoll_api_writes_total"))


async def over(process: psutil.Process, operator: Operator, work: Awaitable[object]) -> dict[str, float]:
    """CPU and writes while something goes on."""
    writes, cpu, began = await writes_of(operator), cpu_seconds(process), time.perf_counter()
    await work
    elapsed = time.perf_counter() - began
    made = await writes_of(operator) - writes
    return {"cpu_percent": (cpu_seconds(process) - cpu) / elapsed * 100, "writes": made, "seconds": round(elapsed)}


def cpu_seconds(process: psutil.Process) -> float:
    """What a process has computed since it started."""
    return sum(process.cpu_times()[:2])
