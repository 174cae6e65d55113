"""One operator, assembled of its parts on whatever it stands on: real adapters, or the world of ``tests/faults``."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from plimsoll import metrics
from plimsoll.adapters.ports import CHILDREN, PODS, Clock, Cluster, LeaseStore, MetricsSource
from plimsoll.control.activations import Activations
from plimsoll.control.advisor import Advisor
from plimsoll.control.autoscalers import Autoscalers
from plimsoll.control.beginnings import Beginnings
from plimsoll.control.beside import Beside
from plimsoll.control.budgets import Budgets
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Children
from plimsoll.control.claims import Claims
from plimsoll.control.creation import Creation
from plimsoll.control.discovery import until_gone, until_served
from plimsoll.control.events import EventWriter
from plimsoll.control.experiments import Experiments
from plimsoll.control.fence import FencedCluster
from plimsoll.control.gates import Gates
from plimsoll.control.health import Health
from plimsoll.control.leadership import Elector, while_leading
from plimsoll.control.loop import Loop
from plimsoll.control.observer import Observer
from plimsoll.control.optional import OptionalKinds
from plimsoll.control.planning import Planner
from plimsoll.control.pools import Pools, Speeds
from plimsoll.control.postmortem import Postmortem
from plimsoll.control.recollection import recollect
from plimsoll.control.reconciler import Reconciler
from plimsoll.control.report import Reporter
from plimsoll.control.sampler import Asking, Sampler
from plimsoll.control.scaler import Scaler
from plimsoll.control.supervise import first_of, keep_running
from plimsoll.control.survey import Survey
from plimsoll.control.sweep import Sweep
from plimsoll.control.traffic import TrafficWatch
from plimsoll.control.trial_pods import TrialPods
from plimsoll.control.turns import Turns
from plimsoll.control.watch import Watch
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.activation import Template
from plimsoll.core.claims import lease_name
from plimsoll.core.election import Timing
from plimsoll.core.experiment import Timing as ExperimentTiming
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.policy import PodPolicy
from plimsoll.core.promql import Windows
from plimsoll.core.scale import tuning
from plimsoll.settings import Settings

BEAT_SECONDS: Final = 1.0
LATENCY_WINDOWS: Final = 5
"""Percentiles need more requests than rates do."""

WatchServices = Callable[[Cache, WorkQueue[Key]], Coroutine[None, None, None]]
"""Follows VLLMServices into the cache and the queue until cancelled; raises what ended it."""


@dataclass(frozen=True)
class Outside:
    """What an operator stands on. ``lease_of`` opens a Lease by namespace/name."""

    cluster: Cluster
    clock: Clock
    metrics: MetricsSource | None
    lease_of: Callable[[str], LeaseStore]
    watch_services: WatchServices
    identity: str
    """Unique to this process: a container that starts anew in its pod is another candidate."""
    silent_seconds: Callable[[], float] = lambda: 0.0
    """For how long every call to the API server has failed."""
    inventory: Callable[[], Inventory] = Inventory
    policy: PodPolicy = field(default_factory=PodPolicy)
    activation: Mapping[str, Template] = field(default_factory=dict)


@dataclass
class Operator:
    """The parts of one running operator."""

    settings: Settings
    outside: Outside
    cache: Cache
    queue: WorkQueue[Key]
    sweep: Sweep
    optional: OptionalKinds
    sampler: Sampler
    scaler: Scaler
    observer: Observer
    traffic: TrafficWatch
    autoscalers: Autoscalers
    activations: Activations
    loop: Loop
    elector: Elector
    health: Health
    served: asyncio.Event = field(default_factory=asyncio.Event)
    """VLLMServices can be worked with: whoever cannot must not take the Lease from one that can."""

    @classmethod
    def assemble(cls, settings: Settings, outside: Outside) -> "Operator":
        """Connect the parts."""
        cluster, clock, cache = outside.cluster, outside.clock, Cache()
        queue: WorkQueue[Key] = WorkQueue(clock.monotonic)
        sweep = Sweep(cluster, cache, queue, settings.namespaces, settings.sweep_seconds, clock.monotonic)
        lease = f"{settings.namespace}/{lease_name(settings.class_, settings.namespaces)}"
        elector = Elector(outside.lease_of(lease), lease, outside.identity, Timing(settings.lease_seconds), clock)
        fenced = FencedCluster(cluster, elector.write_seconds)
        optional = OptionalKinds(
            cluster, cache, queue, sweep, settings.namespaces, settings.discovery_seconds, settings.optional_kinds
        )
        sweep.optional = optional.usable
        pools, speeds = Pools(settings.teaching_images), Speeds(settings.teaching_images)
        planner = Planner(
            cluster, settings.namespace, clock.monotonic, outside.inventory, outside.policy, pools.of, speeds.of
        )
        events = EventWriter(fenced, clock, all_entries=settings.ledger_events == "all")
        reporter = Reporter(fenced, cache, clock, events, lease)
        sampler = Sampler(outside.metrics, cache, queue, clock.monotonic, _asking(settings))
        observer, blind = Observer(sampler, pools, speeds), not sampler.configured
        traffic = TrafficWatch(sampler, clock.wall_seconds)
        activations = Activations(
            outside.activation,
            outside.metrics,
            cache,
            queue,
            clock.monotonic,
            settings.metrics_interval_seconds,
        )
        budgets = Budgets(cache, outside.inventory)
        scaler = Scaler(
            sampler,
            activations,
            budgets,
            clock.monotonic,
            clock.wall_seconds,
            tuning(settings.scale_down_seconds, settings.metrics_interval_seconds),
            blind,
        )
        sampler.lulls.restless = scaler.restless
        sampler.lulls.again = traffic.again
        autoscalers = Autoscalers(cluster, cache, queue, settings.namespaces, clock.monotonic)
        survey, postmortem = Survey(cluster, clock.monotonic, outside.inventory), Postmortem(cluster)
        turns = Turns(fenced, clock.monotonic)
        children = Children(fenced, cache, turns, sweep.unlisted, optional.of)
        beside = Beside(children, optional.of, settings.pod_monitor_labels)
        gates = Gates(fenced, cache, children, outside.policy.allow, settings.gate_image)
        timing = ExperimentTiming(settings.experiment_window_seconds, a_day=settings.experiments_per_day)
        experiments = Experiments(
            outside.metrics,
            settings.prometheus.labels,
            planner,
            gates,
            Beginnings(survey, gates, clock.wall_seconds, timing),
            TrialPods(cache, planner, children, gates, clock.wall_seconds),
            clock.wall_seconds,
            timing,
        )
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
            traffic,
            Advisor(planner),
            autoscalers,
            experiments,
            optional.of,
            clock.wall_seconds,
        )
        claims = Claims(
            cache, reporter, settings.class_, lease, outside.lease_of, reconciler.reconcile, clock.monotonic
        )
        loop = Loop(queue, claims.reconcile, clock.monotonic)
        health = Health(sweep, optional, elector, outside.silent_seconds, clock.monotonic, clock.monotonic())
        return cls(
            settings,
            outside,
            cache,
            queue,
            sweep,
            optional,
            sampler,
            scaler,
            observer,
            traffic,
            autoscalers,
            activations,
            loop,
            elector,
            health,
        )

    def parts(self) -> list[tuple[str, Coroutine[None, None, None]]]:
        """What runs side by side for as long as the process lives, by name."""
        part = self._part
        return [
            ("beat", self._beat()),
            ("elector", part("elector", self._elect)),
            ("sweep", part("sweep", self._sweep)),
            ("lead", part("lead", partial(while_leading, self.elector, self._lead))),
            ("optional", part("optional kinds", self.optional.run)),
            *((f"watch-{w.kind.plural}", part(f"watch of {w.kind.plural}", w.run)) for w in self._watches()),
        ]

    def _part(self, name: str, run: Callable[[], Coroutine[None, None, None]]) -> Coroutine[None, None, None]:
        return keep_running(name, run, restarted=metrics.WATCH_RESTARTS.inc, monotonic=self.outside.clock.monotonic)

    async def _beat(self) -> None:
        while True:
            self.health.beat()
            await asyncio.sleep(BEAT_SECONDS)

    async def _elect(self) -> None:
        await self.served.wait()
        await self.elector.run()

    async def _sweep(self) -> None:
        await until_served(self.outside.cluster, self.health.wait_for)
        self.served.set()
        # Who leads from the start needs no second listing.
        await self.elector.attempted.wait()
        await self.sweep.run()

    async def _lead(self) -> None:
        """What only the leader does, on what was listed since it leads: the one before may just have changed it."""
        await self.sweep.take_over(self.elector.led_since_seconds)
        await self.optional.known.wait()
        self._start_over()
        await recollect(self.cache, self.observer)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._part("loop", partial(self.loop.run, self.settings.workers)), name="loop")
                group.create_task(self._part("sampler", self.sampler.run), name="sampler")
                group.create_task(self._part("activation queries", self.activations.run), name="activations")
                group.create_task(self._part("autoscalers of others", self.autoscalers.run), name="autoscalers")
                group.create_task(self._part("Kopf", self._watch), name="kopf")
        finally:
            self._start_over()

    def _start_over(self) -> None:
        """Another operator leads or has led: nothing that was remembered of services counts, or is told, any longer."""
        self.scaler.start_over()
        self.observer.start_over()
        self.traffic.start_over()
        metrics.forget_services()

    async def _watch(self) -> None:
        """Services, as long as our kind is served."""
        cluster = self.outside.cluster
        while True:
            await until_served(cluster, self.health.wait_for)
            await first_of(self.outside.watch_services(self.cache, self.queue), until_gone(cluster))

    def _watches(self) -> Iterator[Watch]:
        for namespace in self.settings.namespaces or (None,):
            for kind in (*CHILDREN, PODS):
                yield Watch(self.outside.cluster, self.sweep, self.cache, self.queue, kind, namespace)

    def refresh_metrics(self) -> None:
        """Gauges that are cheaper read than kept."""
        # A standby's queue only collects what the first look after a hand-over is for.
        leads = self.elector.leading.is_set()
        metrics.QUEUE_DEPTH.set(len(self.queue) if leads else 0)
        metrics.QUEUE_AGE_SECONDS.set(self.queue.oldest_seconds if leads else 0)
        metrics.TASKS.set(len(asyncio.all_tasks()))
        metrics.SERVICES.set(sum(1 for _ in self.cache.services()))


def _asking(settings: Settings) -> Asking:
    window = settings.metrics_window_seconds
    return Asking(
        settings.metrics_interval_seconds,
        settings.metrics_stale_seconds,
        Windows(window, LATENCY_WINDOWS * window),
        settings.prometheus.labels,
    )
