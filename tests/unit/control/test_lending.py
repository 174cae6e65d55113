"""The count of a fleet that lends replicas: one owner, one history, and the same after a restart at any moment."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from plimsoll.control.beginnings import Beginnings
from plimsoll.control.situation import Situation
from plimsoll.control.sized_fleet import Fleet
from plimsoll.core.autoscaler import Autoscaler
from plimsoll.core.capacity import Room
from plimsoll.core.loan import NOTHING_LENT, Lender, Lent, Loan
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.sizing import Size
from tests.unit.control.test_scaler import AT, KEY, TICK, World, request_of, revision

__all__ = ["revision"]

LOAN = Loan(1, 4)
OUT, BACK = Lent(LOAN, holds=True, trying=True), Lent(LOAN, trying=True)


@dataclass
class Lending(World):
    lent: Lent = NOTHING_LENT

    def fleet(self) -> Fleet:
        return replace(super().fleet(), lent=self.lent)


@pytest.fixture
def world(revision: Revision) -> Lending:
    """Four replicas that demand once asked for, and that were watched for long enough to shrink."""
    found = Lending(revision, live=4, usage=0.7)
    found.decisions = [{"kind": "Scale", "reason": "MoreDemand", "to": "4", "time": AT}]
    for _ in range(int(600 / TICK) + 2):
        found.tick()
    assert found.live == 4
    return found


def needed(size: Size) -> int | None:
    assert size.lender is not None
    return size.lender.needed


def test_what_is_lent_is_left_out_and_comes_back(world: Lending) -> None:
    world.lent, world.usage = OUT, 0.3
    for _ in range(60):
        size = world.tick()
        assert (size.replicas, world.live, size.entries) == (3, 3, ())
        assert size.lender is not None
        assert size.lender.replicas == 4
    assert "1 of 4 replicas is lent to an experiment" in str((size.scaling or {})["why"])
    world.lent = BACK
    assert world.tick().replicas == 4


@pytest.mark.parametrize("live", [4, 3])
@pytest.mark.parametrize(("lent", "runs"), [(OUT, 3), (BACK, 4)])
def test_a_restart_between_any_two_writes_changes_nothing(world: Lending, live: int, lent: Lent, runs: int) -> None:
    world.live, world.lent, world.scaler = live, lent, world.fresh()
    size = world.reconcile()
    assert size.lender is not None
    assert (size.replicas, size.lender.replicas, size.entries) == (runs, 4, ())


def test_the_time_of_an_experiment_is_no_quiet_time(world: Lending) -> None:
    """While canary and control take a part of the traffic the fleet's own pods have less to do."""
    world.lent, world.usage = OUT, 0.01
    for _ in range(100):
        world.tick()
    world.lent = NOTHING_LENT
    for _ in range(int(600 / TICK) - 1):
        assert world.tick().replicas == 4
    for _ in range(3):
        world.tick()
    assert (world.live or 0) < 4


def test_demand_that_grows_waits_for_the_pods_of_the_experiment_and_no_longer(world: Lending) -> None:
    world.lent, world.usage, world.waiting = OUT, 1.0, 60.0
    size = world.tick()
    assert size.replicas == 3
    assert size.lender is not None
    grown = size.lender.replicas
    assert grown > 4
    world.lent = BACK
    assert world.reconcile().replicas == grown


def test_demand_is_counted_as_if_the_fleet_alone_served(world: Lending) -> None:
    world.lent, world.running, world.usage = OUT, 0.0, 0.6
    world.tick()
    alone = needed(world.tick())
    world.lent = replace(OUT, measuring=True)
    assert alone == 3
    assert needed(world.tick()) == 4, "three of the five pods that share the traffic: 5/3 as much"


def test_what_is_not_known_is_not_lent(world: Lending) -> None:
    assert needed(world.tick()) is not None
    world.usage = None
    assert needed(world.tick()) is None


def test_a_fleet_as_planned_stays_ready_until_what_was_lent_serves_again(revision: Revision) -> None:
    world = Lending(revision, live=4, request=request_of(scaling={"mode": "Auto", "minReplicas": 4}))
    world.decisions = [{"kind": "Scale", "reason": "Planned", "to": "4", "time": AT}]
    assert world.tick().floor == 4
    world.lent = OUT
    assert (world.tick().replicas, world.reconcile().floor) == (3, 3)
    world.lent = BACK
    assert (world.tick().replicas, world.reconcile().floor) == (4, 3)


@pytest.mark.parametrize(
    ("spec", "other", "whose"),
    [
        ({"scaling": {"mode": "Fixed"}, "replicas": 4}, None, "spec.scaling.mode is Fixed"),
        ({"scaling": {"mode": "External"}, "replicas": 4}, None, "spec.scaling.mode is External"),
        ({}, Autoscaler("HorizontalPodAutoscaler", "chat"), "HorizontalPodAutoscaler"),
    ],
)
def test_only_our_own_count_is_lent_from(world: Lending, spec: Any, other: Any, whose: str) -> None:
    world.ask(**spec)
    world.other = other
    size = world.tick()
    assert size.lender is not None
    assert whose in size.lender.theirs


def test_leaving_auto_the_floor_is_the_whole_fleet(revision: Revision) -> None:
    world = Lending(revision, live=3, now=0.0, lent=OUT)
    world.decisions = [{"kind": "Scale", "reason": "MoreDemand", "to": "4", "time": AT}]
    assert world.tick().replicas == 3
    world.ask(scaling={"mode": "Fixed"}, replicas=1)
    size = world.tick()
    assert size.replicas == 3, "canary and control are still there"
    assert size.lender is not None
    assert size.lender.replicas == 4
    world.lent = BACK
    assert world.tick().replicas == 4


def test_another_autoscaler_finds_its_own_count(world: Lending) -> None:
    world.lent, world.other, world.live, world.by_us = OUT, Autoscaler("HorizontalPodAutoscaler", "chat"), 3, False
    size = world.tick()
    assert not size.ours
    assert size.lender is not None
    assert size.lender.replicas == 3


# Whether there is room.


@dataclass
class Nodes:
    """Free GPUs; None: nobody may look."""

    free: int | None

    async def room(self, _needs: Any, _pods: int) -> Room | None:
        return None if self.free is None else Room(fits=self.free)


@pytest.mark.parametrize(
    ("allowed", "free", "needs", "expect"),
    [
        pytest.param(6, 2, 9, None, id="two are spare"),
        pytest.param(8, 5, 9, None, id="many are spare"),
        pytest.param(5, 9, 2, Loan(1, 4), id="maxGPUs has one to spare"),
        pytest.param(4, 9, 2, Loan(2, 4), id="maxGPUs has none to spare"),
        pytest.param(8, 1, 2, Loan(1, 4), id="the cluster has one to spare"),
        pytest.param(8, 0, 2, Loan(2, 4), id="the cluster has none to spare"),
        pytest.param(5, 0, 2, Loan(2, 4), id="the scarcer of both counts"),
        pytest.param(8, None, 2, Loan(2, 4), id="nobody may look: only what the fleet leaves is known to be free"),
        pytest.param(5, 9, 4, "would make 6 GPUs, hardware.maxGPUs is 5; with 1 replica lent 3 would be", id="busy"),
        pytest.param(8, 1, 4, "free GPUs for 1 of the two pods it needs; with 1 replica lent 3 would", id="busy, full"),
        pytest.param(8, None, 4, "may not look at nodes, so no GPU counts as free; with 2", id="busy, unseen"),
    ],
)
async def test_what_makes_room(
    revision: Revision, allowed: int, free: int | None, needs: int, expect: Loan | str | None
) -> None:
    seen = Situation(
        key=KEY,
        request=request_of(hardware={"gpu": "NVIDIA-L40S", "maxGPUs": allowed}),
        target=revision,
        live={},
        pods=(),
        replicas=4,
        at_rest=True,
        changes=False,
        busy="",
        advice=None,
        finding="",
        known=True,
        late=False,
        lent=NOTHING_LENT,
        lender=Lender(4, needed=needs),
        given=4,
        ready=4,
        there=4,
        placed=True,
    )
    beginnings = Beginnings(Nodes(free), None, lambda: 0.0)  # type: ignore[arg-type]
    found = await beginnings.room(seen, revision)
    assert expect in found if isinstance(expect, str) and isinstance(found, str) else found == expect
