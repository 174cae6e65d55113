"""What one pod of a service is doing, in the words of a condition. Pure: a pod object in, a value out.

Only what a decision needs is kept, in words that do not change while nothing does: an equal value wakes nobody.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from plimsoll.api import names
from plimsoll.api import rollout_reasons as rollout
from plimsoll.core.live import template_hash
from plimsoll.core.manifests.container import CONTAINER, GATE_CONTAINER
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.stable_text import stable

Phase = Literal["ready", "unready", "loading", "pending", "failing", "terminating"]

FLEET_TRACKS: Final = (names.TRACK_MAIN, names.TRACK_WORKER)
TRIAL_TRACKS: Final = (names.TRACK_CANARY, names.TRACK_CONTROL)
"""Pods of an experiment: they serve, and are no part of the fleet."""
GATE_TRACKS: Final = (names.TRACK_GATE,)
"""Pods of a quality gate: they serve nothing, and their end is what is waited for."""
PULL_FAILURES: Final = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
CONFIG_FAILURES: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
CRASH_LOOP: Final = "CrashLoopBackOff"
MESSAGE_LIMIT: Final = 300
LAST_WORDS_LIMIT: Final = 4096
_MISSING: Final = re.compile(r"(?i)secret|configmap|persistentvolumeclaim|references non-existent|couldn't find key")
_NEVER: Final = re.compile(r"(?i)not found|unauthorized|denied|manifest unknown|invalid reference|InvalidImageName")


@dataclass(frozen=True)
class Ended:
    """How the engine's container ended last. ``previous``: another run has begun, the log is that of the one before."""

    exit_code: int
    reason: str
    last_words: str
    restarts: int
    previous: bool


@dataclass(frozen=True)
class PodState:
    """One pod as a fleet sees it."""

    phase: Phase
    name: str = ""
    uid: str = ""
    template: str = ""
    """Hash of the template it was made from."""
    since_seconds: float | None = None
    """When it was made or found a node (pending), or its container started (loading), seconds of the wall clock."""
    unplaced: str = ""
    """The scheduler's words when no node takes it."""
    track: str = names.TRACK_MAIN
    serves: bool = True
    """False for a further node of a replica: its troubles count, it is no replica."""
    ready_after_seconds: float | None = None
    """Ready: from its creation until it became so, last."""
    obstacle: Obstacle | None = None
    ended: Ended | None = None
    answers: bool = False
    """Of an experiment's pod: its containers are ready, whatever else keeps it from serving."""
    gone_by_seconds: float | None = None
    """Terminating: when it is to have ended, seconds of the wall clock."""
    admitted: bool = False
    """Of an experiment's pod: it was told that its quality gate has passed."""
    restarts: int = 0
    """Of an experiment's pod: how often its container has begun anew, whatever it does now."""


def pod_state(pod: Mapping[str, Any]) -> PodState | None:
    """What one pod is doing; None for one of a track that is none of ours."""
    meta, status = pod["metadata"], pod.get("status", {})
    track = (meta.get("labels") or {}).get(names.LABEL_TRACK, names.TRACK_MAIN)
    if track not in (*FLEET_TRACKS, *TRIAL_TRACKS, *GATE_TRACKS):
        return None
    name = GATE_CONTAINER if track in GATE_TRACKS else CONTAINER
    found: Mapping[str, Any] = next((c for c in status.get("containerStatuses") or () if c.get("name") == name), {})
    phase = _phase(meta, status, found)
    scheduled = _condition(status, "PodScheduled")
    placed = scheduled.get("lastTransitionTime") if scheduled.get("status") == "True" else None
    began = placed or meta.get("creationTimestamp") if phase == "pending" else _started(found)
    unplaced = stable(scheduled.get("message", ""), MESSAGE_LIMIT) if scheduled.get("status") == "False" else ""
    return PodState(
        phase=phase,
        name=meta["name"],
        uid=meta.get("uid", ""),
        template=template_hash({"metadata": meta}),
        since_seconds=_seconds(began) if phase in ("pending", "loading") else None,
        unplaced=placed_words(unplaced) if phase == "pending" else "",
        obstacle=_obstacle(meta, status, found) if phase == "failing" else None,
        ended=_ended(found) if phase == "failing" else None,
        track=track,
        gone_by_seconds=_seconds(meta.get("deletionTimestamp")),
        serves=track not in (names.TRACK_WORKER, *GATE_TRACKS),
        ready_after_seconds=_ready_after(meta, status) if phase == "ready" else None,
        answers=track in TRIAL_TRACKS and _condition(status, "ContainersReady").get("status") == "True",
        admitted=track in TRIAL_TRACKS and _condition(status, names.GATE_PASSED).get("status") == "True",
        restarts=int(found.get("restartCount", 0)) if track in TRIAL_TRACKS else 0,
    )


def start_seconds(pods: Iterable[PodState]) -> float | None:
    """How long a replica takes from its creation until it serves; None when none does.

    The quickest tells: a pod that was unready meanwhile, or had to wait for its node, became ready later than it could.
    """
    return min((pod.ready_after_seconds for pod in pods if pod.ready_after_seconds is not None), default=None)


def counts(pods: Iterable[PodState]) -> dict[Phase, int]:
    """Pods by phase; a further node of a replica only where it is not as it should be."""
    found: dict[Phase, int] = {}
    for pod in pods:
        if pod.phase == "ready" and not pod.serves:
            continue
        found[pod.phase] = found.get(pod.phase, 0) + 1
    return found


def placed_words(message: str) -> str:
    """The scheduler's reasons without how many nodes each holds for, sorted: the same words while the reasons stay."""
    _, _, reasons = message.partition(" nodes are available: ")
    reasons = (reasons or message).partition(" preemption: ")[0].partition(" no new claims")[0]
    parts = {re.sub(r"^\d+ ", "", part).strip(" .") for part in re.split(r", (?=\d+ )", reasons)}
    return ", ".join(sorted(part for part in parts if part))


def _phase(meta: Mapping[str, Any], status: Mapping[str, Any], container: Mapping[str, Any]) -> Phase:
    if meta.get("deletionTimestamp"):
        return "terminating"
    waiting = container.get("state", {}).get("waiting", {}).get("reason", "")
    if status.get("phase") == "Failed" or waiting in PULL_FAILURES + CONFIG_FAILURES:
        return "failing"
    if _condition(status, "Ready").get("status") == "True":
        return "ready"
    if _ailing(status):
        return "failing"
    running = "running" in container.get("state", {})
    if running and container.get("started"):
        return "unready"
    if _ended(container) is not None:
        return "failing"
    return "loading" if running else "pending"


def _obstacle(meta: Mapping[str, Any], status: Mapping[str, Any], container: Mapping[str, Any]) -> Obstacle | None:
    """What the node says of a pod that fails; the engine's own story is read from its log."""
    if status.get("phase") == "Failed":
        why = f"{status.get('reason') or 'Failed'}: {status.get('message') or 'the pod ended'}"
        return _says(rollout.POD_ENDED.name, why)
    other = {} if _waits_in(container, PULL_FAILURES + CONFIG_FAILURES) else _ailing(status)
    waiting = (other or container).get("state", {}).get("waiting", {})
    reason, message = waiting.get("reason", ""), waiting.get("message", "")
    where = f"container {other['name']}: " if other else ""
    text = where + stable(f"{reason}: {message}".rstrip(": ").replace(meta["name"], "the pod"), MESSAGE_LIMIT)
    if reason in PULL_FAILURES:
        return Obstacle(rollout.IMAGE_PULL_FAILED.name, text, lasting=_NEVER.search(text) is not None)
    if reason in CONFIG_FAILURES:
        if reason == CONFIG_FAILURES[0] and _MISSING.search(message):
            way = f"create it in namespace {meta.get('namespace', '')}, and the pods go on by themselves"
            return Obstacle(rollout.OBJECT_MISSING.name, f"{text}; {way}", lasting=True)
        return Obstacle(rollout.CONTAINER_NOT_STARTED.name, text)
    return _failed_beside(other, meta["name"]) if other else None


def _ailing(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """A sidecar or init container that keeps the pod from serving; empty when none does."""
    kept = [c for key in ("initContainerStatuses", "containerStatuses") for c in status.get(key) or ()]
    failures = (*PULL_FAILURES, *CONFIG_FAILURES, CRASH_LOOP)
    return next((c for c in kept if c.get("name") != CONTAINER and _waits_in(c, failures)), {})


def _waits_in(container: Mapping[str, Any], reasons: Collection[str]) -> bool:
    return container.get("state", {}).get("waiting", {}).get("reason", "") in reasons


def _failed_beside(container: Mapping[str, Any], pod: str) -> Obstacle:
    """A container beside the engine's that ends again and again."""
    ended = container.get("lastState", {}).get("terminated", {})
    code, words = ended.get("exitCode", "?"), str(ended.get("message") or "").strip()
    said = f" It said: {words[-MESSAGE_LIMIT:]}" if words else ""
    text = f"container {container['name']} ends again and again (exit code {code}).{said}".replace(pod, "the pod")
    return Obstacle(rollout.SIDECAR_FAILED.name, stable(text, 2 * MESSAGE_LIMIT))


def _says(reason: str, text: str) -> Obstacle:
    return Obstacle(reason, stable(text, MESSAGE_LIMIT))


def _ended(container: Mapping[str, Any]) -> Ended | None:
    state, last = container.get("state", {}), container.get("lastState", {})
    ended = state.get("terminated") or last.get("terminated")
    if not ended or container.get("ready"):
        return None
    return Ended(
        exit_code=int(ended.get("exitCode", 0)),
        reason=str(ended.get("reason") or "Error"),
        last_words=str(ended.get("message") or "")[-LAST_WORDS_LIMIT:],
        restarts=int(container.get("restartCount", 0)),
        previous="terminated" not in state,
    )


def _started(container: Mapping[str, Any]) -> str | None:
    started: str | None = container.get("state", {}).get("running", {}).get("startedAt")
    return started


def _ready_after(meta: Mapping[str, Any], status: Mapping[str, Any]) -> float | None:
    made = _seconds(meta.get("creationTimestamp"))
    ready = _seconds(_condition(status, "Ready").get("lastTransitionTime"))
    return None if made is None or ready is None else max(0.0, ready - made)


def _seconds(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((c for c in status.get("conditions") or () if c.get("type") == kind), {})
