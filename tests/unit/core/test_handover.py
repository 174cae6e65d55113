"""From one kind of workload to the other: within the GPU budget, the old fleet serving, never stuck in silence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.handover import Handover, Old, decide
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.workload import gpus_per_replica, workload
from tests.unit.core.manifests import several


@pytest.mark.parametrize(
    ("old", "wanted", "per_replica", "max_gpus", "ready", "expect"),
    [
        pytest.param(Old(2, 4), 2, 16, 40, 0, Handover(2, 2), id="room for all: both run"),
        pytest.param(Old(2, 4), 2, 16, 40, 1, Handover(2, 2), id="not all serve yet: the old one stays"),
        pytest.param(Old(2, 4), 2, 16, 40, 2, Handover(2, None), id="all serve: the old one goes"),
        pytest.param(Old(2, 4), 2, 16, 24, 0, Handover(1, 2), id="room for one: it starts beside"),
        pytest.param(Old(2, 4), 2, 16, 24, 1, Handover(2, None), id="what fits serves: the rest follows"),
        pytest.param(Old(4, 4), 1, 16, 24, 0, Handover(0, 2), id="no room: the old one shrinks as far as needed"),
        pytest.param(Old(1, 8), 0, 16, 16, 0, Handover(0, None), id="parked: nothing has to serve"),
    ],
)
def test_the_next_step(old: Old, wanted: int, per_replica: int, max_gpus: int, ready: int, expect: Handover) -> None:
    found = decide(old, wanted=wanted, gpus_per_replica=per_replica, max_gpus=max_gpus, ready=ready)
    assert found == expect


def test_without_any_room_it_says_what_would_do_and_stops_nothing_unasked() -> None:
    found = decide(Old(1, 8), wanted=1, gpus_per_replica=16, max_gpus=16, ready=0)
    assert (found.replicas, found.old_replicas) == (0, 1)
    assert found.problem is not None
    assert found.problem.reason == "NoRoomBeside"
    assert "24 would do" in found.problem.message
    allowed = decide(Old(1, 8), wanted=1, gpus_per_replica=16, max_gpus=16, ready=0, may_stop=True)
    assert allowed == Handover(1, None)


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 4), st.integers(1, 32), st.integers(0, 64))
def test_it_ends_with_the_new_fleet_or_says_why_and_never_takes_more_than_allowed(
    replicas: int, old_gpus: int, wanted: int, new_gpus: int, spare: int
) -> None:
    """Play the steps with fleets that do as told: never above the budget, never nothing serving, no endless loop."""
    old: Old | None = Old(replicas, old_gpus)
    budget = replicas * old_gpus + spare
    wanted = min(wanted, budget // new_gpus)
    new = 0
    for _ in range(10):
        if old is None:
            break
        step = decide(old, wanted=wanted, gpus_per_replica=new_gpus, max_gpus=budget, ready=new)
        if step.problem:
            assert step.old_replicas == old.replicas
            return
        assert step.old_replicas is not None or new >= 1 or wanted == 0
        new = step.replicas
        old = None if step.old_replicas is None else Old(step.old_replicas, old_gpus)
        assert new * new_gpus + (old.gpus if old else 0) <= budget
    assert old is None
    assert new == wanted


def test_gpus_are_counted_from_what_runs() -> None:
    live = workload(Owner("ns", "svc", "u"), several.revision(), 1, 0)
    assert gpus_per_replica(live) == 16
    template = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "2"}}}, {"name": "x"}]}}
    assert gpus_per_replica({"spec": {"template": template}}) == 2
