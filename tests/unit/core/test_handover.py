"""From one kind of workload to the other: within the GPU budget, the old fleet serving, never stuck in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.handover import NOWHERE_SECONDS, Handover, Wish, decide
from plimsoll.core.live import LiveFleet, read_live
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.workload import workload
from tests.unit.core.manifests import several


def _old(replicas: int, gpus: int) -> LiveFleet:
    container = {"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    template = {"spec": {"containers": [container]}}
    return LiveFleet(replicas, replicas, replicas, replicas, seen=True, template=template)


def _counts(found: Handover) -> tuple[int, int | None]:
    return found.replicas, found.old_replicas


@pytest.mark.parametrize(
    ("old", "wish", "ready", "expect"),
    [
        pytest.param(_old(2, 4), Wish(2, 16, 40), 0, (2, 2), id="room for all: both run"),
        pytest.param(_old(2, 4), Wish(2, 16, 40), 1, (2, 2), id="not all serve yet: the old one stays"),
        pytest.param(_old(2, 4), Wish(2, 16, 40), 2, (2, None), id="all serve: the old one goes"),
        pytest.param(_old(2, 4), Wish(2, 16, 24), 0, (1, 2), id="room for one: it starts beside"),
        pytest.param(_old(2, 4), Wish(2, 16, 24), 1, (2, None), id="what fits serves: the rest follows"),
        pytest.param(_old(4, 4), Wish(1, 16, 24), 0, (0, 2), id="no room: the old one shrinks as far as needed"),
        pytest.param(_old(4, 8), Wish(1, 16, 24), 0, (0, 1), id="no room: all but one of the old give way"),
        pytest.param(_old(20, 1), Wish(1, 16, 24), 0, (0, 8), id="as many GPUs as the new one needs, and no more"),
        pytest.param(_old(1, 16), Wish(4, 1, 16), 4, (4, None), id="maxGPUs shrank, and the new one serves already"),
        pytest.param(_old(1, 8), Wish(0, 16, 16), 0, (0, None), id="parked: nothing has to serve"),
        pytest.param(_old(1, 8), Wish(1, 16, 16, may_stop=True), 0, (1, None), id="no room, the user may be cut off"),
    ],
)
def test_the_next_step(old: LiveFleet, wish: Wish, ready: int, expect: tuple[int, int | None]) -> None:
    assert _counts(decide(old, wish, ready=ready)) == expect


def test_without_any_room_it_says_what_would_do_and_stops_nothing_unasked() -> None:
    found = decide(_old(2, 8), Wish(1, 16, 16), ready=0)
    assert _counts(found) == (0, 2)
    assert found.waiting is not None
    assert (found.waiting.reason, found.waiting.lasting) == ("NoSpareGPU", True)
    assert "24 would do" in found.waiting.message, "a new replica beside one of the old"


@pytest.mark.parametrize(("may_stop", "expect"), [(False, (1, 1)), (True, (1, None))])
def test_pods_that_find_no_node_beside_the_old_fleet(may_stop: bool, expect: tuple[int, int | None]) -> None:
    wish = Wish(1, 16, 24, may_stop=may_stop)
    assert _counts(decide(_old(1, 8), wish, ready=0, unplaced_seconds=NOWHERE_SECONDS)) == expect


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 4), st.integers(1, 32), st.integers(0, 64))
def test_it_ends_with_the_new_fleet_or_says_why_and_never_takes_more_than_allowed(
    replicas: int, old_gpus: int, wanted: int, new_gpus: int, spare: int
) -> None:
    """Play the steps with fleets that do as told: never above the budget, never nothing serving, no endless loop."""
    old: LiveFleet | None = _old(replicas, old_gpus)
    budget = replicas * old_gpus + spare
    wanted = min(wanted, budget // new_gpus)
    new = 0
    for _ in range(10):
        if old is None:
            break
        step = decide(old, Wish(wanted, new_gpus, budget), ready=new)
        if step.waiting:
            assert step.old_replicas == old.asked
            return
        assert step.old_replicas is not None or new >= 1 or wanted == 0
        new = step.replicas
        old = None if step.old_replicas is None else _old(step.old_replicas, old_gpus)
        assert new * new_gpus + (old.asked * old_gpus if old else 0) <= budget
    assert old is None
    assert new == wanted


def test_gpus_of_a_group_are_counted_over_its_nodes() -> None:
    live = workload(Owner("ns", "svc", "u"), several.revision(), "OneAtATime")
    assert read_live(live).gpus_per_replica == 16
