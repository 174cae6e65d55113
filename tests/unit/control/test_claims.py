"""Serving by class and claim: what is written, what is looked at, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from plimsoll.adapters.ports import SERVICES, ForbiddenError, UnreachableError
from plimsoll.control.cache import Cache, Key
from plimsoll.control.claims import LOOK_SECONDS, RECHECK_SECONDS, Claims
from plimsoll.core.claims import GONE_SECONDS, UNANSWERED_SECONDS
from plimsoll.core.election import Term

ME, OTHER = "plimsoll-system/plimsoll", "team/plimsoll"
KEY = Key("ns", "svc")


@dataclass
class Rival:
    """The Lease of another install."""

    answer: Term | Exception | None = None
    looks: int = 0

    async def read(self) -> tuple[Term | None, str]:
        self.looks += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer, "1"

    async def write(self, *_: object) -> None:
        raise AssertionError("nobody writes another install's Lease")


@dataclass
class World:
    """One service, one rival, and what was done about them."""

    rival: Rival = field(default_factory=Rival)
    now: float = 1000.0
    done: list[str] = field(default_factory=list)
    cache: Cache = field(default_factory=Cache)
    version: int = 0

    def put(self, claim: str = "", *, operator_class: str = "", generation: int = 1, observed: int = 1) -> None:
        self.version += 1
        spec = {"className": operator_class} if operator_class else {}
        status = {"observedGeneration": observed} | ({"servedBy": claim} if claim else {})
        meta = {**KEY._asdict(), "resourceVersion": str(self.version), "generation": generation}
        self.cache.put(SERVICES, {"metadata": meta, "spec": spec, "status": status})

    def claims(self) -> Claims:
        async def serve(_key: Key) -> float | None:
            self.done.append("serve")
            return None

        return Claims(self.cache, self, "", ME, lambda _: self.rival, serve, lambda: self.now)  # type: ignore[arg-type]

    async def claim(self, _service: Mapping[str, Any]) -> None:
        self.done.append("claim")

    async def release(self, _service: Mapping[str, Any]) -> None:
        self.done.append("release")

    def forget(self, _key: Key) -> None:
        pass


@pytest.fixture
def world() -> World:
    return World()


async def test_ours_is_served_without_a_look_at_anybody(world: World) -> None:
    world.put(ME)
    assert await world.claims().reconcile(KEY) is None
    assert (world.done, world.rival.looks) == (["serve"], 0)


async def test_a_living_rivals_service_is_left_alone_and_it_is_said_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put(OTHER)
    claims = world.claims()
    for second in range(120):
        world.rival.answer = Term("pod", 15, "", f"renewed {second}")
        assert await claims.reconcile(KEY) == RECHECK_SECONDS
        world.now += 1
    assert world.done == []
    assert world.rival.looks <= 120 / LOOK_SECONDS + 1
    assert caplog.text.count("yields") == 1
    assert OTHER in caplog.text


async def test_a_rival_that_is_gone_is_followed_claim_first(world: World) -> None:
    world.put(OTHER)
    claims = world.claims()
    await claims.reconcile(KEY)
    world.now += GONE_SECONDS
    assert await claims.reconcile(KEY) == 0.0
    assert world.done == ["claim"], "not before it is written that we act"
    world.put(ME)
    await claims.reconcile(KEY)
    assert world.done == ["claim", "serve"]


async def test_an_outage_is_no_proof_of_death(world: World) -> None:
    world.put(OTHER)
    world.rival.answer = UnreachableError("503", status=503)
    claims = world.claims()
    for _ in range(20):
        await claims.reconcile(KEY)
        world.now += GONE_SECONDS
    assert world.done == []


async def test_a_rival_we_may_not_look_at_is_followed_once_it_leaves_a_change_unanswered(world: World) -> None:
    world.put(OTHER)
    world.rival.answer = ForbiddenError("403", status=403)
    claims = world.claims()
    for _ in range(10):
        await claims.reconcile(KEY)
        world.now += GONE_SECONDS
    assert world.done == []
    world.put(OTHER, generation=2, observed=1)
    await claims.reconcile(KEY)
    world.now += UNANSWERED_SECONDS
    await claims.reconcile(KEY)
    assert world.done == ["claim"]


async def test_a_change_of_class_is_a_release_and_then_no_business_of_ours(world: World) -> None:
    world.put(ME, operator_class="blue")
    claims = world.claims()
    await claims.reconcile(KEY)
    world.put("", operator_class="blue")
    await claims.reconcile(KEY)
    assert world.done == ["release"]


async def test_a_service_that_vanished_is_the_reconcilers_to_forget(world: World) -> None:
    await world.claims().reconcile(KEY)
    assert world.done == ["serve"]
