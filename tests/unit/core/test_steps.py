"""The next step of a fleet: never a deadlock, never an outage nobody allowed, never count and template together."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import names
from plimsoll.core.capacity import Room
from plimsoll.core.live import LiveFleet, read_live
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.steps import Policy, Progress, Step, keep, next_step, starts_rollout
from plimsoll.core.surge import SAID, Situation, Way, choose, rolling, strategy

FREE, FULL = Room(fits=1, gpus_free=1, open=("a",)), Room(gpus_taken=8, open=("a",))


def _template(mark: str, gpus: int = 1) -> dict[str, Any]:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {"metadata": {"annotations": {names.ANNOTATION_TEMPLATE: mark}}, "spec": {"containers": [limits]}}


def _revision(number: int, gpus: int = 1) -> Revision:
    return Revision(f"r{number}", number, f"f{number}", {}, _template(f"t{number}", gpus), 100)


OLD, NEW = _revision(1), _revision(2)


def _live(asked: int = 1, of: Revision = OLD, **changes: Any) -> LiveFleet:
    fleet = LiveFleet(asked=asked, replicas=asked, ready=asked, updated=asked, seen=True, template=of.template)
    return dataclasses.replace(fleet, **changes)


def _step(
    live: LiveFleet | None, wanted: int, policy: Policy, progress: Progress | None = None, target: Revision = NEW
) -> Step:
    told = progress or Progress(serving=live.ready if live else 0, starting=0)
    return next_step(target, [OLD, NEW], live, wanted, policy, told)


@pytest.mark.parametrize(
    ("replicas", "policy", "way"),
    [
        pytest.param(1, Policy(8, room=FREE), "Surge", id="a spare GPU"),
        pytest.param(3, Policy(8, room=FREE), "Surge", id="a spare GPU, several replicas"),
        pytest.param(3, Policy(8, room=FULL), "OneAtATime", id="none spare, several replicas"),
        pytest.param(3, Policy(3, room=FREE), "OneAtATime", id="surge counts inside maxGPUs"),
        pytest.param(3, Policy(8), "OneAtATime", id="who may not look counts on none"),
        pytest.param(1, Policy(8, room=FULL), None, id="a single one waits"),
        pytest.param(1, Policy(1, room=FREE), None, id="a single one without a budget for two waits"),
        pytest.param(1, Policy(8), None, id="a single one waits where nobody may look"),
        pytest.param(1, Policy(8, may_recreate=True, room=FULL), "Recreate", id="or is recreated, if allowed"),
        pytest.param(1, Policy(8, may_recreate=True, room=FREE), "Surge", id="but not when there is a spare one"),
        pytest.param(1, Policy(8, room=FULL, on_demand=1), "Surge", id="a node would be added"),
        pytest.param(1, Policy(8, room=FULL, on_demand=0), None, id="no more nodes may be added"),
    ],
)
def test_a_roll_out_begins_in_the_way_that_gpus_allow(replicas: int, policy: Policy, way: Way | None) -> None:
    step = _step(_live(replicas), replicas, policy)
    if way is None:
        assert step.revision == OLD
        assert step.waiting is not None
        assert "spec.rollout.noSpareGPU: Recreate" in step.waiting.message
    else:
        assert (step.revision, step.way, step.replicas, step.waiting) == (NEW, way, replicas, None)


@pytest.mark.parametrize(
    ("policy", "lasting"), [(Policy(8, room=FULL), False), (Policy(1, room=FREE), True), (Policy(8), True)]
)
def test_waiting_needs_a_human_only_where_no_gpu_can_help(policy: Policy, lasting: bool) -> None:
    waiting = _step(_live(), 1, policy).waiting
    assert waiting is not None
    assert waiting.lasting is lasting


@pytest.mark.parametrize(
    ("progress", "way"),
    [(Progress(serving=0, starting=1), "OneAtATime"), (Progress(serving=0, starting=0), "AllAtOnce")],
)
def test_a_fleet_that_serves_nothing_does_not_wait(progress: Progress, way: Way) -> None:
    step = _step(_live(1, ready=0), 1, Policy(8, room=FULL), progress)
    assert (step.revision, step.way) == (NEW, way)


def test_the_first_fleet_gets_count_and_template_at_once() -> None:
    assert _step(None, 3, Policy(8)) == Step(NEW, 3, "OneAtATime")


def test_at_rest_only_the_count_moves() -> None:
    assert _step(_live(2, NEW, way="Surge"), 5, Policy(8)) == Step(NEW, 5, "Surge")


def test_the_count_waits_while_pods_are_replaced() -> None:
    live = _live(3, NEW, updated=1, way="OneAtATime")
    assert _step(live, 5, Policy(8)).replicas == 3
    assert _step(live, 1, Policy(8)).replicas == 3
    assert _step(live, 0, Policy(8)).replicas == 0
    assert _step(live, 5, Policy(2)).replicas == 2
    assert _step(live, 5, Policy(1)).replicas == 1
    assert _step(live, 5, Policy(0)).replicas == 1
    assert _step(live, 5, Policy(8), Progress(2, 0, failed=True)).replicas == 5


def test_the_template_comes_first_and_the_count_after_it() -> None:
    step = _step(_live(2), 3, Policy(8, room=FREE))
    assert (step.revision, step.replicas) == (NEW, 2)


def test_before_larger_pods_the_count_falls_to_what_the_budget_holds() -> None:
    larger = _revision(2, gpus=2)
    first = next_step(larger, [OLD, larger], _live(4), 2, Policy(4, room=FULL), Progress(4, 0))
    assert (first.revision, first.replicas) == (OLD, 2)
    leaving = next_step(larger, [OLD, larger], _live(2, replicas=4, updated=4), 2, Policy(4, room=FULL), Progress(4, 0))
    assert (leaving.revision, leaving.replicas) == (OLD, 2)
    then = next_step(larger, [OLD, larger], _live(2), 2, Policy(4, room=FULL), Progress(2, 0))
    assert (then.revision, then.replicas, then.way) == (larger, 2, "OneAtATime")


def test_while_it_waits_the_old_template_may_still_be_scaled() -> None:
    assert _step(_live(1), 1, Policy(2)).replicas == 1
    step = next_step(NEW, [OLD, NEW], _live(1), 4, Policy(3), Progress(1, 0))
    assert (step.revision, step.replicas) == (OLD, 3)


def test_while_it_waits_the_old_pods_count_with_their_own_size_and_keep_their_way() -> None:
    old, new = _revision(1, gpus=2), _revision(2, gpus=2)
    live = _live(1, old, way="Surge")
    step = next_step(new, [old, new], live, 4, Policy(6, room=FULL), Progress(1, 0))
    assert (step.revision, step.replicas, step.way) == (old, 3, "Surge")
    alone = next_step(NEW, [OLD, NEW], _live(1), 2, Policy(1, room=FREE), Progress(1, 0))
    assert (alone.replicas, alone.waiting is not None) == (1, True)


def test_a_replica_over_several_nodes_takes_the_gpus_of_all() -> None:
    wide = dataclasses.replace(NEW, plan={"choice": {"nodesPerReplica": 2}})
    step = next_step(wide, [OLD, wide], _live(4), 2, Policy(4, room=FULL), Progress(4, 0))
    assert (step.revision, step.replicas) == (OLD, 2)


def test_nothing_runs_nothing_is_rolled_out() -> None:
    assert not starts_rollout(NEW, _live(0))
    assert starts_rollout(NEW, _live(1))


def test_of_two_revisions_with_one_template_the_newer_runs() -> None:
    again = dataclasses.replace(OLD, name="r3", number=3)
    assert keep([again, OLD, NEW], _live(1)).revision == again


def test_a_controller_that_has_not_looked_yet_has_nothing_to_say() -> None:
    assert _step(_live(3, NEW, seen=False, way="OneAtATime"), 3, Policy(8)).why == ""
    assert _step(_live(3, NEW, updated=2, way="OneAtATime"), 3, Policy(8)).why == SAID["OneAtATime"]


def test_only_a_pod_that_is_there_already_is_a_place_for_the_next() -> None:
    """A surge whose spare pod is not there yet, or another way with one pod too many, has no place of its own."""
    third = _revision(3)
    for live in (
        _live(3, NEW, replicas=3, updated=1, way="Surge"),
        _live(3, NEW, replicas=4, updated=1, way="OneAtATime"),
    ):
        step = next_step(third, [OLD, NEW, third], live, 3, Policy(8, room=FULL), Progress(3, 0))
        assert (step.revision, step.way) == (third, "OneAtATime")


@pytest.mark.parametrize(
    ("replicas", "progress", "policy", "refused", "way"),
    [
        pytest.param(3, Progress(3, 0, 10), Policy(8, room=FULL), "", "Surge", id="the scheduler has just begun"),
        pytest.param(3, Progress(3, 0, 19.9), Policy(8, room=FULL), "", "Surge", id="not yet for twenty seconds"),
        pytest.param(3, Progress(3, 0, 20), Policy(8, room=FULL), "", "OneAtATime", id="somebody took the GPU"),
        pytest.param(3, Progress(3, 0, 30), Policy(8, room=FREE), "", "Surge", id="there is room: soon"),
        pytest.param(3, Progress(3, 0, 60), Policy(8, room=FREE), "", "OneAtATime", id="no place for another reason"),
        pytest.param(3, Progress(3, 0), Policy(8, room=FREE), "quota", "OneAtATime", id="a quota refuses one more"),
        pytest.param(1, Progress(1, 0, 90), Policy(8, room=FULL), "", "Surge", id="a single one goes on waiting"),
        pytest.param(1, Progress(1, 0, 90), Policy(8, True, FULL), "", "Recreate", id="or is recreated, if allowed"),
    ],
)
def test_a_surge_that_finds_no_place_is_no_deadlock(
    replicas: int, progress: Progress, policy: Policy, refused: str, way: Way
) -> None:
    live = _live(replicas, NEW, replicas=replicas + 1, updated=1, ready=replicas, way="Surge", refused=refused)
    assert _step(live, replicas, policy, progress).way == way


def test_a_template_that_fails_takes_no_further_pod() -> None:
    live = _live(3, NEW, replicas=4, updated=1, way="Surge")
    assert _step(live, 3, Policy(8, room=FULL), Progress(3, 0, failed=True)).way == "Surge"


def test_a_corrected_template_takes_the_place_of_the_one_that_failed() -> None:
    third = _revision(3)
    live = _live(1, NEW, replicas=2, updated=1, ready=1, way="Surge")
    step = next_step(third, [OLD, NEW, third], live, 1, Policy(8, room=FULL), Progress(1, 0))
    assert (step.revision, step.way) == (third, "Surge")


def test_a_template_in_no_kept_revision_is_left_alone_until_it_can_be_replaced() -> None:
    step = next_step(NEW, [NEW], _live(1), 1, Policy(8, room=FULL), Progress(1, 0))
    assert (step.revision, step.waiting is not None) == (None, True)


@pytest.mark.parametrize(
    ("policy", "way"), [(Policy(8, room=FREE), None), (Policy(8, room=FREE, may_recreate=True), "Recreate")]
)
def test_pods_with_a_volume_that_only_one_may_mount_are_never_two(policy: Policy, way: Way | None) -> None:
    """A second one would wait for the volume for ever (D21), GPUs or not."""
    alone = dataclasses.replace(NEW, plan={"host": {"exclusiveVolume": True}})
    step = next_step(alone, [OLD, alone], _live(1), 1, policy, Progress(serving=1, starting=0))
    if way is None:
        assert step.revision == OLD
        assert step.waiting is not None
        assert "only one of them may have" in step.waiting.message
    else:
        assert (step.revision, step.way) == (alone, way)


def test_a_refused_change_keeps_template_count_and_way() -> None:
    assert keep([OLD, NEW], _live(4, way="Recreate")) == Step(OLD, 4, "Recreate")


situations = st.builds(
    Situation,
    replicas=st.integers(1, 5),
    serving=st.integers(0, 5),
    starting=st.integers(0, 5),
    has_surplus=st.booleans(),
    gpus_per_replica=st.integers(1, 4),
    max_gpus=st.integers(1, 16),
    room=st.sampled_from([None, FREE, FULL]),
    on_demand=st.none() | st.integers(0, 4),
    may_recreate=st.booleans(),
    exclusive=st.booleans(),
)


@given(situations)
def test_laws_of_the_choice(now: Situation) -> None:
    chosen = choose(now)
    if chosen.way == "Surge":
        assert not now.exclusive
        assert (now.replicas + 1) * now.gpus_per_replica <= now.max_gpus
    if chosen.way == "Recreate":
        assert now.may_recreate
    if chosen.way in ("Recreate", None):
        assert now.replicas == 1
    if chosen.way == "AllAtOnce":
        assert now.serving == now.starting == 0


@pytest.mark.parametrize("way", SAID)
def test_no_strategy_allows_neither_surge_nor_unavailability(way: Way) -> None:
    made = strategy(way)
    assert made["type"] == "Recreate" or 0 in rolling(way).values()
    assert made["type"] == "Recreate" or set(rolling(way).values()) != {0}


def test_a_live_workload_is_read() -> None:
    obj = {
        "metadata": {"generation": 4, "annotations": {names.ANNOTATION_WAY: "Surge"}},
        "spec": {"replicas": 2, "template": OLD.template},
        "status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "refused": "q"},
    }
    live = read_live(obj)
    assert (live.asked, live.replicas, live.updated, live.ready) == (2, 3, 1, 2)
    assert (live.way, live.mixed, live.template_hash, live.needs.gpus) == ("Surge", True, "t1", 1)
    assert read_live({**obj, "metadata": {"generation": 5}}).mixed
