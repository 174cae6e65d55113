"""From a leader's end to the next one's first write, with 1,000 services: after kill -9, and after a clean stop.

SERVICES=1000 changes the size. A spec changes in the moment the leader ends; the figure is the time until that change
is written to its Deployment.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from aiohttp import ClientSession

from e2e.controlplane import ControlPlane
from e2e.controlplane.commands import CONTROLLER_QPS
from e2e.labrun import CHECKOUT
from e2e.operator_process import MANIFEST, Operator, create_account, install_crds
from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import DEPLOYMENTS, SERVICES
from tests.benchmarks.admin import admin_cluster
from tests.benchmarks.crowd import COUNT, CREATORS, create, service_of, spread, start, unreported
from tests.benchmarks.report import figure

NAMESPACE: Final = "many"
POLL_SECONDS: Final = 0.02
LIST_SECONDS: Final = 5.0  # 17 MB of statuses a look, which the operator's own requests should not wait for
CHANGED: Final = "svc-0500" if COUNT > 500 else "svc-0000"


def main() -> None:
    """Print both figures."""
    with ControlPlane(prometheus=False, qps=CONTROLLER_QPS, log=lambda _: None) as plane:
        create_account(plane.kubectl, MANIFEST)
        install_crds(plane.kubectl, CHECKOUT / "crds")
        plane.kubectl("create", "namespace", NAMESPACE)
        operators = [Operator(plane, MANIFEST, name=f"operator-{letter}") for letter in "ab"]
        try:
            asyncio.run(_measure(plane, *operators))
        finally:
            for operator in operators:
                operator.stop()


async def _measure(plane: ControlPlane, first: Operator, second: Operator) -> None:
    async with admin_cluster(plane) as admin:
        await start(first)
        await spread(CREATORS, (_service(f"svc-{n:04d}") for n in range(COUNT)), create(admin))
        while await unreported(admin) > 0:  # noqa: ASYNC110 - the API server raises no event of ours
            await asyncio.sleep(LIST_SECONDS)
        await start(second)
        await _hand_over(admin, "kill9", second, 2, lambda: first.kill(comes_back=False))
        await start(first)
        await _hand_over(admin, "clean", first, 3, second.stop)


async def _hand_over(admin: KubeCluster, how: str, heir: Operator, replicas: int, end: Callable[[], None]) -> None:
    began = time.perf_counter()
    ending = asyncio.create_task(asyncio.to_thread(end))
    await admin.apply(SERVICES, _service(CHANGED, replicas), "bench")
    while not await _leads(heir):  # noqa: ASYNC110 - as a scrape would see it
        await asyncio.sleep(POLL_SECONDS)
    led = time.perf_counter() - began
    while (await admin.get(DEPLOYMENTS, NAMESPACE, CHANGED))["spec"]["replicas"] != replicas:  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
    figure(f"handover_{how}", time.perf_counter() - began, "s", led_s=round(led, 2), services=COUNT)
    await ending


async def _leads(operator: Operator) -> bool:
    async with ClientSession() as session, session.get(f"{operator.url}/metrics") as answer:
        return "plimsoll_leader 1.0" in await answer.text()


def _service(name: str, replicas: int = 1) -> dict[str, Any]:
    service = service_of(NAMESPACE, name)
    service["spec"] |= {"scaling": {"mode": "Fixed"}, "replicas": replicas}
    return service
