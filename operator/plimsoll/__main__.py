"""The operator: ``python -m plimsoll``. Wires settings, adapters, loop, probes and Kopf; decides nothing itself."""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from plimsoll import handlers, metrics, probes
from plimsoll.adapters.activation_file import read_activation_file
from plimsoll.adapters.clock import SystemClock
from plimsoll.adapters.inventory import InventoryFile
from plimsoll.adapters.kube import CredentialsError, KubeCluster, load_configuration
from plimsoll.adapters.lease import KubeLease
from plimsoll.adapters.policy_file import read_policy_file
from plimsoll.adapters.ports import CHILDREN, PODS
from plimsoll.adapters.prometheus import PrometheusSource
from plimsoll.control.activations import Activations
from plimsoll.control.autoscalers import Autoscalers
from plimsoll.control.beside import Beside
from plimsoll.control.budgets import Budgets
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Children
from plimsoll.control.claims import Claims
from plimsoll.control.creation import Creation
from plimsoll.control.discovery import until_gone, until_served
from plimsoll.control.events import EventWriter
from plimsoll.control.fence import FencedCluster
from plimsoll.control.health import Health
from plimsoll.control.leadership import Elector, while_leading
from plimsoll.control.loop import Loop
from plimsoll.control.observer import Observer
from plimsoll.control.optional import OptionalKinds
from plimsoll.control.planning import Planner
from plimsoll.control.postmortem import Postmortem
from plimsoll.control.reconciler import Reconciler
from plimsoll.control.report import Reporter
from plimsoll.control.sampler import Asking, Sampler
from plimsoll.control.scaler import Scaler
from plimsoll.control.supervise import first_of, keep_running
from plimsoll.control.survey import Survey
from plimsoll.control.sweep import Sweep
from plimsoll.control.turns import Turns
from plimsoll.control.watch import Watch
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.activation import ActivationError
from plimsoll.core.claims import lease_name
from plimsoll.core.election import Timing
from plimsoll.core.plan.inventory import InventoryError
from plimsoll.core.policy import PolicyError
from plimsoll.core.promql import Windows
from plimsoll.core.scale import tuning
from plimsoll.logs import configure_logging
from plimsoll.settings import Settings, SettingsError

log = logging.getLogger("plimsoll")

BEAT_SECONDS: Final = 1.0
LATENCY_WINDOWS: Final = 5
"""Percentiles need more requests than rates do."""


@dataclass
class Operator:
    """The parts of one running operator."""

    settings: Settings
    cluster: KubeCluster
    clock: SystemClock
    cache: Cache
    queue: WorkQueue[Key]
    sweep: Sweep
    optional: OptionalKinds
    sampler: Sampler
    scaler: Scaler
    observer: Observer
    autoscalers: Autoscalers
    activations: Activations
    loop: Loop
    elector: Elector
    health: Health
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    served: asyncio.Event = field(default_factory=asyncio.Event)
    """VLLMServices can be worked with: whoever cannot must not take the Lease from one that can."""

    @classmethod
    async def create(cls, settings: Settings) -> "Operator":
        """Connect the parts.

        Raises:
            CredentialsError: there are none.
            ActivationError, InventoryError, PolicyError: a file of the owner cannot be used.
        """
        inventory, policy = InventoryFile.opened(settings.inventory), read_policy_file(settings.pod_policy)
        configuration = await load_configuration(settings.kubeconfig)
        cluster = KubeCluster(configuration, settings.request_timeout_seconds, _count_write)
        clock, cache = SystemClock(), Cache()
        queue: WorkQueue[Key] = WorkQueue(clock.monotonic)
        sweep = Sweep(cluster, cache, queue, settings.namespaces, settings.sweep_seconds, clock.monotonic)
        lease = f"{settings.namespace}/{lease_name(settings.class_, settings.namespaces)}"
        elector = Elector(_lease(cluster, lease), lease, _identity(), Timing(settings.lease_seconds), clock)
        fenced = FencedCluster(cluster, elector.write_seconds)
        optional = OptionalKinds(
            cluster, cache, queue, sweep, settings.namespaces, settings.discovery_seconds, settings.optional_kinds
        )
        sweep.optional = optional.usable
        planner = Planner(cluster, settings.namespace, clock.monotonic, inventory.current, policy)
        reporter = Reporter(fenced, cache, clock, EventWriter(fenced, clock), lease)
        prometheus = PrometheusSource(settings.prometheus) if settings.prometheus.url else None
        sampler = Sampler(prometheus, cache, queue, clock.monotonic, _asking(settings))
        observer, blind = Observer(sampler), not sampler.configured
        activations = Activations(
            read_activation_file(settings.activation),
            prometheus,
            cache,
            queue,
            clock.monotonic,
            settings.metrics_interval_seconds,
        )
        budgets = Budgets(cache, inventory.current)
        scaler = Scaler(
            sampler,
            activations,
            budgets,
            clock.monotonic,
            clock.wall_seconds,
            tuning(settings.scale_down_seconds, settings.metrics_interval_seconds),
            blind,
        )
        autoscalers = Autoscalers(cluster, cache, queue, settings.namespaces, clock.monotonic)
        survey, postmortem = Survey(cluster, clock.monotonic, inventory.current), Postmortem(cluster)
        turns = Turns(fenced, clock.monotonic)
        children = Children(fenced, cache, turns, sweep.unlisted, optional.of)
        beside = Beside(children, optional.of, settings.pod_monitor_labels)
        reconciler = Reconciler(
            cache,
            planner,
            children,
            beside,
            reporter,
            survey,
            postmortem,
            Creation(cluster, clock.monotonic),
            scaler,
            observer,
            autoscalers,
            optional.of,
            clock.wall_seconds,
        )
        others = partial(_lease, cluster)
        claims = Claims(cache, reporter, settings.class_, lease, others, reconciler.reconcile, clock.monotonic)
        loop = Loop(queue, claims.reconcile, clock.monotonic)
        health = Health(sweep, optional, elector, cluster.silent_seconds, clock.monotonic, clock.monotonic())
        return cls(
            settings,
            cluster,
            clock,
            cache,
            queue,
            sweep,
            optional,
            sampler,
            scaler,
            observer,
            autoscalers,
            activations,
            loop,
            elector,
            health,
        )

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT."""
        self.install_signals()
        app = probes.application(self.health.alive, self.health.ready, metrics.REGISTRY, self.refresh_metrics)
        server = await probes.serve(app, self.settings.http_host, self.settings.http_port)
        tasks = [asyncio.create_task(part, name=name) for name, part in self._parts()]
        log.info("started; probes and metrics on port %d", self.settings.http_port)
        stopping = asyncio.create_task(self.stop.wait())
        await asyncio.wait([stopping, *tasks], return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.gather(stopping, *tasks, return_exceptions=True)
        await self.elector.release()
        await server.cleanup()
        await self.cluster.close()
        log.info("stopped")

    def _parts(self) -> list[tuple[str, Coroutine[None, None, None]]]:
        part = partial(keep_running, restarted=metrics.WATCH_RESTARTS.inc, monotonic=self.clock.monotonic)
        return [
            ("beat", self._beat()),
            ("elector", part("elector", self._elect)),
            ("sweep", part("sweep", self._sweep)),
            ("lead", part("lead", partial(while_leading, self.elector, self._lead))),
            ("optional", part("optional kinds", self.optional.run)),
            *((f"watch-{w.kind.plural}", part(f"watch of {w.kind.plural}", w.run)) for w in self._watches()),
        ]

    async def _beat(self) -> None:
        while True:
            self.health.beat()
            await asyncio.sleep(BEAT_SECONDS)

    async def _elect(self) -> None:
        await self.served.wait()
        await self.elector.run()

    async def _sweep(self) -> None:
        await until_served(self.cluster, self.health.wait_for)
        self.served.set()
        # Who leads from the start needs no second listing.
        await self.elector.attempted.wait()
        await self.sweep.run()

    async def _lead(self) -> None:
        """What only the leader does, on what was listed since it leads: the one before may just have changed it."""
        await self.sweep.take_over(self.elector.led_since_seconds)
        await self.optional.known.wait()
        self._start_over()
        try:
            part = partial(keep_running, restarted=metrics.WATCH_RESTARTS.inc, monotonic=self.clock.monotonic)
            async with asyncio.TaskGroup() as group:
                group.create_task(part("loop", partial(self.loop.run, self.settings.workers)), name="loop")
                group.create_task(part("sampler", self.sampler.run), name="sampler")
                group.create_task(part("activation queries", self.activations.run), name="activations")
                group.create_task(part("autoscalers of others", self.autoscalers.run), name="autoscalers")
                group.create_task(part("Kopf", self._watch), name="kopf")
        finally:
            self._start_over()

    def _start_over(self) -> None:
        """Another operator leads or has led: nothing that was remembered of services counts, or is told, any longer."""
        self.scaler.start_over()
        self.observer.start_over()
        metrics.forget_services()

    async def _watch(self) -> None:
        """Kopf, as long as our kind is served."""
        watching = handlers.Watching(
            self.cache, self.queue, self.cluster.access, self.settings.namespaces, self.settings.request_timeout_seconds
        )
        while True:
            await until_served(self.cluster, self.health.wait_for)
            await first_of(watching.run(), until_gone(self.cluster))

    def _watches(self) -> Iterator[Watch]:
        for namespace in self.settings.namespaces or (None,):
            for kind in (*CHILDREN, PODS):
                yield Watch(self.cluster, self.sweep, self.cache, self.queue, kind, namespace)

    def install_signals(self) -> None:
        """SIGTERM and SIGINT stop the operator."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop.set)

    def refresh_metrics(self) -> None:
        """Gauges that are cheaper read than kept."""
        # A standby's queue only collects what the first look after a hand-over is for.
        leads = self.elector.leading.is_set()
        metrics.QUEUE_DEPTH.set(len(self.queue) if leads else 0)
        metrics.QUEUE_AGE_SECONDS.set(self.queue.oldest_seconds if leads else 0)
        metrics.SERVICES.set(sum(1 for _ in self.cache.services()))


def _lease(cluster: KubeCluster, address: str) -> KubeLease:
    return KubeLease(cluster, *address.split("/", 1))


def _identity() -> str:
    """Unique to this process: a container that starts anew in its pod is another candidate."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


def _asking(settings: Settings) -> Asking:
    window = settings.metrics_window_seconds
    return Asking(
        settings.metrics_interval_seconds,
        settings.metrics_stale_seconds,
        Windows(window, LATENCY_WINDOWS * window),
        settings.prometheus.labels,
    )


def _count_write(resource: str) -> None:
    metrics.API_WRITES.labels(resource).inc()


async def serve(settings: Settings) -> None:
    """Run one operator until it is told to stop."""
    operator = await Operator.create(settings)
    await operator.run()


def main() -> int:
    """Exit code 2 when the settings or credentials cannot be used, else 0."""
    try:
        settings = Settings.from_env(os.environ)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201 - there is no logging yet
        return 2
    configure_logging(settings.log_format, settings.log_level)
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
