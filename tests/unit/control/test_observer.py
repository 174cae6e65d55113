"""A fault of Prometheus over time: said within two ticks with its cause, and over within two ticks when it is over."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll import metrics
from plimsoll.adapters.ports import PODS, SERVICES
from plimsoll.api import findings, names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.observer import Observer
from plimsoll.control.pools import Pools, Speeds
from plimsoll.control.sampler import Asking, Sampler
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core import rollout
from plimsoll.core.diagnose import Finding
from plimsoll.core.manifests.image import DEFAULT_IMAGE
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.observed import NOTHING_OBSERVED, Observed
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.request import Request, read_request
from plimsoll.core.sampling import Answer, Fault, Series
from plimsoll.core.signals import Signal

KEY = Key("llm", "svc")
TICK = 15.0
Spoil = Callable[[str, Answer], Answer | Fault]
SERVICE = {
    "metadata": {"name": "svc", "namespace": "llm", "uid": "u"},
    "spec": {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
        "contextTokens": 16384,
        "load": {"concurrency": 4, "promptTokens": 1000, "outputTokens": 200},
        "slo": {"ttft": "2s", "itl": "50ms"},
    },
}
UNDER_LOAD = {
    Signal.USAGE: 0.6, Signal.USAGE_PEAK: 0.7, Signal.RUNNING: 8, Signal.WAITING: 0, Signal.PREEMPTIONS: 0,
    Signal.PROMPT_TOKENS: 900, Signal.GENERATION_TOKENS: 300, Signal.TTFT: 0.5, Signal.ITL: 0.03,
    Signal.REQUESTS: 1,
}  # fmt: skip
AT_REST = {**dict.fromkeys(UNDER_LOAD, 0.0)}


@pytest.fixture(scope="module")
def request_() -> Request:
    return read_request(SERVICE)


@pytest.fixture(scope="module")
def revision(request_: Request) -> Revision:
    plan = plan_service(request_.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    assert isinstance(plan, Plan)
    return rollout.render(request_, plan, 1)


def pod(name: str) -> dict[str, Any]:
    labels = {names.LABEL_SERVICE: "svc", names.LABEL_TRACK: names.TRACK_MAIN}
    return {
        "metadata": {"name": name, "namespace": "llm", "uid": f"uid-{name}", "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": []},
    }


class World:
    """Two pods, and a Prometheus whose answers are spoiled on their way."""

    def __init__(self, figures: dict[Signal, float]) -> None:
        self.now = 0.0
        self.figures = figures
        self.spoil: Spoil = lambda _query, answer: answer
        self.cache = Cache()
        queue: WorkQueue[Key] = WorkQueue(lambda: self.now)
        self.sampler = Sampler(self, self.cache, queue, lambda: self.now, Asking())
        self.speeds, self.blocks = Speeds([DEFAULT_IMAGE]), 0
        self.observer = Observer(self.sampler, Pools([DEFAULT_IMAGE]), self.speeds)
        self.cache.put(SERVICES, SERVICE)
        for name in ("a", "b"):
            self.cache.put(PODS, pod(name))

    async def query(self, text: str) -> Answer | Fault:
        asked = [s for s in Signal if f'"{s.name}"' in text and s in self.figures]
        tags: list[dict[str, str]] = [{"signal": s.name} for s in asked]
        values = [self.figures[s] for s in asked]
        if text.startswith("time()"):
            tags, values = [{}], [5.0]
        elif "up{" in text:
            tags, values = [{}], [1.0]
        elif "num_gpu_blocks" in text and self.blocks:
            tags, values = [{"num_gpu_blocks": str(self.blocks)}], [1.0]
        found = [
            Series({"namespace": "llm", "pod": name, "engine": "0", "percentile": "95", **tag}, value)
            if tag.get("signal") in ("TTFT", "ITL")
            else Series({"namespace": "llm", "pod": name, "engine": "0", **tag}, value)
            for name in ("a", "b")
            for tag, value in zip(tags, values, strict=True)
        ]
        return self.spoil(text, Answer(tuple(found)))

    async def ticks(self, count: int, request: Request, revision: Revision) -> Observed:
        for _ in range(count):
            await self.sampler.tick(self)
            said = self.observer.observe(KEY, request, revision)
            self.now += TICK
        return said


def fault(kind: Any) -> Spoil:
    return lambda _query, _answer: Fault(kind, "its own words")


def values(value: float) -> Spoil:
    return lambda _query, answer: Answer(tuple(Series(s.labels, value) for s in answer.series))


def without(name: str) -> Spoil:
    return lambda _query, answer: Answer(tuple(s for s in answer.series if s.labels["pod"] != name))


def of(part: str, spoil: Spoil) -> Spoil:
    """Spoil only the queries that hold this text."""
    return lambda query, answer: spoil(query, answer) if part in query else answer


FAULTS: dict[str, tuple[Spoil, str]] = {
    "down or hanging": (fault("unreachable"), "PrometheusUnreachable"),
    "HTML": (fault("invalid"), "AnswerInvalid"),
    "auth refused": (fault("auth"), "PrometheusRefuses"),
    "an error in a 200": (fault("rejected"), "QueryRejected"),
    "one query is rejected": (of("histogram_quantile", fault("rejected")), "QueryRejected"),
    "empty": (lambda _q, _a: Answer(()), "NoScrapeTarget"),
    "NaN": (values(math.nan), "MetricsInvalid"),
    "+Inf": (values(math.inf), "MetricsInvalid"),
    "NaN, but ages and targets": (of('"USAGE"', values(math.nan)), "MetricsInvalid"),
    "samples ten minutes old": (of("time()", values(600)), "MetricsStale"),
    "an answer ten minutes old": (lambda _q, a: Answer(a.series, 600.0), "MetricsStale"),
    "half the pods": (without("a"), "NoScrapeTarget"),
    "half the pods, targets are there": (of("label_replace", without("a")), "MetricsMissing"),
    "a renamed metric": (of('"USAGE"', lambda _q, a: Answer(a.series[:0])), "MetricsMissing"),
    "a warning": (lambda _q, a: Answer(a.series, 0.0, ("one store is away",)), "PartialAnswer"),
}


@pytest.mark.parametrize("figures", [UNDER_LOAD, AT_REST], ids=["under load", "at rest"])
@pytest.mark.parametrize(("spoil", "reason"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_said_and_over_within_two_ticks(
    figures: dict[Signal, float], spoil: Spoil, reason: str, request_: Request, revision: Revision
) -> None:
    world = World(figures)
    before = await world.ticks(5, request_, revision)
    assert before.available is not None
    assert (before.available.status, before.available.word) == ("True", "MetricsComplete")
    world.spoil = spoil
    during = await world.ticks(2, request_, revision)
    assert during.available is not None
    assert (during.available.status, during.available.word) == ("False", reason)
    during = await world.ticks(40, request_, revision)
    look = world.sampler.look(KEY)
    assert look is not None
    assert during.finding is not None
    assert look.view.complete or during.finding.word == "Unknown"
    world.spoil = lambda _query, answer: answer
    after = await world.ticks(2, request_, revision)
    assert after.available is not None
    assert after.available.status == "True"


async def test_one_answer_that_does_not_come_changes_nothing(request_: Request, revision: Revision) -> None:
    world = World(UNDER_LOAD)
    before = await world.ticks(5, request_, revision)
    world.spoil = fault("unreachable")
    assert await world.ticks(1, request_, revision) == before
    world.spoil = lambda _query, answer: answer
    assert await world.ticks(1, request_, revision) == before


async def test_a_tick_counts_once_however_often_it_is_looked_at(request_: Request, revision: Revision) -> None:
    world = World(UNDER_LOAD)
    await world.ticks(5, request_, revision)
    world.spoil = fault("unreachable")
    await world.ticks(1, request_, revision)
    for _ in range(5):
        said = world.observer.observe(KEY, request_, revision)
    assert said.available is not None
    assert said.available.status == "True"


async def test_without_prometheus_it_is_said(request_: Request, revision: Revision) -> None:
    sampler = Sampler(None, Cache(), WorkQueue(lambda: 0.0), lambda: 0.0, Asking())
    said = Observer(sampler, Pools([]), Speeds([])).observe(KEY, request_, revision)
    assert said.available is not None
    assert (said.available.status, said.available.word) == ("Unknown", "NoPrometheus")


async def test_before_the_first_tick_the_status_keeps_what_was_said(request_: Request, revision: Revision) -> None:
    world = World(UNDER_LOAD)
    said = world.observer.observe(KEY, request_, revision)
    old = {"type": "MetricsAvailable", "status": "True", "reason": "MetricsComplete", "message": "m"}
    seen = {"bottleneck": "Healthy", "since": "t"}
    assert [c.status for c in said.conditions({"conditions": [old]})] == ["True"]
    assert said.status(seen, "now") == seen


async def test_the_bottleneck_keeps_its_time_and_evidence_until_it_is_another(
    request_: Request, revision: Revision
) -> None:
    world = World(UNDER_LOAD)
    said = await world.ticks(5, request_, revision)
    first = said.status({}, "t1")
    assert (first["bottleneck"], first["since"]) == ("Healthy", "t1")
    world.figures = UNDER_LOAD | {Signal.USAGE: 0.65}
    said = await world.ticks(3, request_, revision)
    assert said.status(first, "t2") == first  # five points: not worth a write
    world.figures = UNDER_LOAD | {Signal.USAGE: 0.98, Signal.USAGE_PEAK: 1.0, Signal.WAITING: 9}
    said = await world.ticks(3, request_, revision)
    second = said.status(first, "t3")
    assert (second["bottleneck"], second["since"], second["kvUsePercent"]) == ("KVBound", "t3", 98)


async def test_series_of_a_service_go_with_it(request_: Request, revision: Revision) -> None:
    metrics.forget_services()
    world = World(UNDER_LOAD)
    await world.ticks(5, request_, revision)
    labels = {"namespace": "llm", "service": "svc"}
    assert metrics.REGISTRY.get_sample_value("plimsoll_service_finding", {**labels, "finding": "Healthy"}) == 1
    world.observer.forget(KEY)
    metrics.forget_service(*KEY)
    left = [s for m in metrics.REGISTRY.collect() for s in m.samples if s.labels.get("service") == "svc"]
    assert left == []


async def test_step_times_are_learned_by_windows_and_kept(request_: Request, revision: Revision) -> None:
    typical, blocks = revision.plan["typical"], revision.plan["kv"]["numBlocks"]
    running = 4.0
    timed = {
        Signal.RUNNING: running,
        Signal.RUNNING_MEAN: running,
        Signal.NUM_BLOCKS: blocks,
        Signal.USAGE: running * typical["blocks"] / (blocks - 1),
        Signal.PROMPT_TOKENS: 10,
        Signal.ITL_MEAN: 1.3 * typical["stepsMs"][2] / 1e3,
    }
    world = World({**AT_REST, **timed})
    world.blocks = blocks
    assert (await world.ticks(40, request_, revision)).speed is None, "two windows"
    said = (await world.ticks(20, request_, revision)).speed
    assert said is not None
    assert (said.key, said.factor) == (revision.plan["stepKey"], 1.3)
    assert world.speeds.of("Qwen/Qwen3-8B") == {said.key: 1.3}
    status = replace(NOTHING_OBSERVED, finding=Finding(findings.HEALTHY, "well"), speed=said).status({}, "now")
    again = World(AT_REST)
    observed = again.observer.observe(KEY, request_, revision, status)
    assert observed.speed == said, "the first look of another operator"
    assert again.speeds.of("Qwen/Qwen3-8B") == {said.key: 1.3}
