"""A pod's state in the words of a condition."""

import pytest

from plimsoll.core.pods import PodState, pod_state, summarise


def _pod(
    container: dict[str, object] | None = None, conditions: dict[str, str] | None = None, **status: object
) -> dict[str, object]:
    found = [
        {"type": k, "status": v, "message": "0/3 nodes have enough nvidia.com/gpu"}
        for k, v in (conditions or {}).items()
    ]
    containers = [{"name": "vllm", **container}] if container is not None else []
    return {"metadata": {"name": "p"}, "status": {"conditions": found, "containerStatuses": containers, **status}}


RUNNING: dict[str, object] = {"state": {"running": {}}}
LAST_WORDS = "a\nEngine core initialization failed. See root cause above\n"
ENDED: dict[str, object] = {"exitCode": 1, "reason": "Error", "message": LAST_WORDS}


@pytest.mark.parametrize(
    ("pod", "phase", "says"),
    [
        pytest.param(_pod({**RUNNING, "ready": True}, {"Ready": "True"}), "ready", "", id="ready"),
        pytest.param(_pod(RUNNING, {"Ready": "False", "PodScheduled": "True"}), "loading", "", id="weights load"),
        pytest.param(_pod(None, {"PodScheduled": "False"}), "pending", "nvidia.com/gpu", id="no node has a GPU free"),
        pytest.param(_pod({"state": {"waiting": {"reason": "ContainerCreating"}}}), "pending", "", id="being created"),
        pytest.param(
            _pod({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}),
            "failing",
            "ImagePullBackOff: not found",
            id="the image cannot be pulled",
        ),
        pytest.param(
            _pod({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": ENDED}}),
            "failing",
            "exit code 1 (Error): Engine core initialization failed",
            id="the engine refuses to start",
        ),
        pytest.param(
            _pod({**RUNNING, "ready": False, "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}),
            "failing",
            "137 (OOMKilled)",
            id="loads again after an out-of-memory kill",
        ),
        pytest.param(
            _pod(None, phase="Failed", reason="Evicted", message="disk"), "failing", "Evicted: disk", id="evicted"
        ),
    ],
)
def test_states(pod: dict[str, object], phase: str, says: str) -> None:
    found = pod_state(pod)
    assert found.phase == phase
    assert says in found.why


def test_a_pod_in_deletion_is_terminating_whatever_else_it_says() -> None:
    pod = _pod(RUNNING, {"Ready": "True"}) | {"metadata": {"name": "p", "deletionTimestamp": "t"}}
    assert pod_state(pod).phase == "terminating"


def test_a_failing_pod_speaks_before_a_pending_one() -> None:
    summary = summarise([PodState("pending", "no GPU"), PodState("ready"), PodState("failing", "exit code 1")])
    assert summary.why == "exit code 1"
    assert summary.counts == {"pending": 1, "ready": 1, "failing": 1}
