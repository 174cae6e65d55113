"""Why a fleet is not there yet: the right reason, whether it needs a human, and when to look again."""

import dataclasses
from typing import Any

import pytest

from plimsoll.core.capacity import Room
from plimsoll.core.causes import CAUSES, UNEXPLAINED
from plimsoll.core.hindrance import View, due, obstacle
from plimsoll.core.live import LiveFleet
from plimsoll.core.logs import Failure
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.pods import Ended, PodState

NOW = 10_000.0
GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
LIVE = LiveFleet(2, 2, 0, 2, True, {"spec": {"containers": [GPU]}}, "Surge")
NO_GPU = "Insufficient nvidia.com/gpu, node(s) didn't match Pod's node affinity/selector"
OVER_QUOTA = (
    "the pods is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=1, used: requests.nvidia.com/gpu=0, "
    "limited: requests.nvidia.com/gpu=0"
)
OVER_LIMIT = (
    'the pods is invalid: spec.containers[0].resources.requests: Invalid value: "11811160064": must be less than or '
    "equal to memory limit of 1Gi"
)
FULL = Room(gpus_taken=8, open=("a",))


def _view(*pods: PodState, live: LiveFleet = LIVE, **fields: Any) -> View:
    return View(live=live, pods=pods, now_seconds=NOW, load_seconds=100, **fields)


def _pending(said: str, seconds: float = 30) -> PodState:
    return PodState("pending", "p", since_seconds=NOW - seconds, unplaced=said)


def _ended(code: int = 1, reason: str = "Error", restarts: int = 1) -> PodState:
    return PodState("failing", "p", ended=Ended(code, reason, "", restarts, previous=True))


def _failure(word: str) -> Failure:
    return Failure(next(c for c in (*CAUSES, UNEXPLAINED) if c.word == word), "what it said")


@pytest.mark.parametrize(
    ("view", "reason", "lasting"),
    [
        pytest.param(_view(_pending(NO_GPU)), "NoFreeGPU", False, id="the scheduler's word alone"),
        pytest.param(_view(_pending(NO_GPU), room=FULL), "NoFreeGPU", False, id="all GPUs are taken"),
        pytest.param(_view(_pending(NO_GPU), room=Room()), "NoNodeOfProduct", False, id="no such node"),
        pytest.param(
            _view(_pending(NO_GPU), room=Room(tainted={"a": "team:NoSchedule"})), "NodesTainted", False, id="tainted"
        ),
        pytest.param(_view(_pending(NO_GPU), room=Room(away=("a",))), "NodesUnavailable", False, id="cordoned"),
        pytest.param(_view(_pending(NO_GPU), room=Room(without_gpu=("a",))), "NodeWithoutGPU", False, id="no GPU"),
        pytest.param(
            _view(_pending("node(s) had untolerated taint {team: x}")), "NodesTainted", False, id="by the word: tainted"
        ),
        pytest.param(
            _view(_pending("node(s) didn't match Pod's node affinity/selector")), "NoNodeOfProduct", False, id="by word"
        ),
        pytest.param(
            _view(_pending("Insufficient memory"), room=Room(gpus_free=8, most_free=8, open=("a",))),
            "Unschedulable",
            False,
            id="GPUs are free, memory is not",
        ),
        pytest.param(
            _view(_pending('persistentvolumeclaim "weights" not found')), "ObjectMissing", True, id="no such claim"
        ),
        pytest.param(
            _view(_pending("pod has unbound immediate PersistentVolumeClaims")), "VolumeNotBound", False, id="unbound"
        ),
        pytest.param(
            _view(live=dataclasses.replace(LIVE, refused=OVER_QUOTA)),
            "QuotaExceeded",
            True,
            id="a quota",
        ),
        pytest.param(
            _view(live=dataclasses.replace(LIVE, refused='admission webhook "x" denied the request')),
            "PodsRefused",
            True,
            id="a policy",
        ),
        pytest.param(
            _view(PodState("failing", "p", obstacle=Obstacle("ImagePullFailed", "not found", lasting=True))),
            "ImagePullFailed",
            True,
            id="no such image",
        ),
        pytest.param(_view(_ended(), failure=_failure("bad_flag")), "BadFlag", True, id="a flag that is not there"),
        pytest.param(_view(_ended(), failure=_failure("model_access_denied")), "ModelAccessDenied", True, id="gated"),
        pytest.param(
            _view(_ended(), failure=_failure("not_enough_free_memory")), "NotEnoughFreeMemory", False, id="co-tenant"
        ),
        pytest.param(_view(_ended(), failure=_failure("kv_cache_too_small")), "KVCacheTooSmall", False, id="to replan"),
        pytest.param(
            _view(_ended(), failure=_failure("kv_cache_too_small"), tried="It was tried."),
            "KVCacheTooSmall",
            True,
            id="replanned in vain",
        ),
        pytest.param(_view(_ended(), failure=_failure("engine_died")), "EngineDied", False, id="unknown, once"),
        pytest.param(
            _view(_ended(restarts=3), failure=_failure("engine_died")), "EngineDied", True, id="unknown, three times"
        ),
        pytest.param(_view(_ended(0, "Completed")), "EngineDied", False, id="an exit with 0 is a failure"),
        pytest.param(
            _view(PodState("loading", "p", since_seconds=NOW - 101)), "LoadsSlowly", False, id="slower than planned"
        ),
        pytest.param(_view(PodState("pending", "p", since_seconds=NOW - 31)), "StuckCreating", False, id="no word why"),
        pytest.param(
            _view(PodState("pending", "p", since_seconds=NOW - 6), told=Obstacle("ObjectMissing", "s", lasting=True)),
            "ObjectMissing",
            True,
            id="an event names what is missing: said at once",
        ),
        pytest.param(
            _view(PodState("pending", "p", since_seconds=NOW - 31), told=Obstacle("PullingImage", "s")),
            "PullingImage",
            False,
            id="an event says that the image is being pulled",
        ),
        pytest.param(
            _view(_pending("pod has unbound immediate PersistentVolumeClaims"), told=Obstacle("VolumeNotBound", "c")),
            "VolumeNotBound",
            False,
            id="an event of the claim says why it is unbound",
        ),
        pytest.param(_view(PodState("unready", "p")), "Unready", False, id="served, silent now"),
    ],
)
def test_reasons(view: View, reason: str, lasting: bool) -> None:
    found = obstacle(view)
    assert found is not None
    assert (found.reason, found.lasting) == (reason, lasting)


@pytest.mark.parametrize(
    "view",
    [
        _view(PodState("ready")),
        _view(PodState("loading", since_seconds=NOW - 99)),
        _view(_pending(NO_GPU, seconds=2)),
        _view(PodState("pending", since_seconds=NOW - 29)),
        _view(),
    ],
)
def test_what_is_on_its_way_is_in_nobodys_way(view: View) -> None:
    assert obstacle(view) is None


def test_past_the_deadline_everything_needs_a_human() -> None:
    late = dataclasses.replace(LIVE, deadline_exceeded=True)
    found, slow = obstacle(_view(live=late)), obstacle(_view(_pending(NO_GPU), live=late))
    assert found is not None
    assert slow is not None
    assert (found.reason, found.lasting, slow.reason, slow.lasting) == ("DeadlineExceeded", True, "NoFreeGPU", True)


def test_the_most_telling_pod_speaks() -> None:
    view = _view(_pending(NO_GPU), _ended(), PodState("loading", since_seconds=0), failure=_failure("bad_flag"))
    found = obstacle(view)
    assert found is not None
    assert found.reason == "BadFlag"
    assert "what it said" in found.message


def test_who_ended_the_old_pod_first_is_told_that_nothing_serves() -> None:
    recreated = dataclasses.replace(LIVE, way="Recreate")
    found = obstacle(_view(_ended(), live=recreated, failure=_failure("bad_flag")))
    assert found is not None
    assert "Nothing serves meanwhile" in found.message


def test_it_is_looked_at_again_when_time_alone_may_tell_more() -> None:
    assert due(_view(PodState("loading", since_seconds=NOW - 40))) == 60
    assert due(_view(PodState("pending", since_seconds=NOW - 2))) == 3
    assert due(_view(PodState("pending", since_seconds=NOW - 20))) == 10
    assert due(_view(_pending(NO_GPU, seconds=2))) == 3
    assert due(_view(PodState("ready"))) is None


def test_a_quota_is_said_without_what_others_use_of_it() -> None:
    other = OVER_QUOTA.replace("used: requests.nvidia.com/gpu=0", "used: requests.nvidia.com/gpu=3")
    found = {obstacle(_view(live=dataclasses.replace(LIVE, refused=said))) for said in (OVER_QUOTA, other)}
    (same,) = found
    assert same is not None
    assert "ResourceQuota q is used up" in same.message
    assert "raise or free it" in same.message


@pytest.mark.parametrize(
    ("limits", "hint"),
    [
        pytest.param({"nvidia.com/gpu": "1"}, True, id="none of ours: a LimitRange set it"),
        pytest.param({"nvidia.com/gpu": "1", "memory": "1Gi"}, False, id="the user's own"),
    ],
)
def test_a_limit_that_nobody_wrote_is_explained(limits: dict[str, str], hint: bool) -> None:
    template = {"spec": {"containers": [{"resources": {"limits": limits}}]}}
    found = obstacle(_view(live=dataclasses.replace(LIVE, refused=OVER_LIMIT, template=template)))
    assert found is not None
    assert found.reason == "PodsRefused"
    assert ("LimitRange" in found.message) is hint
