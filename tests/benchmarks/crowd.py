"""Many services on a real API server: made, waited for, counted. What several benchmarks share."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from aiohttp import ClientSession

from e2e.operator_process import Operator
from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import SERVICES, Object
from plimsoll.api import names

COUNT: Final = int(os.environ.get("SERVICES", "1000"))
SECONDS: Final = float(os.environ.get("SECONDS", "60"))
SETTLED_SECONDS: Final = 2.0
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
    async with ClientSession() as session, session.get(f"{operator.url}/metrics") as answer:
        text = await answer.text()
    lines = (line for line in text.splitlines() if line.startswith("plimsoll_api_writes_total"))
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))
