"""A quality gate's Job, as the cluster shows it, and what it found. Pure.

A gate has passed when its Job is done, its container ended with 0, and the last thing it said is a JSON object whose
``score`` reaches its ``threshold`` (and that of the spec). Whatever else happens it has not passed.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.core.pods import PodState
from plimsoll.core.stable_text import stable

WORDS_LIMIT: Final = 240


@dataclass(frozen=True)
class Result:
    """What a gate said at its end (``/dev/termination-log``)."""

    score: float
    threshold: float
    message: str = ""

    def __str__(self) -> str:
        """In a sentence of its own."""
        said = f": {self.message}" if self.message else ""
        return f"score {self.score:.4g}, threshold {self.threshold:.4g}{said}"


@dataclass(frozen=True)
class GateSeen:
    """How far a gate is, and why."""

    outcome: Literal["running", "passed", "failed"]
    why: str = ""


RUNNING: Final = GateSeen("running")


def look(job: Mapping[str, Any] | None, pods: Iterable[PodState], threshold: float | None) -> GateSeen:
    """What became of a Job, of which a trimmed object and the pods are given; None: it is not there (yet)."""
    if job is None:
        return RUNNING
    status: Mapping[str, Any] = job.get("status") or {}
    pod = next((each for each in pods if each.name.startswith(f"{job['metadata']['name']}-")), None)
    if status.get("failed"):
        return GateSeen("failed", _failure(str(status["failed"]), pod))
    if not status.get("complete"):
        return GateSeen("running", pod.obstacle.message if pod and pod.obstacle and pod.ended is None else "")
    return _judged(_words(pod), threshold)


def read_result(words: str) -> Result | None:
    """The result in a termination message; None where there is none, or one that is no number."""
    try:
        found = json.loads(words)
    except ValueError:
        return None
    if not isinstance(found, Mapping):
        return None
    score, threshold = (_number(found.get(key)) for key in ("score", "threshold"))
    if score is None or threshold is None:
        return None
    message = found.get("message")
    return Result(score, threshold, stable(message, WORDS_LIMIT) if isinstance(message, str) else "")


def _number(value: object) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else None  # type: ignore[arg-type]


def _judged(words: str, threshold: float | None) -> GateSeen:
    """Of a Job that has succeeded."""
    result = read_result(words)
    if result is None:
        said = f"it said {stable(words, WORDS_LIMIT)!r}" if words else "it left no message"
        return GateSeen("failed", f"its result cannot be read: {said}")
    if result.score < result.threshold:
        return GateSeen("failed", str(result))
    if threshold is not None and result.score < threshold:
        return GateSeen("failed", f"{result}; spec.tuning.qualityGate.threshold is {threshold:g}")
    return GateSeen("passed", str(result))


def _failure(reason: str, pod: PodState | None) -> str:
    """Of a Job that has not."""
    result = read_result(_words(pod))
    if result is not None:
        return str(result)
    if pod is not None and pod.ended is not None:
        said = f": {stable(pod.ended.last_words, WORDS_LIMIT)}" if pod.ended.last_words else ""
        return f"it ended with exit code {pod.ended.exit_code}{said}"
    if reason == "DeadlineExceeded":
        return "it was not done in spec.tuning.qualityGate.timeout"
    return f"its Job failed: {reason}"


def _words(pod: PodState | None) -> str:
    return pod.ended.last_words.strip() if pod and pod.ended else ""
