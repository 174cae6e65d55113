"""One tick for all services: bounded queries, views of one's own pods, and never an old view for a new one."""

from typing import Any

import pytest

from plimsoll.adapters.ports import PODS, SERVICES
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.sampler import Asking, Sampler
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.sampling import Answer, Fault, Series
from plimsoll.core.signals import Signal

KEY = Key("llm", "docs")
MOST_QUERIES = 12


def ready(name: str, service: str = "docs", *, is_ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "llm",
            "uid": f"uid-{name}",
            "labels": {names.LABEL_SERVICE: service, names.LABEL_TRACK: names.TRACK_MAIN},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
            "containerStatuses": [{"name": "vllm", "ready": is_ready, "state": {"running": {}}}],
        },
    }


class World:
    """A cache, a queue, a clock and a Prometheus that scrapes the pods in ``scraped``."""

    def __init__(self) -> None:
        self.now = 100.0
        self.cache = Cache()
        self.queue: WorkQueue[Key] = WorkQueue(lambda: self.now)
        self.asked: list[str] = []
        self.scraped = ["a"]
        self.fault: Fault | None = None
        self.sampler = Sampler(self, self.cache, self.queue, lambda: self.now, Asking())
        self.service()

    def service(self, name: str = "docs", **parts: Any) -> None:
        self.cache.put(SERVICES, {"metadata": {"name": name, "namespace": "llm"}, "spec": {}, **parts})

    async def query(self, text: str) -> Answer | Fault:
        self.asked.append(text)
        if self.fault:
            return self.fault
        if "up{" in text:
            return Answer(tuple(Series(self.labels(pod), 1.0) for pod in self.scraped))
        if text.startswith("time()"):
            return Answer(tuple(Series(self.labels(pod), 1.0) for pod in self.scraped))
        signals = [signal for signal in Signal if f'"{signal.name}"' in text]
        return Answer(tuple(Series(self.labels(p, signal=s.name), 0.5) for p in self.scraped for s in signals))

    def labels(self, pod: str, **more: str) -> dict[str, str]:
        return {"namespace": "llm", "pod": pod, "engine": "0", **more}

    async def tick(self) -> None:
        await self.sampler.tick(self)
        self.now += 15


@pytest.fixture
def world() -> World:
    return World()


async def test_without_a_look_there_is_nothing(world: World) -> None:
    assert world.sampler.look(KEY) is None


async def test_a_fleet_is_seen_at_the_moment_it_was_sampled(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    await world.tick()
    look = world.sampler.look(KEY)
    assert look is not None
    assert look.at_seconds == 100.0
    assert look.view.complete
    assert look.view.total(Signal.WAITING).value == 0.5


@pytest.mark.parametrize("services", [1, 40])
async def test_queries_do_not_grow_with_services(world: World, services: int) -> None:
    for index in range(services):
        world.service(f"s{index}")
        world.cache.put(PODS, ready(f"p{index}", f"s{index}"))
    await world.tick()
    assert len(world.asked) <= MOST_QUERIES


@pytest.mark.parametrize(
    ("pod", "lined_up"),
    [
        pytest.param(ready("a"), True, id="serves"),
        pytest.param(ready("a", is_ready=False), True, id="loads"),
        pytest.param(None, False, id="no pods"),
    ],
)
async def test_services_that_run_are_put_in_line(world: World, pod: dict[str, Any] | None, lined_up: bool) -> None:
    if pod:
        world.cache.put(PODS, pod)
    await world.tick()
    assert bool(len(world.queue)) is lined_up


async def test_a_service_that_has_stopped_is_looked_at_once_more(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    await world.tick()
    world.cache.drop(PODS, ready("a"))
    lined_up = []
    for _ in range(3):
        while len(world.queue):
            world.queue.done(await world.queue.get())
        await world.tick()
        lined_up.append(len(world.queue))
    assert lined_up == [1, 0, 0]


async def test_targets_are_asked_about_only_when_something_is_missing(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    await world.tick()
    assert not any("up{" in text for text in world.asked)
    world.cache.put(PODS, ready("b"))
    await world.tick()
    assert [text for text in world.asked if "up{" in text] == ['max by (namespace, pod) (up{pod=~"b"})']
    sampling = world.sampler.newest
    assert sampling is not None
    assert sampling.scraped == {("llm", "a"): True}  # and of b there is nothing


async def test_a_fault_makes_all_unknown_and_the_next_answer_makes_it_known(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    world.fault = Fault("unreachable", "down")
    await world.tick()
    look = world.sampler.look(KEY)
    assert look is not None
    assert (look.view.error, look.view.complete) == ("down", False)
    world.fault = None
    await world.tick()
    look = world.sampler.look(KEY)
    assert look is not None
    assert look.view.complete


async def test_a_view_that_nobody_renews_is_no_view(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    await world.tick()
    world.now += 60
    look = world.sampler.look(KEY)
    assert look is not None
    assert not look.view.complete
    assert look.view.total(Signal.WAITING).value is None


async def test_a_pod_is_as_old_as_its_readiness_was_watched(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    await world.tick()
    await world.tick()
    look = world.sampler.look(KEY)
    assert look is not None
    assert look.view.pods[0].ready_seconds == 15


async def test_targets_of_a_service_decide_which_percentile_is_asked_for(world: World) -> None:
    world.cache.put(PODS, ready("a"))
    await world.tick()
    world.service(spec={"slo": {"percentile": 99}})
    world.sampler.look(KEY)
    world.asked.clear()
    await world.tick()
    assert any("histogram_quantile(0.99" in text for text in world.asked)


async def test_data_parallel_ranks_that_do_not_show_are_missing(world: World) -> None:
    world.service(status={"plan": {"choice": {"enginesPerReplica": 2}}})
    world.cache.put(PODS, ready("a"))
    await world.tick()
    look = world.sampler.look(KEY)
    assert look is not None
    assert not look.view.complete
