"""The load of a service over days of ticks: learned, kept across operators, and written only when it has moved."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from plimsoll import metrics
from plimsoll.adapters.ports import PODS, SERVICES
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.sampler import Asking, Sampler
from plimsoll.control.traffic import TrafficWatch
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core import promql
from plimsoll.core.plan.demand import NOTHING_LEARNED
from plimsoll.core.request import Request, read_request
from plimsoll.core.sampling import Answer, Fault, Series
from plimsoll.core.signals import Signal

KEY = Key("llm", "svc")
TICK = 15.0
MIDNIGHT = datetime(2026, 11, 30, tzinfo=UTC).timestamp()
DAY = 86_400.0
BUSY = {
    Signal.USAGE: 0.6, Signal.USAGE_PEAK: 0.7, Signal.RUNNING: 40, Signal.WAITING: 0, Signal.PREEMPTIONS: 0,
    Signal.PROMPT_TOKENS: 9000, Signal.GENERATION_TOKENS: 900, Signal.REQUESTS: 3, Signal.FINISHED: 3,
    Signal.REJECTED: 0,
}  # fmt: skip


class World:
    """One pod, a Prometheus, and an API server that keeps what was told."""

    def __init__(self, **tuning: str) -> None:
        self.seconds, self.figures, self.away = 0.0, dict(BUSY), False
        self.status: Mapping[str, Any] = {}
        self.writes = 0
        self.service = {
            "metadata": {"name": "svc", "namespace": "llm", "uid": "u"},
            "spec": {
                "model": {"id": "Qwen/Qwen3-8B"},
                "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
                "contextTokens": 16384,
                "load": {"concurrency": 8, "promptTokens": 1000, "outputTokens": 200},
                "tuning": tuning,
            },
        }
        self.cache = Cache()
        self.cache.put(SERVICES, self.service)
        labels = {names.LABEL_SERVICE: "svc", names.LABEL_TRACK: names.TRACK_MAIN}
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": []}
        meta = {"name": "pod", "namespace": "llm", "uid": "uid-pod", "labels": labels}
        self.cache.put(PODS, {"metadata": meta, "status": ready})
        self.start()

    def start(self) -> None:
        """A new operator process."""
        self.queue: WorkQueue[Key] = WorkQueue(lambda: self.seconds)
        self.sampler = Sampler(self, self.cache, self.queue, lambda: self.seconds, Asking())
        self.watch = TrafficWatch(self.sampler, lambda: MIDNIGHT + self.seconds)

    async def query(self, query: str) -> Answer | Fault:
        """Every figure, in answer to the query of gauges; the age in answer to that of ages."""
        if self.away:
            return Fault("unreachable", "away")
        pod = {"namespace": "llm", "pod": "pod", "engine": "0"}
        asked = promql.queries(promql.DEFAULT_WINDOWS, {}, [95])
        if query == asked[promql.NOW]:
            return Answer(tuple(Series({**pod, "signal": s.name}, float(v)) for s, v in self.figures.items()))
        return Answer((Series(pod, 5.0),)) if query == asked[promql.AGE] else Answer(())

    def pass_time(self, seconds: float) -> Request:
        """Ticks, one look at each; what is told is written when it is news."""
        return asyncio.run(self._ticks(self.seconds + seconds))

    async def _ticks(self, until: float) -> Request:
        request = self.look()
        while self.seconds < until:
            self.seconds += TICK
            await self.sampler.tick(self)
            request = self.look()
        return request

    async def tick_only(self, seconds: float) -> None:
        """Ticks; a look only where one is due."""
        until = self.seconds + seconds
        while self.seconds < until:
            self.seconds += TICK
            await self.sampler.tick(self)
            if len(self.queue):
                self.queue.done(await self.queue.get())
                self.look()

    def look(self) -> Request:
        request, told = self.watch.look(KEY, read_request(self.service), self.status)
        self.writes += told != self.status
        self.status = told
        return request


def skip(world: World, days: float) -> None:
    """Time without an operator."""
    world.seconds += days * DAY
    world.start()


def test_two_days_of_more_count_and_a_restart_forgets_nothing() -> None:
    world = World()
    assert world.pass_time(1800).load == NOTHING_LEARNED
    assert world.status["figures"]["concurrency"] == {"declared": 8, "observed": 40, "counts": 8}
    skip(world, 1)
    second = world.pass_time(1800)
    assert second.load.to_dict() == {"concurrency": 40, "prompt_tokens": 3000, "output_tokens": 300}
    assert second.fingerprint == read_request(world.service).fingerprint, "nothing is planned anew for it"
    before = world.writes
    world.start()
    assert world.look() == second, "the first look of a new operator, before any tick"
    assert world.writes == before
    world.watch.start_over()
    assert world.look() == second


def test_an_idle_service_is_never_written_and_one_that_stays_the_same_hardly() -> None:
    idle = World()
    idle.figures = dict.fromkeys(BUSY, 0)
    idle.pass_time(1800)
    assert (idle.writes, idle.status) == (0, {})
    steady = World()
    steady.pass_time(900)
    settled = steady.writes
    steady.figures |= {Signal.RUNNING: 38, Signal.PROMPT_TOKENS: 9300}
    steady.pass_time(3600)
    assert steady.writes - settled <= 1, "ten thousand requests were reached"
    steady.figures = dict.fromkeys(BUSY, 0)
    rest = steady.writes
    steady.pass_time(900)
    assert steady.writes == rest


def test_ticks_that_show_the_same_count_though_nobody_looks() -> None:
    looked, passed = World(), World()
    for world in (looked, passed):
        world.pass_time(1800)
    looked.pass_time(4 * 3600)
    passed.sampler.lulls.restless, passed.sampler.lulls.again = (lambda _: False), passed.watch.again
    asyncio.run(passed.tick_only(4 * 3600))
    passed.pass_time(TICK)
    looked.pass_time(TICK)
    assert passed.status == looked.status
    assert passed.status["days"][0]["hours"] == 3


def test_prometheus_that_is_away_unsays_nothing() -> None:
    world = World()
    world.pass_time(1800)
    told = world.status
    world.away = True
    world.pass_time(3600)
    assert world.status == told


def test_evidence_expires_without_being_rewritten_as_traffic() -> None:
    world = World()
    world.pass_time(1800)
    skip(world, 1)
    assert world.pass_time(1800).load != NOTHING_LEARNED
    skip(world, 9)
    assert world.look().load == NOTHING_LEARNED
    assert world.status["figures"] == {}


@pytest.mark.parametrize(("choice", "learns"), [("Learned", True), ("Declared", False)])
def test_who_wants_the_declared_load_gets_it(choice: str, learns: bool) -> None:
    world = World(load=choice)
    world.pass_time(1800)
    skip(world, 1)
    assert (world.pass_time(1800).load != NOTHING_LEARNED) is learns
    assert world.status["figures"]["concurrency"]["observed"] == 40, "shown all the same"


def test_the_same_as_metrics_until_the_service_is_gone() -> None:
    def shown() -> float | None:
        labels = {"namespace": "llm", "service": "svc", "figure": "concurrency"}
        return metrics.REGISTRY.get_sample_value("plimsoll_service_load_observed", labels)

    world = World()
    world.pass_time(1800)
    assert shown() == 40
    world.watch.forget(KEY)
    assert shown() is None
