"""Watches what limits each service, a tick after the other: what was said of it stays until it is no longer so."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from plimsoll import metrics
from plimsoll.control.cache import Key
from plimsoll.control.pools import Pools, Speeds
from plimsoll.control.sampler import Sampler
from plimsoll.core import availability, latencies, observed, pools, speed
from plimsoll.core.diagnose import Finding, diagnose
from plimsoll.core.evidence import Case
from plimsoll.core.latencies import Targets
from plimsoll.core.manifests.image import image_of
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.observed import Figures, Observed
from plimsoll.core.pools import Pool
from plimsoll.core.replica import capacity_of
from plimsoll.core.request import Request
from plimsoll.core.sampling import Sampling
from plimsoll.core.signals import FleetView, Signal
from plimsoll.core.speed import Clock, Speed
from plimsoll.core.steady import Steady, Verdict

_SPECULATION: Final = "--speculative-config"


@dataclass(frozen=True)
class _Memory:
    tick: int = 0
    available: Steady[Verdict] = field(default_factory=Steady)
    slo: Steady[Verdict] = field(default_factory=Steady)
    finding: Steady[Finding] = field(default_factory=Steady)
    figures: Figures = field(default_factory=Figures)
    prediction: Steady[Verdict] = field(default_factory=Steady)
    pool: Pool | None = None
    clock: Clock = field(default_factory=Clock)


class Observer:
    """What is said of every service. It forgets with the process; the status keeps what was said last."""

    def __init__(self, sampler: Sampler, known: Pools, speeds: Speeds) -> None:
        self._sampler = sampler
        self._pools = known
        self._speeds = speeds
        self._memories: dict[Key, _Memory] = {}

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._pools.forget(key)
        self._speeds.forget(key)
        if (memory := self._memories.pop(key, None)) and memory.finding.said:
            metrics.show(metrics.FINDING, *key, None, memory.finding.said.word)

    def start_over(self) -> None:
        """Another operator has led meanwhile: what was remembered may not be so any more."""
        self._memories.clear()

    def recall(self, key: Key, model: str, revision: Revision, before: Mapping[str, Any]) -> None:
        """What an earlier process learned from the service's pods, by the ``status.observed`` that it wrote."""
        if self._sampler.configured:
            self._memories[key] = memory = _recalled(before)
            self._teach(key, model, revision, memory)

    def observe(
        self,
        key: Key,
        request: Request,
        revision: Revision | None,
        before: Mapping[str, Any] | None = None,
        *,
        settled: bool = True,
    ) -> Observed:
        """What the service's engines show, with the newest tick counted once however often this is asked.

        ``before``: ``status.observed`` as it was written last. ``settled``: all pods are of the ``revision``.
        """
        if not self._sampler.configured:
            said = availability.without_prometheus()
            return Observed(said, replace(said, message="without Prometheus no latency is known"))
        found, look = self._sampler.newest, self._sampler.look(key)
        memory = self._memories.get(key) or _recalled(before or {})
        if revision is None:
            return Observed()
        if found is not None and look is not None and found.tick != memory.tick:
            case = self._case(request, revision, look.view)
            earlier, memory = memory, _after(memory, found, case, key.namespace)
            memory = self._taught(memory, look.view, revision.plan, found.at_seconds) if settled else memory
            self._memories[key] = memory
            _show(key, revision, case, memory)
            _show_finding(key, earlier.finding.said, memory.finding.said)
        mine, timed = self._teach(key, request.spec.model.id, revision, memory)
        return Observed(
            memory.available.said,
            memory.slo.said,
            memory.prediction.said,
            mine,
            timed,
            memory.finding.said,
            memory.figures,
        )

    def _teach(self, key: Key, model: str, revision: Revision, memory: _Memory) -> tuple[Pool | None, Speed | None]:
        """What is known of the revision's own engine: it counts for whoever plans the same one."""
        mine = memory.pool if memory.pool and memory.pool.key == revision.plan.get("poolKey") else None
        timed = memory.clock.said if memory.clock.key == revision.plan.get("stepKey") else None
        image = image_of(revision.template)
        self._pools.note(key, model, image, mine)
        self._speeds.note(key, model, image, timed)
        return mine, timed

    def _taught(self, memory: _Memory, view: FleetView, plan: Mapping[str, Any], at_seconds: float) -> _Memory:
        window = self._sampler.windows.latency_seconds
        clock = speed.after(memory.clock, view, plan, at_seconds, window)
        return replace(_with_pool(memory, view, plan), clock=clock)

    def _case(self, request: Request, revision: Revision, view: FleetView) -> Case:
        capacity = capacity_of(revision.plan, request.spec, view, request.load, request.step_factor)
        targets = Targets(
            capacity.ttft_seconds,
            capacity.itl_seconds,
            round(100 * capacity.percentile),
            any(str(arg).startswith(_SPECULATION) for arg in revision.plan["choice"].get("args", ())),
        )
        return Case(view, capacity, targets, self._sampler.windows)


def _recalled(before: Mapping[str, Any]) -> _Memory:
    return _Memory(pool=pools.told(before), clock=speed.begin(before))


def _after(memory: _Memory, found: Sampling, case: Case, namespace: str) -> _Memory:
    available = memory.available.after(availability.judge(case.view, found, namespace))
    figures = memory.figures.after(observed.figures(case.view, case.capacity))
    return replace(
        memory,
        tick=found.tick,
        available=available,
        slo=memory.slo.after(latencies.judge(case.view, case.targets)),
        finding=memory.finding.after(diagnose(case)),
        figures=memory.figures if _missed_one(available, case) else figures,
    )


def _with_pool(memory: _Memory, view: FleetView, plan: Mapping[str, Any]) -> _Memory:
    """What the fleet shows of its KV cache, once all its pods are of one plan. Silence does not unsay it: a pool is
    what it is for as long as its engine runs.
    """
    pool = pools.after(memory.pool, view, plan)
    silent = pool is not None and bool(view.serving) and not pools.is_reported(view)
    prediction = memory.prediction if silent else memory.prediction.after(pools.judge(view, plan))
    return replace(memory, prediction=prediction, pool=pool)


def _missed_one(available: Steady[Verdict], case: Case) -> bool:
    """One tick that says nothing, between others that do."""
    return not case.view.complete and available.said is not None and available.said.status == "True"


def _show(key: Key, revision: Revision, case: Case, memory: _Memory) -> None:
    """The same as metrics, each tick; of what is not known there is no series."""
    said, view = memory.available.said, case.view
    whole = None if said is None else float(said.status == "True")
    metrics.show(metrics.METRICS_COMPLETE, *key, whole)
    metrics.show(metrics.KV_USE, *key, view.mean(Signal.USAGE).value)
    metrics.show(metrics.KV_TOKENS_PLANNED, *key, float(revision.plan["kv"]["tokens"]))
    metrics.show(metrics.STEP_TIME_RATIO, *key, memory.clock.said.factor if memory.clock.said else None)
    metrics.show(metrics.KV_TOKENS_OBSERVED, *key, view.mean(Signal.POOL_TOKENS).value)
    for name, latency in zip(metrics.LATENCIES, case.latencies, strict=True):
        metrics.show(metrics.LATENCY_RATIO, *key, latency.ratio if latency else None, name)


def _show_finding(key: Key, before: Finding | None, now: Finding | None) -> None:
    """One series: of the present finding."""
    if before and (now is None or before.word != now.word):
        metrics.show(metrics.FINDING, *key, None, before.word)
    if now:
        metrics.show(metrics.FINDING, *key, 1, now.word)
