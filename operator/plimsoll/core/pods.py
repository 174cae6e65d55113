"""What a service's pods are doing, in the words of a condition. Pure: pod objects in, a summary out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.core.manifests.container import CONTAINER

Phase = Literal["ready", "loading", "pending", "failing", "terminating"]

PULL_FAILURES: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
CONFIG_FAILURES: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
MESSAGE_LIMIT: Final = 300


@dataclass(frozen=True)
class PodState:
    """One pod: its phase as a fleet sees it, and why, when there is something to say."""

    phase: Phase
    why: str = ""


@dataclass(frozen=True)
class Summary:
    """Counts by phase, and the most telling reason of a pod that is neither ready nor just loading."""

    counts: Mapping[Phase, int]
    why: str = ""

    def count(self, phase: Phase) -> int:
        """Pods in this phase."""
        return self.counts.get(phase, 0)


def summarise(states: Iterable[PodState]) -> Summary:
    """Failing pods speak first, then pending ones."""
    found = list(states)
    counts: dict[Phase, int] = {}
    for state in found:
        counts[state.phase] = counts.get(state.phase, 0) + 1
    telling = [s.why for phase in ("failing", "pending") for s in found if s.phase == phase and s.why]
    return Summary(counts, telling[0] if telling else "")


def pod_state(pod: Mapping[str, Any]) -> PodState:
    """What one pod is doing."""
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return PodState("terminating")
    container: Mapping[str, Any] = next(
        (c for c in status.get("containerStatuses") or () if c.get("name") == CONTAINER), {}
    )
    failure = _failure(container) or _pod_failure(status)
    if failure:
        return PodState("failing", failure[:MESSAGE_LIMIT])
    if _condition(status, "Ready").get("status") == "True":
        return PodState("ready")
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return PodState("pending", f"no node takes the pod: {scheduled.get('message', '')}"[:MESSAGE_LIMIT])
    return PodState("loading" if "running" in container.get("state", {}) else "pending")


def _failure(container: Mapping[str, Any]) -> str:
    waiting = container.get("state", {}).get("waiting", {})
    reason = waiting.get("reason", "")
    if reason in PULL_FAILURES + CONFIG_FAILURES:
        return f"{reason}: {waiting.get('message', '')}".rstrip(": ")
    ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated")
    if not ended or container.get("ready"):
        return ""
    why = ended.get("reason", "Error")
    return f"the engine ended with exit code {ended.get('exitCode')} ({why}){_last_words(ended)}"


def _last_words(ended: Mapping[str, Any]) -> str:
    lines = [line for line in str(ended.get("message") or "").splitlines() if line.strip()]
    return f": {lines[-1].strip()}" if lines else ""


def _pod_failure(status: Mapping[str, Any]) -> str:
    if status.get("phase") != "Failed":
        return ""
    return f"{status.get('reason') or 'Failed'}: {status.get('message') or 'the pod ended'}"


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})
