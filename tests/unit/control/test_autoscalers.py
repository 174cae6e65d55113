"""Finding whoever else scales before their count is answered with a repair."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from plimsoll.adapters.ports import SERVICES, ForbiddenError, Kind, UnreachableError
from plimsoll.control.autoscalers import AGAIN_SECONDS, Autoscalers
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.autoscaler import Autoscaler
from plimsoll.core.manifests.workload import workloads

KEY = Key("llm", "svc")


def hpa(name: str = "theirs", kind: str = "Deployment", owner: str = "") -> dict[str, Any]:
    owners = [{"kind": "ScaledObject", "name": owner}] if owner else []
    meta = {"name": name, "namespace": "llm", "ownerReferences": owners}
    return {"metadata": meta, "spec": {"scaleTargetRef": {"kind": kind, "name": "svc"}}}


class World:
    """A cluster with autoscalers, and a clock."""

    def __init__(self) -> None:
        self.now, self.listed = 100.0, 0
        self.found: list[Mapping[str, Any]] = []
        self.fault: Exception | None = None
        cache = Cache()
        cache.put(SERVICES, {"metadata": {"namespace": "llm", "name": "svc"}})
        self.queue: WorkQueue[Key] = WorkQueue(lambda: self.now)
        self.autoscalers = Autoscalers(self, cache, self.queue, (), lambda: self.now)  # type: ignore[arg-type]

    async def list(self, _kind: Kind, _namespace: str | None) -> AsyncIterator[Mapping[str, Any]]:
        self.listed += 1
        if self.fault is not None:
            raise self.fault
        for each in self.found:
            yield each

    async def who(self, edited: int | None = None) -> Autoscaler | None:
        return await self.autoscalers.of(workloads(KEY.name)[0], KEY, edited)


@pytest.fixture
def world() -> World:
    return World()


async def test_an_edit_is_judged_by_a_listing_that_is_newer_than_it(world: World) -> None:
    assert await world.who(3) is None
    assert await world.who() is None
    world.found = [hpa()]
    world.now += 0.01
    assert await world.who(3) == Autoscaler("HorizontalPodAutoscaler", "theirs")
    assert world.listed == 2


async def test_another_count_is_another_edit(world: World) -> None:
    assert await world.who(1) is None
    world.found = [hpa()]
    world.now += 0.01
    assert await world.who(3) == Autoscaler("HorizontalPodAutoscaler", "theirs")


async def test_an_edit_that_stays_asks_now_and_then(world: World) -> None:
    for _ in range(100):
        await world.who(3)
        world.now += 0.1
    assert world.listed <= 1 + 10 / AGAIN_SECONDS


@pytest.mark.parametrize("fault", [ForbiddenError("no"), UnreachableError("later")], ids=["forbidden", "unreachable"])
async def test_who_was_known_stays_known_while_nobody_may_look(world: World, fault: Exception) -> None:
    world.found = [hpa(owner="queue")]
    assert await world.who(3) == Autoscaler("ScaledObject", "queue")
    world.fault = fault
    world.now += 60
    assert await world.who(3) == Autoscaler("ScaledObject", "queue")


async def test_one_on_the_service_itself_is_no_rival(world: World) -> None:
    world.found = [hpa(kind="VLLMService")]
    assert await world.who(3) is None


async def test_services_whose_autoscaler_comes_or_goes_are_looked_at(world: World) -> None:
    world.found = [hpa()]
    await world.who(3)
    assert await world.queue.get() == KEY
    world.queue.done(KEY)
    world.found = []
    world.now += 60
    assert await world.who(3) is None
    assert len(world.queue) == 1
