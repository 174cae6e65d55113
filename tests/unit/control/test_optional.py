"""Optional kinds come, go, are forbidden or broken: each for itself, without a restart."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import pytest

from plimsoll.adapters.ports import (
    INFERENCE_POOLS,
    LEADER_WORKER_SETS,
    POD_MONITORS,
    SERVICES,
    Change,
    ClusterError,
    ForbiddenError,
    Kind,
    NotFoundError,
    UnreachableError,
)
from plimsoll.api import names
from plimsoll.control import optional
from plimsoll.control.cache import Cache, Key
from plimsoll.control.optional import OptionalKinds
from plimsoll.control.sweep import Sweep
from plimsoll.control.workqueue import WorkQueue

A = Key("ns", "a")
LWS, MONITORS, POOLS = (kind.kind for kind in (LEADER_WORKER_SETS, POD_MONITORS, INFERENCE_POOLS))


class World:
    """A cluster of which a test says what is served and what each listing answers."""

    def __init__(self) -> None:
        self.served: set[Kind] | ClusterError = set()
        self.answers: dict[tuple[Kind, str | None], ClusterError] = {}
        self.objects: dict[Kind, list[dict[str, Any]]] = {}
        self.watching: set[tuple[Kind, str | None]] = set()

    async def which_served(self, kinds: Collection[Kind]) -> frozenset[Kind]:
        if isinstance(self.served, ClusterError):
            raise self.served
        return frozenset(self.served & set(kinds))

    async def version(self, kind: Kind, namespace: str | None = None) -> str:
        if (kind, namespace) in self.answers:
            raise self.answers[kind, namespace]
        return "1"

    async def list(self, kind: Kind, *_: object) -> AsyncIterator[Mapping[str, Any]]:
        for obj in self.objects.get(kind, ()):
            yield obj

    async def watch(self, kind: Kind, namespace: str | None, *_: object) -> AsyncIterator[Change]:
        self.watching.add((kind, namespace))
        try:
            await asyncio.Event().wait()
            yield Change(deleted=False, object={})
        finally:
            self.watching.discard((kind, namespace))


def _obj(**fields: Any) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": "a", "resourceVersion": "1", "labels": {names.LABEL_SERVICE: "a"}}
    return {"metadata": meta, **fields}


class Rig:
    """OptionalKinds, polled when the test says so."""

    def __init__(self, world: World, namespaces: tuple[str, ...] = ()) -> None:
        self.world, self.cache, self.queue = world, Cache(), WorkQueue[Key](lambda: 0.0)
        sweep = Sweep(world, self.cache, self.queue, namespaces, 600, lambda: 0.0)  # type: ignore[arg-type]
        sweep.synced.set()
        self.kinds = OptionalKinds(world, self.cache, self.queue, sweep, namespaces, 20.0)  # type: ignore[arg-type]
        self.cache.put(SERVICES, _obj())

    async def poll(self, group: asyncio.TaskGroup) -> None:
        await self.kinds._poll(group)
        await _settle()

    def access(self, kind: str, namespace: str = "ns") -> str:
        return self.kinds.of(namespace).of(kind).access

    def woken(self) -> bool:
        """Whether services were put in line since the last question."""
        had = len(self.queue) > 0
        self.queue = self.kinds.queue = WorkQueue[Key](lambda: 0.0)
        return had


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optional, "RETRY_SECONDS", 0)


Play = Callable[[Rig, asyncio.TaskGroup], Any]


async def _play(play: Play, *, namespaces: tuple[str, ...] = ()) -> Rig:
    """Run a test's steps; whatever still watches ends with them."""
    rig = Rig(World(), namespaces)
    async with asyncio.TaskGroup() as group:
        await play(rig, group)
        for task in rig.kinds._following.values():
            task.cancel()
    return rig


async def test_a_cluster_without_any_of_them_is_known_as_such_and_nothing_is_watched() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        await rig.poll(group)
        assert rig.kinds.known.is_set()
        assert {rig.access(kind) for kind in (LWS, MONITORS, POOLS)} == {"absent"}
        assert not rig.world.watching

    await _play(play)


async def test_a_kind_comes_and_goes_and_services_are_looked_at_each_time() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        await rig.poll(group)
        rig.woken()
        rig.world.served = {LEADER_WORKER_SETS}
        rig.world.objects[LEADER_WORKER_SETS] = [_obj(spec={})]
        await rig.poll(group)
        assert rig.access(LWS) == "usable"
        assert rig.world.watching == {(LEADER_WORKER_SETS, None)}
        assert rig.cache.get(LEADER_WORKER_SETS, "ns", "a")
        assert rig.woken()
        rig.world.served = set()
        await rig.poll(group)
        assert rig.access(LWS) == "absent"
        assert not rig.world.watching
        assert rig.cache.get(LEADER_WORKER_SETS, "ns", "a") is None
        assert rig.woken()

    await _play(play)


async def test_polling_what_does_not_change_wakes_nobody_and_starts_no_second_watch() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = {POD_MONITORS}
        await rig.poll(group)
        task = dict(rig.kinds._following)
        rig.woken()
        await rig.poll(group)
        assert not rig.woken()
        assert rig.kinds._following == task

    await _play(play)


async def test_a_403_on_one_kind_leaves_the_others_and_ends_when_the_right_is_granted() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = {LEADER_WORKER_SETS, POD_MONITORS}
        rig.world.answers[POD_MONITORS, None] = ForbiddenError("podmonitors is forbidden", status=403)
        await rig.poll(group)
        assert rig.kinds.known.is_set()
        assert (rig.access(LWS), rig.access(MONITORS)) == ("usable", "forbidden")
        assert "podmonitors.monitoring.coreos.com" in rig.kinds.of("ns").of(MONITORS).why
        rig.woken()
        await rig.poll(group)
        assert not rig.woken(), "the same refusal is no news"
        del rig.world.answers[POD_MONITORS, None]
        await rig.poll(group)
        assert rig.access(MONITORS) == "usable"

    await _play(play)


async def test_a_broken_kind_does_not_hold_up_the_operator() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = {LEADER_WORKER_SETS}
        rig.world.answers[LEADER_WORKER_SETS, None] = UnreachableError("500 conversion webhook", status=500)
        await rig.poll(group)
        assert rig.kinds.known.is_set()
        assert rig.access(LWS) == "unreadable"
        assert "conversion webhook" in rig.kinds.of("ns").of(LWS).why
        del rig.world.answers[LEADER_WORKER_SETS, None]
        await _settle()
        assert rig.access(LWS) == "usable"

    await _play(play)


async def test_an_api_server_that_does_not_answer_changes_nothing() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = UnreachableError("no answer")
        await rig.poll(group)
        assert not rig.kinds.known.is_set(), "no answer is not an answer"
        rig.world.served = {LEADER_WORKER_SETS}
        await rig.poll(group)
        rig.world.served = UnreachableError("no answer")
        await rig.poll(group)
        assert rig.access(LWS) == "usable"

    await _play(play)


async def test_without_the_right_to_ask_the_operator_goes_on_without_optional_kinds() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = ForbiddenError("403 discovery", status=403)
        await rig.poll(group)
        assert rig.kinds.known.is_set()
        assert rig.access(LWS) == "forbidden"

    await _play(play)


async def test_a_kind_gone_between_two_polls_is_absent_at_once_and_asked_for_again() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = {INFERENCE_POOLS}
        rig.world.answers[INFERENCE_POOLS, None] = NotFoundError("404", status=404)
        await rig.poll(group)
        assert rig.access(POOLS) == "absent"
        del rig.world.answers[INFERENCE_POOLS, None]
        await rig.poll(group)
        assert rig.access(POOLS) == "usable"

    await _play(play)


async def test_rights_are_told_apart_by_namespace_when_the_operator_serves_a_list_of_them() -> None:
    async def play(rig: Rig, group: asyncio.TaskGroup) -> None:
        rig.world.served = {LEADER_WORKER_SETS}
        rig.world.answers[LEADER_WORKER_SETS, "b"] = ForbiddenError("forbidden", status=403)
        await rig.poll(group)
        assert (rig.access(LWS, "a"), rig.access(LWS, "b")) == ("usable", "forbidden")
        assert "namespace b" in rig.kinds.of("b").of(LWS).why

    await _play(play, namespaces=("a", "b"))


async def test_the_end_of_the_operator_ends_every_watch() -> None:
    rig = Rig(World())
    rig.world.served = {LEADER_WORKER_SETS, POD_MONITORS, INFERENCE_POOLS}
    running = asyncio.create_task(rig.kinds.run())
    async with asyncio.timeout(5):
        await rig.kinds.known.wait()
    await _settle()
    assert len(rig.world.watching) == 3
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not rig.world.watching
