"""What became of a quality gate's Job: only a readable, sufficient score of a Job that succeeded passes."""

import json
from typing import Any

import pytest

from plimsoll.core.gate import RUNNING, look, read_result
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.pods import Ended, PodState

NAME = "chat-gate-0a1b2c"
OTHER = "chat-gate-999999-abcde"
GOOD = json.dumps({"score": 0.99, "threshold": 0.95, "message": "25 prompts"})


def job(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": NAME}, "status": {"complete": False, "failed": "", **status}}


def pod(words: str, code: int = 0, name: str = f"{NAME}-x7k2p") -> PodState:
    return PodState("failing", name, track="gate", serves=False, ended=Ended(code, "Completed", words, 0, False))


DONE = job(complete=True)


@pytest.mark.parametrize(
    ("seen", "pods", "threshold", "outcome", "why"),
    [
        pytest.param(None, [], None, "running", "", id="not made yet"),
        pytest.param(job(), [], None, "running", "", id="no pod yet"),
        pytest.param(job(), [pod(GOOD)], None, "running", "", id="ended, the Job does not say so yet"),
        pytest.param(DONE, [pod(GOOD)], None, "passed", "score 0.99, threshold 0.95: 25 prompts", id="passed"),
        pytest.param(DONE, [pod(GOOD)], 0.98, "passed", "score 0.99", id="passed what the spec asks for"),
        pytest.param(DONE, [pod(GOOD)], 0.99, "passed", "score 0.99", id="just what the spec asks for"),
        pytest.param(
            DONE, [pod('{"score": 1, "threshold": 1}')], None, "passed", "score 1", id="just its own threshold"
        ),
        pytest.param(DONE, [pod(GOOD)], 0.995, "failed", "qualityGate.threshold is 0.995", id="less than the spec's"),
        pytest.param(DONE, [pod('{"score": 0.9, "threshold": 0.95}')], None, "failed", "score 0.9", id="less"),
        pytest.param(DONE, [pod('{"score": 1}')], None, "failed", "cannot be read", id="no threshold"),
        pytest.param(DONE, [pod('{"score": NaN, "threshold": 0}')], None, "failed", "cannot be read", id="NaN"),
        pytest.param(DONE, [pod('{"score": true, "threshold": 0}')], None, "failed", "cannot be read", id="no number"),
        pytest.param(DONE, [pod("all is well")], None, "failed", "'all is well'", id="prose"),
        pytest.param(DONE, [pod("")], None, "failed", "left no message", id="silent"),
        pytest.param(DONE, [], None, "failed", "left no message", id="its pod is gone"),
        pytest.param(DONE, [pod(GOOD, name=OTHER)], None, "failed", "no message", id="another's"),
        pytest.param(job(failed="BackoffLimitExceeded"), [pod(GOOD, 1)], None, "failed", "0.99", id="must succeed"),
        pytest.param(
            job(failed="BackoffLimitExceeded"), [pod("boom", 2)], None, "failed", "exit code 2: boom", id="crashed"
        ),
        pytest.param(job(failed="DeadlineExceeded"), [], None, "failed", "timeout", id="too slow"),
        pytest.param(job(failed="PodFailurePolicy"), [], None, "failed", "PodFailurePolicy", id="anything else"),
    ],
)
def test_what_became_of_it(
    seen: dict[str, Any] | None, pods: list[PodState], threshold: float | None, outcome: str, why: str
) -> None:
    found = look(seen, pods, threshold)
    assert found.outcome == outcome
    assert why in found.why


def test_what_keeps_it_from_starting_is_told() -> None:
    waits = PodState("failing", f"{NAME}-x", track="gate", obstacle=Obstacle("ImagePullFailed", "ErrImagePull: no"))
    assert look(job(), [waits], None).why == "ErrImagePull: no"
    assert look(None, [waits], None) == RUNNING


def test_credentials_in_its_words_are_left_out() -> None:
    words = json.dumps({"score": 1, "threshold": 0.5, "message": "asked as hf_abcdefghijklmnop\n\x1b[31m" + "x" * 999})
    found = read_result(words)
    assert found is not None
    assert "hf_" not in found.message
    assert "\x1b" not in found.message
    assert len(found.message) <= 240


@pytest.mark.parametrize("words", ["[]", "1", "null", '"x"', "", "{", '{"score": "0.9", "threshold": 0.5}'])
def test_what_is_no_result(words: str) -> None:
    assert read_result(words) is None
