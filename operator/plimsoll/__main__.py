"""The operator: ``python -m plimsoll``. Wires settings, adapters, probes and Kopf; decides nothing itself."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from functools import partial

from plimsoll import handlers, metrics, probes
from plimsoll.adapters import heap
from plimsoll.adapters.activation_file import read_activation_file
from plimsoll.adapters.clock import SystemClock
from plimsoll.adapters.inventory import InventoryFile
from plimsoll.adapters.kube import CredentialsError, KubeCluster, load_configuration
from plimsoll.adapters.lease import KubeLease
from plimsoll.adapters.policy_file import read_policy_file
from plimsoll.adapters.prometheus import PrometheusSource
from plimsoll.control.assembly import Operator, Outside
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.activation import ActivationError
from plimsoll.core.plan.inventory import InventoryError
from plimsoll.core.policy import PolicyError
from plimsoll.logs import configure_logging
from plimsoll.settings import Settings, SettingsError

log = logging.getLogger("plimsoll")


async def serve(settings: Settings) -> None:
    """Run one operator until SIGTERM or SIGINT.

    Raises:
        CredentialsError: there are none.
        ActivationError, InventoryError, PolicyError: a file of the owner cannot be used.
    """
    inventory, policy = InventoryFile.opened(settings.inventory), read_policy_file(settings.pod_policy)
    configuration = await load_configuration(settings.kubeconfig)
    cluster = KubeCluster(configuration, settings.request_timeout_seconds, _count_write)
    outside = Outside(
        cluster=cluster,
        clock=SystemClock(),
        metrics=PrometheusSource(settings.prometheus) if settings.prometheus.url else None,
        lease_of=partial(_lease, cluster),
        watch_services=partial(_watch_services, cluster, settings),
        identity=f"{socket.gethostname()}_{secrets.token_hex(4)}",
        silent_seconds=cluster.silent_seconds,
        inventory=inventory.current,
        policy=policy,
        activation=read_activation_file(settings.activation),
    )
    await _run(Operator.assemble(settings, outside), cluster)


async def _run(operator: Operator, cluster: KubeCluster) -> None:
    stop, settings = asyncio.Event(), operator.settings
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    health = operator.health
    app = probes.application(health.alive, health.ready, metrics.REGISTRY, operator.refresh_metrics)
    server = await probes.serve(app, settings.http_host, settings.http_port)
    parts = [*operator.parts(), ("heap", heap.keep_small())]
    tasks = [asyncio.create_task(part, name=name) for name, part in parts]
    log.info("started; probes and metrics on port %d", settings.http_port)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
    log.info("stopping")
    for task in (stopping, *tasks):
        task.cancel()
    await asyncio.gather(stopping, *tasks, return_exceptions=True)
    await operator.elector.release()
    await server.cleanup()
    await cluster.close()
    log.info("stopped")


async def _watch_services(cluster: KubeCluster, settings: Settings, cache: Cache, queue: WorkQueue[Key]) -> None:
    timeout_seconds = settings.request_timeout_seconds
    await handlers.Watching(cache, queue, cluster.access, settings.namespaces, timeout_seconds).run()


def _lease(cluster: KubeCluster, address: str) -> KubeLease:
    return KubeLease(cluster, *address.split("/", 1))


def _count_write(resource: str) -> None:
    metrics.API_WRITES.labels(resource).inc()


def main() -> int:
    """Exit code 2 when the settings or credentials cannot be used, else 0."""
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no logging yet
        return 2
    configure_logging(settings.log_format, settings.log_level)
    heap.bound()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(serve(settings))
    except (ActivationError, CredentialsError, InventoryError, PolicyError) as error:
        log.error("%s", error)  # noqa: TRY400 - an expected fault, said without a traceback
        return 2
    except OSError as error:
        log.error("cannot serve probes on port %d: %s", settings.http_port, error)  # noqa: TRY400 - as above
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
