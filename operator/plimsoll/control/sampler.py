"""Asks Prometheus what all fleets do, once a tick for all services together, and puts those that run in line.

Answers are kept by pod; a service's view is joined with the cache's own pods when it is asked for: a pod that only one
of the two knows is missing or left out, never counted wrongly.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from plimsoll import metrics
from plimsoll.adapters.ports import SERVICES, MetricsSource
from plimsoll.control.cache import Cache, Key
from plimsoll.control.lulls import Lulls
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core import promql, sampling
from plimsoll.core.promql import Windows
from plimsoll.core.sampling import STATES, Answer, Fault, PodKey, Sampling
from plimsoll.core.signals import NEEDED, Look, Sample

log = logging.getLogger("plimsoll.sampler")

ASKED_ABOUT: Final = 50
"""Pods at most that are looked for among the scrape targets in one tick."""
MISSED_TICKS: Final = 3
DEFAULT_PERCENTILE: Final = 95


@dataclass(frozen=True)
class Asking:
    """How Prometheus is asked."""

    interval_seconds: float = 15.0
    stale_after_seconds: float = 90.0
    windows: Windows = promql.DEFAULT_WINDOWS
    labels: Mapping[str, str] = field(default_factory=dict)


class Sampler:
    """The newest sampling, and the loop that takes it. Without a ``source`` it never has one."""

    def __init__(
        self,
        source: MetricsSource | None,
        cache: Cache,
        queue: WorkQueue[Key],
        monotonic: Callable[[], float],
        asking: Asking,
    ) -> None:
        self._source = source
        self._cache = cache
        self._queue = queue
        self._monotonic = monotonic
        self._asking = asking
        self._ticks = 0
        self._sampling: Sampling | None = None
        self._ready_since: dict[str, float] = {}
        self._reported: set[str] = set()
        """Uids of ready pods that reported everything once."""
        self._ran: list[Key] = []
        self.lulls = Lulls()
        self._percentiles: dict[Key, int] = {}
        self._joined: tuple[object, Look | None] = None, None
        """The last answer, and what it was about: one reconcile asks for it several times."""
        self._told: tuple[str, ...] = ()

    @property
    def configured(self) -> bool:
        """Whether there is a Prometheus to ask."""
        return self._source is not None

    @property
    def windows(self) -> Windows:
        """How far back the figures look."""
        return self._asking.windows

    @property
    def newest(self) -> Sampling | None:
        """The newest tick's findings; one with a fault when ticks have stopped, None when there was none yet."""
        found = self._sampling
        if found is None:
            return None
        missed = int((self._monotonic() - found.at_seconds) / self._asking.interval_seconds)
        if missed < MISSED_TICKS:
            return found
        fault = Fault("unreachable", "no tick of the sampler has ended for a while")
        return replace(found, tick=found.tick + missed, pods={}, faults={promql.NOW: fault})

    def look(self, key: Key) -> Look | None:
        """The service's fleet at the newest tick; None when no Prometheus is configured or none was sampled yet."""
        found = self.newest
        at = (key, found.tick if found else 0, self._cache.mark())
        if at != self._joined[0]:
            self._joined = at, self._join(key, found)
        return self._joined[1]

    def _join(self, key: Key, found: Sampling | None) -> Look | None:
        service = self._cache.get(SERVICES, *key)
        if found is None or service is None:
            self._percentiles.pop(key, None)
            return None
        percentile = int(((service.get("spec") or {}).get("slo") or {}).get("percentile", DEFAULT_PERCENTILE))
        self._percentiles[key] = percentile
        view = sampling.view(
            self._cache.pods(key),
            key.namespace,
            found,
            engines_per_pod=_engines(service),
            percentile=percentile,
            ready_seconds=lambda uid: found.at_seconds - self._ready_since.get(uid, found.at_seconds),
            is_new=lambda uid: self._is_new(uid, found.at_seconds),
        )
        return Look(view, self.lulls.looked_seconds(key, found.at_seconds))

    async def run(self) -> None:
        """Sample for ever; a tick that takes longer than the interval is followed by the next at once."""
        while self._source is not None:
            began = self._monotonic()
            await self.tick(self._source)
            await asyncio.sleep(max(0.0, self._asking.interval_seconds - (self._monotonic() - began)))

    async def tick(self, source: MetricsSource) -> None:
        """Ask once, keep what was found, and put the services in line whose fleets serve or load; those that show the
        same as before not every time.
        """
        began = self._monotonic()
        running = self._running(began)
        asked = promql.queries(self._asking.windows, self._asking.labels, self._percentiles.values())
        found = dict(zip(asked, await asyncio.gather(*map(source.query, asked.values())), strict=True))
        answers = {name: answer for name, answer in found.items() if isinstance(answer, Answer)}
        pods = await asyncio.to_thread(sampling.read, answers, self._asking.stale_after_seconds)
        self._ticks += 1
        taken = Sampling(
            tick=self._ticks,
            at_seconds=began,
            pods=pods,
            faults={name: fault for name, fault in found.items() if isinstance(fault, Fault)},
            warnings=tuple(dict.fromkeys(w for answer in answers.values() for w in answer.warnings)),
        )
        lacking = [] if taken.error else self._lacking(taken)
        self._sampling = replace(taken, **await self._targets(source, lacking)) if lacking else taken
        self._tell(self._sampling, len(asked), self._monotonic() - began)
        # Those that have just stopped are looked at once more: that nothing runs is worth saying.
        due = self.lulls.due({key: self._cache.pods(key) for key in running}, self._sampling)
        stopped = set(self._ran).difference(running)
        for key in (*due, *stopped):
            self._queue.add(key)
        self._ran = running

    def _running(self, now: float) -> list[Key]:
        """Services whose fleet serves or loads; which pods are ready, and since when, is kept on the way."""
        found: list[Key] = []
        ready: dict[str, float] = {}
        for key in self._cache.services():
            states = {pod.uid: STATES[pod.phase] for pod in self._cache.pods(key)}
            ready |= {uid: self._ready_since.get(uid, now) for uid, state in states.items() if state == "ready"}
            if not {"ready", "loading"}.isdisjoint(states.values()):
                found.append(key)
        self._ready_since = ready
        return found

    def _is_new(self, uid: str, at_seconds: float) -> bool:
        since = self._ready_since.get(uid, at_seconds)
        return uid not in self._reported and at_seconds - since < self._asking.windows.rate_seconds

    def _lacking(self, taken: Sampling) -> list[PodKey]:
        """Ready pods that something is missing of; of the others it is kept that they reported everything once."""
        lacking, whole = [], set()
        for key in self._cache.services():
            for pod in self._cache.pods(key):
                if STATES[pod.phase] != "ready" or not pod.serves:
                    continue
                if _whole((key.namespace, pod.name), taken):
                    whole.add(pod.uid)
                else:
                    lacking.append((key.namespace, pod.name))
        self._reported = {uid for uid in self._reported | whole if uid in self._ready_since}
        return lacking

    async def _targets(self, source: MetricsSource, lacking: Sequence[PodKey]) -> dict[str, Any]:
        """Whether Prometheus scrapes these pods at all. One query more, and only when something is missing."""
        asked = lacking[:ASKED_ABOUT]
        answer = await source.query(promql.targets((name for _, name in asked), self._asking.labels))
        if isinstance(answer, Fault):
            return {}
        up = {(s.labels.get("namespace", ""), s.labels.get("pod", "")): s.value == 1 for s in answer.series}
        return {"asked_about": frozenset(asked), "scraped": up}

    def _tell(self, taken: Sampling, asked: int, seconds: float) -> None:
        metrics.PROMETHEUS_QUERIES.inc(asked)
        metrics.SAMPLE_SECONDS.observe(seconds)
        for fault in taken.faults.values():
            metrics.PROMETHEUS_FAULTS.labels(fault.kind).inc()
        words = (*dict.fromkeys(fault.message for fault in taken.faults.values()), *taken.warnings)
        if words != self._told:
            log.warning("metrics: %s", "; ".join(words) or "all queries are answered again")
        self._told = words


def _whole(pod: PodKey, taken: Sampling) -> bool:
    engines = taken.pods.get(pod, {})
    return bool(engines) and all(
        isinstance(said.get((signal, 0)), Sample) for said in engines.values() for signal in NEEDED
    )


def _engines(service: Mapping[str, Any]) -> int:
    """Engines that report in one pod: the data-parallel ranks of a replica, which its one port speaks for."""
    choice = ((service.get("status") or {}).get("plan") or {}).get("choice") or {}
    return max(1, int(choice.get("enginesPerReplica", 1)))
