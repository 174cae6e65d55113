"""Nodes and pods are listed when asked, briefly remembered, and no more of them than needed."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from plimsoll.adapters.ports import NODES, ForbiddenError, Kind
from plimsoll.control.survey import AT_ONCE, FORBIDDEN_SECONDS, FRESH_SECONDS, Survey
from plimsoll.core.placement import Needs, read_needs
from plimsoll.core.plan.inventory import Inventory, Stock

H100 = "NVIDIA-H100-80GB-HBM3"


class Cluster:
    """Nodes with eight GPUs each, of which ``taken`` are in use; ``forbidden`` refuses every listing."""

    def __init__(self, nodes: int, taken: int) -> None:
        self.nodes, self.taken, self.forbidden = nodes, taken, False
        self.asked: Counter[str] = Counter()

    async def list(
        self, kind: Kind, namespace: str | None = None, selector: str = "", fields: str = ""
    ) -> AsyncIterator[Mapping[str, Any]]:
        assert namespace is None
        if self.forbidden:
            raise ForbiddenError("nodes is forbidden")
        self.asked[f"{kind.plural} {selector}{fields}"] += 1
        for item in _nodes(self.nodes) if kind is NODES else _pods(self.taken):
            yield item


def _nodes(count: int) -> list[dict[str, Any]]:
    amounts = {"nvidia.com/gpu": "8", "pods": "110"}
    status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"nvidia.com/gpu.product": H100}
    return [{"metadata": {"name": f"n{i}", "labels": labels}, "status": status} for i in range(count)]


def _pods(count: int) -> list[dict[str, Any]]:
    spec = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    return [{"spec": spec, "status": {"phase": "Running"}}] * count


class World:
    """A survey of a cluster on a clock that stands until told."""

    def __init__(self, nodes: int, taken: int, grow_to: int | None = None) -> None:
        self.cluster, self.seconds = Cluster(nodes, taken), 0.0
        inventory = Inventory({H100: Stock(grow_to=grow_to)})
        self.survey = Survey(self.cluster, lambda: self.seconds, lambda: inventory)  # type: ignore[arg-type]


@pytest.fixture
def needs() -> Needs:
    container = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return read_needs({"nodeSelector": {"nvidia.com/gpu.product": H100}, "containers": [container]})


async def test_only_nodes_of_the_product_and_their_pods_are_listed(needs: Needs) -> None:
    world = World(nodes=2, taken=8)
    room = await world.survey.room(needs)
    assert room is not None
    assert (room.fits, room.gpus_taken) == (0, 16)
    assert sorted(world.cluster.asked) == [
        f"nodes nvidia.com/gpu.product={H100}", "pods spec.nodeName=n0", "pods spec.nodeName=n1"
    ]  # fmt: skip


async def test_what_was_just_listed_is_not_listed_again(needs: Needs) -> None:
    world = World(nodes=1, taken=0)
    await world.survey.room(needs)
    world.seconds = FRESH_SECONDS
    await world.survey.room(needs)
    assert set(world.cluster.asked.values()) == {1}
    world.seconds += 1
    await world.survey.room(needs)
    assert set(world.cluster.asked.values()) == {2}


async def test_with_room_on_the_first_nodes_the_others_are_not_asked(needs: Needs) -> None:
    world = World(nodes=10 * AT_ONCE, taken=7)
    room = await world.survey.room(needs)
    assert room is not None
    assert room.fits
    assert len(world.cluster.asked) == 1 + AT_ONCE


async def test_who_may_not_look_knows_nothing_and_does_not_ask_all_the_time(needs: Needs) -> None:
    world = World(nodes=1, taken=0)
    world.cluster.forbidden = True
    assert await world.survey.room(needs) is None
    world.cluster.forbidden = False
    assert await world.survey.room(needs) is None
    world.seconds = FORBIDDEN_SECONDS
    assert await world.survey.room(needs) is not None


@pytest.mark.parametrize(("grow_to", "more"), [(None, None), (16, 8), (8, 0), (4, 0)])
async def test_what_may_be_added_on_demand(needs: Needs, grow_to: int | None, more: int | None) -> None:
    world = World(nodes=1, taken=8, grow_to=grow_to)
    room = await world.survey.room(needs)
    assert world.survey.on_demand(needs, room) == more
    assert world.survey.on_demand(needs, None) is None
