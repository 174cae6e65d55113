"""A fleet of simulated engines: replicas that load, serve and drain, a router, scrapes, and whoever sets their number.

Deterministic: the same trace, settings and seed give the same history. Engines are advanced in the order of their
events, so the cost of a request does not depend on how many replicas there are.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import Literal, Protocol

from plimsoll.sim.engine import NEVER, Engine
from plimsoll.sim.observe import Observation, PodSample, PodView, sample
from plimsoll.sim.requests import Request
from plimsoll.sim.router import Router

State = Literal["loading", "ready", "draining", "gone"]


class Policy(Protocol):
    """Who sets the number of replicas. ``live`` policies see the engines as they are, others the last scrape."""

    interval_seconds: float
    live: bool

    def decide(self, seen: Observation) -> int:
        """Replicas wanted now."""


@dataclass(frozen=True)
class FleetSettings:
    """The world around the engines. Times in seconds; ``quota`` is the most replicas that GPUs exist for."""

    cold_start_seconds: float = 180.0
    scrape_seconds: float = 15.0
    scrape_delay_seconds: float = 1.0
    scrape_loss: float = 0.0
    first_replicas: int = 1
    min_replicas: int = 1
    max_replicas: int = 64
    quota: int = 10_000
    gpus_per_replica: int = 1
    drain_seconds: float = 3600.0
    """A draining replica is killed after so long, with what it still serves."""
    failures_seconds: tuple[float, ...] = ()
    """Moments at which one ready replica dies; its Deployment starts another."""
    seed: int = 0


@dataclass(eq=False, slots=True)
class Replica:
    """One pod of the fleet."""

    name: str
    created_seconds: float
    engine: Engine
    state: State = "loading"
    outstanding: int = 0
    leaving_seconds: float = NEVER
    """Draining: when it is killed."""
    scrapes: deque[PodSample] = field(default_factory=lambda: deque(maxlen=2))
    """The last two: the newest may still be on its way."""


@dataclass(slots=True)
class Moment:
    """One row of the timeline, taken at a scrape."""

    seconds: float
    replicas: int
    ready: int
    wanted: int
    usage: float
    running: int
    waiting: int


@dataclass
class History:
    """What happened: every request, and the fleet at each scrape."""

    requests: list[Request]
    rejected: list[Request] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)
    replica_seconds: float = 0.0
    preemptions: int = 0
    scale_events: int = 0
    most_replicas: int = 0
    end_seconds: float = 0.0
    timeline: list[Moment] = field(default_factory=list)


class Fleet:
    """Runs a trace against a policy."""

    def __init__(
        self, make_engine: Callable[[], Engine], policy: Policy, router: Router, settings: FleetSettings
    ) -> None:
        self._make_engine, self._policy, self._router, self._settings = make_engine, policy, router, settings
        self._random = Random(settings.seed)  # noqa: S311 - a simulation
        self._replicas: list[Replica] = []
        self._ready: list[Replica] = []
        self._events: list[tuple[float, int, Replica]] = []
        self._controls: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = 0
        self._held: deque[Request] = deque()
        """Requests that came while nobody was ready: a gateway keeps them."""
        self._wanted = 0
        self._named = 0

    def run(self, requests: Sequence[Request], until_seconds: float | None = None) -> History:
        """The whole trace, then ``until_seconds`` at the latest; by default an hour for the last to finish."""
        history = self._history = History(list(requests))
        end = until_seconds if until_seconds is not None else (requests[-1].arrival_seconds if requests else 0) + 3600
        self._start(end)
        events = self._events
        for request in requests:
            arrival = request.arrival_seconds
            if self._controls[0][0] < arrival or (events and events[0][0] < arrival):
                self._run_until(arrival)
            self._route(request, arrival)
        while (self._busy() or self._held) and self._controls[0][0] <= end:
            self._run_until(self._controls[0][0] + self._settings.scrape_seconds)
        self._close(min(end, max((r.finish_seconds for r in requests if r.finish_seconds < NEVER), default=0.0)))
        return history

    def _start(self, end: float) -> None:
        settings = self._settings
        self._wanted = settings.first_replicas
        for _ in range(settings.first_replicas):
            self._ready_now(self._create(0.0))
        self._at(settings.scrape_seconds, self._scrape)
        self._at(self._policy.interval_seconds, self._decide)
        for moment in settings.failures_seconds:
            self._at(moment, self._fail)
        self._at(end + 1e9, lambda _: None)

    def _at(self, seconds: float, act: Callable[[float], None]) -> None:
        self._order += 1
        heappush(self._controls, (seconds, self._order, act))

    def _run_until(self, until: float) -> None:
        """Everything that happens up to a moment, in order; what is decided comes after what has finished."""
        events, controls = self._events, self._controls
        while True:
            at = events[0][0] if events else NEVER
            control = controls[0][0]
            if min(at, control) >= until:
                return
            if at <= control:
                _, _, replica = heappop(events)
                if replica.engine.next_seconds == at:
                    self._advance(replica)
            else:
                _, _, act = heappop(controls)
                act(control)

    def _advance(self, replica: Replica) -> None:
        engine = replica.engine
        now = engine.next_seconds
        done = engine.advance()
        if done:
            replica.outstanding -= len(done)
            if replica.state == "draining" and not replica.outstanding:
                self._remove(replica, now)
                return
        if engine.next_seconds < NEVER:
            self._order += 1
            heappush(self._events, (engine.next_seconds, self._order, replica))

    def _route(self, request: Request, now: float) -> None:
        if not self._ready:
            self._held.append(request)
            return
        replica = self._router.choose(self._ready, request)
        engine = replica.engine
        if not engine.holds(request):
            self._history.rejected.append(request)
            return
        replica.outstanding += 1
        before = engine.next_seconds
        engine.submit(request, now)
        if engine.next_seconds != before:
            self._order += 1
            heappush(self._events, (engine.next_seconds, self._order, replica))

    def _busy(self) -> bool:
        return any(replica.outstanding for replica in self._replicas)

    # Replicas come and go.

    def _create(self, now: float) -> Replica:
        self._named += 1
        replica = Replica(f"pod-{self._named}", now, self._make_engine())
        self._replicas.append(replica)
        self._history.most_replicas = max(self._history.most_replicas, len(self._replicas))
        return replica

    def _ready_now(self, replica: Replica) -> None:
        if replica.state == "loading":
            replica.state = "ready"
            self._ready.append(replica)

    def _loaded(self, replica: Replica) -> Callable[[float], None]:
        def act(now: float) -> None:
            self._ready_now(replica)
            held, self._held = self._held, deque()
            for request in held:
                self._route(request, now)

        return act

    def _remove(self, replica: Replica, now: float) -> None:
        history = self._history
        replica.state = "gone"
        self._replicas.remove(replica)
        if replica in self._ready:
            self._ready.remove(replica)
        history.replica_seconds += now - replica.created_seconds
        history.preemptions += replica.engine.counters.preemptions

    def _drain(self, replica: Replica, now: float) -> None:
        if replica in self._ready:
            self._ready.remove(replica)
        if not replica.outstanding:
            self._remove(replica, now)
            return
        replica.state = "draining"
        self._at(now + self._settings.drain_seconds, lambda at: self._kill(replica, at))

    def _kill(self, replica: Replica, now: float) -> None:
        if replica.state == "gone":
            return
        self._history.failed += replica.engine.abandon()
        replica.outstanding = 0
        self._remove(replica, now)

    def _fail(self, now: float) -> None:
        if self._ready:
            self._kill(self._random.choice(self._ready), now)
            self._fill(now)

    def _fill(self, now: float) -> None:
        """As a Deployment does: as many replicas as wanted, while there are GPUs for them."""
        settings = self._settings
        mine = [replica for replica in self._replicas if replica.state != "draining"]
        room = settings.quota - len(self._replicas)
        for _ in range(min(self._wanted - len(mine), room)):
            replica = self._create(now)
            self._at(now + settings.cold_start_seconds, self._loaded(replica))
        for replica in sorted(mine, key=_first_to_go)[: max(0, len(mine) - self._wanted)]:
            self._drain(replica, now)

    # Who looks, and who decides.

    def _scrape(self, now: float) -> None:
        settings = self._settings
        for replica in self._replicas:
            # The port of an engine is closed while it loads: there is nothing to read.
            if replica.state != "loading" and (
                not settings.scrape_loss or self._random.random() >= settings.scrape_loss
            ):
                replica.scrapes.append(sample(replica.engine, now))
        self._note(now)
        self._at(now + settings.scrape_seconds, self._scrape)

    def _note(self, now: float) -> None:
        ready = self._ready
        usage = sum(r.engine.usage(now) for r in ready) / len(ready) if ready else 0.0
        running, waiting = sum(r.engine.running for r in ready), sum(r.engine.waiting for r in ready)
        count = len(self._replicas)
        self._history.timeline.append(Moment(now, count, len(ready), self._wanted, usage, running, waiting))

    def _decide(self, now: float) -> None:
        wanted = self._policy.decide(self._observe(now))
        wanted = max(self._settings.min_replicas, min(wanted, self._settings.max_replicas))
        if wanted != self._wanted:
            self._history.scale_events += 1
            self._wanted = wanted
        self._fill(now)
        self._at(now + self._policy.interval_seconds, self._decide)

    def _observe(self, now: float) -> Observation:
        pods = tuple(self._view(replica, now) for replica in self._replicas)
        return Observation(now, self._wanted, pods, len(self._held))

    def _view(self, replica: Replica, now: float) -> PodView:
        if self._policy.live and replica.state != "loading":
            seen: PodSample | None = sample(replica.engine, now)
        else:
            visible = now - self._settings.scrape_delay_seconds
            seen = next((scrape for scrape in reversed(replica.scrapes) if scrape.seconds <= visible), None)
        return PodView(replica.name, replica.created_seconds, replica.state, seen)

    def _close(self, end: float) -> None:
        history = self._history
        history.end_seconds = end
        for replica in self._replicas:
            history.replica_seconds += max(0.0, end - replica.created_seconds)
            history.preemptions += replica.engine.counters.preemptions


def _first_to_go(replica: Replica) -> tuple[bool, float]:
    """As a ReplicaSet chooses: pods that are not ready first, then the youngest."""
    return replica.state == "ready", -replica.created_seconds
