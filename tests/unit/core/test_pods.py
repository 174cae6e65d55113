"""A pod's state in the words of a condition, which stay the same while nothing changes."""

from typing import Any

import pytest

from plimsoll.api import names
from plimsoll.core.pods import FLEET_TRACKS, PodState, counts, placed_words, pod_state, start_seconds


def _pod(
    container: dict[str, Any] | None = None, conditions: dict[str, str] | None = None, **status: object
) -> dict[str, Any]:
    said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available."
    found = [{"type": k, "status": v, "message": said} for k, v in (conditions or {}).items()]
    containers = [{"name": "vllm", **container}] if container is not None else []
    meta = {"name": "svc-7d9f-x2", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "status": {"conditions": found, "containerStatuses": containers, **status}}


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"state": {"waiting": {"reason": reason, "message": message}}}


def _state(pod: dict[str, Any]) -> PodState:
    found = pod_state(pod)
    assert found is not None
    return found


RUNNING: dict[str, Any] = {"state": {"running": {"startedAt": "2026-01-01T00:01:00Z"}}}
ENDED: dict[str, Any] = {"exitCode": 1, "reason": "Error", "message": "a\nEngine core initialization failed.\n"}
GONE: dict[str, Any] = {"exitCode": 0, "reason": "Completed"}


@pytest.mark.parametrize(
    ("pod", "phase"),
    [
        pytest.param(_pod({**RUNNING, "ready": True, "started": True}, {"Ready": "True"}), "ready", id="ready"),
        pytest.param(_pod(RUNNING, {"Ready": "False", "PodScheduled": "True"}), "loading", id="weights load"),
        pytest.param(_pod({**RUNNING, "started": True}), "unready", id="served, and does not answer"),
        pytest.param(_pod(None, {"PodScheduled": "False"}), "pending", id="no node has a GPU free"),
        pytest.param(_pod(_waiting("ContainerCreating")), "pending", id="being created"),
        pytest.param(_pod(_waiting("ImagePullBackOff", "not found")), "failing", id="the image cannot be pulled"),
        pytest.param(
            _pod({**_waiting("CrashLoopBackOff"), "lastState": {"terminated": ENDED}}), "failing", id="refuses to start"
        ),
        pytest.param(_pod({**RUNNING, "lastState": {"terminated": ENDED}}), "failing", id="loads again after a crash"),
        pytest.param(_pod({"state": {"terminated": GONE}}), "failing", id="an engine that ends well has failed"),
        pytest.param(_pod(None, phase="Failed", reason="Evicted", message="disk"), "failing", id="evicted"),
    ],
)
def test_phases(pod: dict[str, Any], phase: str) -> None:
    assert _state(pod).phase == phase


@pytest.mark.parametrize(
    ("container", "reason", "lasting"),
    [
        (_waiting("ImagePullBackOff", 'Back-off pulling image "x": not found'), "ImagePullFailed", True),
        (_waiting("ErrImagePull", "dial tcp: i/o timeout"), "ImagePullFailed", False),
        (_waiting("CreateContainerConfigError", 'secret "hub-token" not found'), "ObjectMissing", True),
        (_waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
         "ContainerNotStarted", False),
        (_waiting("RunContainerError", "failed to create containerd task"), "ContainerNotStarted", False),
    ],
)  # fmt: skip
def test_what_the_node_says_has_a_reason(container: dict[str, Any], reason: str, lasting: bool) -> None:
    obstacle = _state(_pod(container)).obstacle
    assert obstacle is not None
    assert (obstacle.reason, obstacle.lasting) == (reason, lasting)


def _beside(container: dict[str, Any], engine: dict[str, Any], *, init: bool = False) -> dict[str, Any]:
    pod = _pod(engine, {"Ready": "False"})
    key = "initContainerStatuses" if init else "containerStatuses"
    pod["status"].setdefault(key, []).append({"name": "proxy", **container})
    return pod


CRASHES = {**_waiting("CrashLoopBackOff", "back-off 5m0s restarting"), "lastState": {"terminated": {"exitCode": 3}}}
STARTED = {**RUNNING, "started": True, "ready": True}


@pytest.mark.parametrize(
    ("pod", "reason", "says"),
    [
        pytest.param(
            _beside(CRASHES, STARTED), "SidecarFailed", "container proxy ends again and again (exit code 3)", id="ends"
        ),
        pytest.param(
            _beside(_waiting("ImagePullBackOff", "not found"), STARTED),
            "ImagePullFailed",
            "container proxy: ImagePullBackOff",
            id="its image is not there",
        ),
        pytest.param(
            _beside(_waiting("CreateContainerConfigError", 'configmap "c" not found'), RUNNING),
            "ObjectMissing",
            'container proxy: CreateContainerConfigError: configmap "c" not found',
            id="its ConfigMap is not there",
        ),
        pytest.param(
            _beside(CRASHES, _waiting("PodInitializing"), init=True),
            "SidecarFailed",
            "container proxy",
            id="an init container before the engine",
        ),
        pytest.param(
            _beside(_waiting("ImagePullBackOff", "x"), _waiting("ErrImagePull", "denied")),
            "ImagePullFailed",
            "ErrImagePull: denied",
            id="the engine's own trouble first",
        ),
    ],
)
def test_a_container_beside_the_engine_is_named(pod: dict[str, Any], reason: str, says: str) -> None:
    state = _state(pod)
    assert state.phase == "failing"
    assert state.obstacle is not None
    assert state.obstacle.reason == reason
    assert says in state.obstacle.message


@pytest.mark.parametrize("beside", [_waiting("ContainerCreating"), {"state": {"terminated": {"exitCode": 0}}}])
def test_a_sidecar_that_only_starts_or_is_done_is_in_nobodys_way(beside: dict[str, Any]) -> None:
    assert _state(_beside(beside, RUNNING)).phase == "loading"


def test_how_an_engine_ended_is_kept_for_the_log_to_be_read() -> None:
    ended = _state(_pod({**_waiting("CrashLoopBackOff"), "restartCount": 3, "lastState": {"terminated": ENDED}})).ended
    assert ended is not None
    assert (ended.exit_code, ended.restarts, ended.previous) == (1, 3, True)
    now = _state(_pod({"state": {"terminated": ENDED}})).ended
    assert now is not None
    assert not now.previous


def test_times_tell_how_long_a_phase_lasts() -> None:
    pending, loading = _state(_pod(None, {"PodScheduled": "False"})), _state(_pod(RUNNING))
    assert pending.since_seconds is not None
    assert loading.since_seconds is not None
    assert loading.since_seconds - pending.since_seconds == 60
    waited = _pod(None, {"PodScheduled": "True"})
    waited["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:01:00Z"
    assert _state(waited).since_seconds == loading.since_seconds  # for a node, not for its container


def test_the_quickest_pod_tells_how_long_a_start_takes() -> None:
    serving = [_pod(RUNNING | {"ready": True, "started": True}, {"Ready": "True"}) for _ in range(2)]
    for pod, at in zip(serving, ("2026-01-01T00:09:00Z", "2026-01-01T00:02:05Z"), strict=True):
        pod["status"]["conditions"][0]["lastTransitionTime"] = at
    assert start_seconds(_state(pod) for pod in (*serving, _pod(RUNNING))) == 125
    assert start_seconds([_state(_pod(RUNNING))]) is None


def test_a_pod_in_deletion_is_terminating_whatever_else_it_says() -> None:
    pod = _pod(RUNNING, {"Ready": "True"})
    pod["metadata"]["deletionTimestamp"] = "t"
    assert _state(pod).phase == "terminating"


def test_a_canary_serves_on_a_track_of_its_own() -> None:
    pod = _pod(RUNNING)
    pod["metadata"]["labels"] = {names.LABEL_TRACK: names.TRACK_CANARY}
    found = pod_state(pod)
    assert found is not None
    assert (found.track, found.serves) == (names.TRACK_CANARY, True)
    assert found.track not in FLEET_TRACKS


def test_a_track_of_somebody_elses_is_none_of_ours() -> None:
    pod = _pod(RUNNING)
    pod["metadata"]["labels"] = {names.LABEL_TRACK: "shadow"}
    assert pod_state(pod) is None


SELECTOR = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    "message",
    [
        f"0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 {SELECTOR}. "
        "preemption: 0/4 nodes are available: 1 No preemption victims found for incoming pod.",
        f"0/57 nodes are available: 2 Insufficient nvidia.com/gpu, 55 {SELECTOR}. "
        "no new claims to deallocate, preemption: 0/57 nodes are available: 57 Preemption is not helpful.",
        f"0/57 nodes are available: 55 {SELECTOR}, 2 Insufficient nvidia.com/gpu.",
    ],
)
def test_the_schedulers_words_stay_the_same_while_the_cluster_grows(message: str) -> None:
    assert placed_words(message) == f"Insufficient nvidia.com/gpu, {SELECTOR}"


def test_the_image_back_off_that_counts_up_is_one_and_the_same_state() -> None:
    texts = [f'back-off {wait} restarting failed container=vllm pod="svc-7d9f-x2"' for wait in ("10s", "2m40s")]
    first, second = (_state(_pod(_waiting("CreateContainerError", text))) for text in texts)
    assert first == second


def test_a_sidecars_state_is_not_the_engines() -> None:
    pod = _pod(RUNNING, {"Ready": "False"})
    pod["status"]["containerStatuses"].insert(0, {"name": "proxy", "state": {"terminated": GONE}, "ready": False})
    found = _state(pod)
    assert (found.phase, found.ended) == ("loading", None)


def test_an_end_that_says_no_code_and_no_count_is_taken_as_well_and_first() -> None:
    ended = _state(_pod({"state": {"terminated": {"reason": "Completed"}}})).ended
    assert ended is not None
    assert (ended.exit_code, ended.restarts, ended.previous) == (0, 0, False)


def test_counts_by_phase() -> None:
    assert counts([PodState("pending"), PodState("ready"), PodState("ready")]) == {"pending": 1, "ready": 2}
