"""Workers, sweeps and supervision: one fault never holds up the rest."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from plimsoll.adapters.ports import DEPLOYMENTS, PODS, SERVICES, ForbiddenError, Kind, UnreachableError
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.loop import Loop
from plimsoll.control.supervise import keep_running
from plimsoll.control.sweep import Sweep
from plimsoll.control.workqueue import WorkQueue

A, B = Key("ns", "a"), Key("ns", "b")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> WorkQueue[Key]:
    return WorkQueue(clock)


async def test_an_api_error_is_one_line_and_a_later_try(
    queue: WorkQueue[Key], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Key) -> None:
        raise UnreachableError("503 away", status=503, retry_after_seconds=9)

    await Loop(queue, fail, clock).once(A)
    assert queue.failing(A)
    assert "503 away" in caplog.text
    assert "Traceback" not in caplog.text
    clock.seconds = 9
    assert await queue.get() == A


async def test_a_fault_of_ours_keeps_its_traceback_and_does_not_end_the_loop(
    queue: WorkQueue[Key], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: Key) -> None:
        raise KeyError("oops")

    await Loop(queue, fail, clock).once(A)
    assert queue.failing(A)
    assert "Traceback" in caplog.text


async def test_success_forgets_failures_and_may_ask_for_another_look(queue: WorkQueue[Key], clock: Clock) -> None:
    async def again(_: Key) -> float:
        return 5.0

    queue.retry(A)
    await Loop(queue, again, clock).once(A)
    assert not queue.failing(A)
    clock.seconds = 5
    assert await queue.get() == A


async def test_a_stuck_key_does_not_hold_up_the_others(queue: WorkQueue[Key], clock: Clock) -> None:
    stuck, seen = asyncio.Event(), asyncio.Event()

    async def work(key: Key) -> None:
        if key == A:
            await stuck.wait()
        else:
            seen.set()

    task = asyncio.create_task(Loop(queue, work, clock).run(2))
    queue.add(A)
    queue.add(B)
    async with asyncio.timeout(5):
        await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_looks_that_wait_for_nothing_leave_others_their_turns(queue: WorkQueue[Key], clock: Clock) -> None:
    """Found at 5,000 services: after a sweep no probe was answered for twenty seconds, and no Lease renewed."""
    turns, looked = 0, 0

    async def look(_: Key) -> None:
        nonlocal looked
        looked += 1

    async def take_turns() -> None:
        nonlocal turns
        while looked < 1000:
            turns += 1
            await asyncio.sleep(0)

    for number in range(1000):
        queue.add(Key("ns", f"svc-{number}"))
    working = asyncio.create_task(Loop(queue, look, clock).run(4))
    await take_turns()
    assert turns >= 1000 / 4
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


class Listings:
    """A cluster that can be listed, except for what is forbidden or away."""

    def __init__(
        self, objects: dict[Kind, list[dict[str, Any]]], forbidden: Kind | None = None, away: Kind | None = None
    ) -> None:
        self.objects = objects
        self.forbidden = forbidden
        self.away = away

    async def version(self, *_: object) -> str:
        return "1"

    async def list(self, kind: Kind, namespace: str | None = None, selector: str = "") -> AsyncIterator[dict[str, Any]]:
        assert bool(selector) == (kind is not SERVICES)
        if kind is self.forbidden:
            raise ForbiddenError("pods is forbidden", status=403)
        if kind is self.away:
            raise UnreachableError("503", status=503)
        for obj in self.objects.get(kind, []):
            if namespace in (None, obj["metadata"]["namespace"]):
                yield obj


def _obj(name: str, version: int = 1) -> dict[str, Any]:
    labels = {names.LABEL_SERVICE: name}
    return {"metadata": {"namespace": "ns", "name": name, "resourceVersion": str(version), "labels": labels}}


def _sweep(listings: Listings, cache: Cache, queue: WorkQueue[Key], clock: Clock) -> Sweep:
    return Sweep(listings, cache, queue, (), 600, clock)  # type: ignore[arg-type] # a sweep only lists


async def test_the_first_full_listing_opens_the_gate(queue: WorkQueue[Key], clock: Clock) -> None:
    listings = Listings({SERVICES: [_obj("a")]}, away=PODS)
    sweep = _sweep(listings, Cache(), queue, clock)
    assert not await sweep.once()
    assert not sweep.synced.is_set()
    listings.away = None
    assert await sweep.once()
    assert sweep.synced.is_set()


async def test_a_right_that_is_missing_is_said_and_keeps_the_gate_of_no_other_kind_shut(
    queue: WorkQueue[Key], clock: Clock
) -> None:
    listings = Listings({SERVICES: [_obj("a")]}, forbidden=PODS)
    sweep = _sweep(listings, Cache(), queue, clock)
    assert await sweep.once()
    assert sweep.synced.is_set()
    assert sweep.unlisted(PODS, "ns") == "pods is forbidden"
    assert not sweep.unlisted(DEPLOYMENTS, "ns")
    assert await queue.get() == A
    queue.done(A)
    listings.forbidden = None
    await sweep.listed_since(PODS, None)
    assert not sweep.unlisted(PODS, "ns")
    assert await queue.get() == A  # what was not known of it is known now


async def test_without_the_services_themselves_the_gate_stays_shut(queue: WorkQueue[Key], clock: Clock) -> None:
    sweep = _sweep(Listings({}, forbidden=SERVICES), Cache(), queue, clock)
    assert not await sweep.once()
    assert not sweep.synced.is_set()


async def test_a_kind_that_cannot_be_listed_stops_no_other_and_forgets_nothing(
    queue: WorkQueue[Key], clock: Clock
) -> None:
    cache = Cache()
    cache.put(PODS, _obj("a"))
    listings = Listings({SERVICES: [_obj("b")]}, forbidden=PODS)
    await _sweep(listings, cache, queue, clock).once()
    assert await queue.get() == B
    assert len(cache.pods(A)) == 1


async def test_what_a_listing_no_longer_shows_is_forgotten_and_looked_at(queue: WorkQueue[Key], clock: Clock) -> None:
    cache = Cache()
    cache.put(SERVICES, _obj("a"))
    cache.put(DEPLOYMENTS, {**_obj("a"), "spec": {}})
    await _sweep(Listings({SERVICES: [_obj("a")]}), cache, queue, clock).once()
    assert cache.get(DEPLOYMENTS, "ns", "a") is None
    assert await queue.get() == A


async def test_whoever_takes_over_answers_first_whoever_waits_for_an_answer(
    queue: WorkQueue[Key], clock: Clock
) -> None:
    services = [_obj(name) | {"status": {"observedGeneration": 1}} for name in ("a", "b", "c")]
    for service, generation in zip(services, (1, 1, 2), strict=True):
        service["metadata"]["generation"] = generation
    sweep = _sweep(Listings({SERVICES: services}), Cache(), queue, clock)
    await sweep.once()
    await sweep.take_over(0.0)
    assert [(await queue.get()).name for _ in services] == ["c", "a", "b"]


async def test_a_part_that_ends_with_a_fault_is_started_again(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    waits: list[float] = []

    async def no_sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    runs, restarts = 0, 0

    async def part() -> None:
        nonlocal runs
        runs += 1
        if runs <= 7:
            raise ConnectionError("gone")

    def restarted() -> None:
        nonlocal restarts
        restarts += 1

    await keep_running("part", part, restarted, clock)
    assert (runs, restarts) == (8, 7)
    assert waits == [1, 2, 5, 10, 20, 30, 30]
