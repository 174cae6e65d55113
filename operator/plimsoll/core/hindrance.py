"""Why a fleet is not there yet: ordered small checks over its pods, the workload and the nodes; the first that objects.

Pure, with ``now`` as an argument. ``due`` says when another look may find more, since some checks are only about time.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll.api import engine_reasons, reasons
from plimsoll.api import rollout_reasons as rollout
from plimsoll.core.capacity import Room
from plimsoll.core.causes import UNEXPLAINED
from plimsoll.core.live import LiveFleet
from plimsoll.core.logs import Failure
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.placement import Needs
from plimsoll.core.pods import Phase, PodState
from plimsoll.core.refusals import refusal
from plimsoll.core.surge import no_room

PLACED_WITHIN_SECONDS: Final = 5.0
"""The scheduler's first refusal may be about a pod that is just going."""
LOOKED_INTO_AFTER_SECONDS: Final = 5.0
"""A container that is not created by then is worth asking for the pod's events."""
CREATED_WITHIN_SECONDS: Final = 30.0
RESTARTS_THAT_LAST: Final = 3
"""A cause nobody knows that ended the engine so often will do so again."""
SAID_LIMIT: Final = 500
UNBOUND: Final = "unbound immediate PersistentVolumeClaims"
_ABOVE_LIMIT: Final = re.compile(r"must be less than or equal to (?P<resource>\S+) limit")
OLD_POD_GONE: Final = "the old pod was ended first, as spec.rollout.noSpareGPU: Recreate allows"


@dataclass(frozen=True)
class View:
    """What is looked at: the workload, the pods of the template it should run, what is known of failures and nodes."""

    live: LiveFleet
    pods: Sequence[PodState]
    now_seconds: float
    load_seconds: int
    failure: Failure | None = None
    """Why one of these pods ended, when its log was read."""
    tried: str = ""
    """What came of planning again with the engine's figures; empty: not tried, or nothing to try."""
    room: Room | None = None
    told: Obstacle | None = None
    """What events say of a pod without a container, or of a claim without a volume."""

    def of(self, phase: Phase) -> list[PodState]:
        """Pods in this phase."""
        return [pod for pod in self.pods if pod.phase == phase]

    def for_seconds(self, pod: PodState) -> float:
        """For how long the pod has been in its phase."""
        return 0.0 if pod.since_seconds is None else self.now_seconds - pod.since_seconds


Check = Callable[[View], Obstacle | None]


def obstacle(view: View) -> Obstacle | None:
    """The first objection; one that outlives the roll-out's deadline is lasting."""
    found = next((o for check in CHECKS if (o := check(view))), None)
    if found and view.live.way == "Recreate" and not view.live.ready:
        found = replace(found, message=f"{found.message}. Nothing serves meanwhile: {OLD_POD_GONE}")
    if not view.live.deadline_exceeded or (found and found.lasting):
        return found
    if found is None:
        found = Obstacle(rollout.DEADLINE_EXCEEDED.name, "no pod got ready within twice the planned load time")
    return replace(found, lasting=True)


def due(view: View) -> float | None:
    """Seconds until time alone may change the answer."""
    waits = [limit - view.for_seconds(pod) for pod, limit in _limits(view)]
    return min((seconds for seconds in waits if seconds > 0), default=None)


def refused(view: View) -> Obstacle | None:
    """Pods cannot even be made: a quota, a policy, a limit range."""
    said = view.live.refused
    if not said:
        return None
    problem = refusal("the pods", said, forbidden=False)
    reason = rollout.QUOTA_EXCEEDED if problem.reason == rollout.QUOTA_EXCEEDED.name else rollout.PODS_REFUSED
    known = problem.message if problem.reason != reasons.REFUSED.name else said
    return Obstacle(reason.name, known + _of_limit_range(said, view.live.template), lasting=True)


def engine_failed(view: View) -> Obstacle | None:
    """An engine that ends does not serve, whatever its exit code."""
    ended = [pod for pod in view.of("failing") if pod.ended]
    if not ended:
        return None
    worst = max(ended, key=lambda pod: pod.ended.restarts if pod.ended else 0)
    assert worst.ended is not None  # noqa: S101 - chosen for it
    count, code, why = len(ended), worst.ended.exit_code, worst.ended.reason
    end = f"{count} pod{'s' if count > 1 else ''}: the engine ended with exit code {code} ({why})"
    if view.failure is None:
        return Obstacle(engine_reasons.ENGINE_DIED.name, f"{end}; its log is being read")
    cause = view.failure.cause
    said = f" It said: {view.failure.said[:SAID_LIMIT]}" if view.failure.said else ""
    tried = f" {view.tried}" if view.tried else ""
    often = cause is UNEXPLAINED and worst.ended.restarts >= RESTARTS_THAT_LAST
    lasting = cause.remedy == "human" or bool(view.tried) or often
    return Obstacle(cause.reason.name, f"{end}. {cause.reason.meaning}{said}{tried}", lasting)


def container_failed(view: View) -> Obstacle | None:
    """What the node says: image, Secret or ConfigMap, runtime, eviction."""
    found = [pod.obstacle for pod in view.of("failing") if pod.obstacle]
    return max(found, key=lambda o: o.lasting, default=None)


def unplaced(view: View) -> Obstacle | None:
    """No node takes a pod: the GPUs first, then what else the scheduler says."""
    waiting = [p for p in view.of("pending") if p.unplaced and view.for_seconds(p) >= PLACED_WITHIN_SECONDS]
    if not waiting:
        return None
    said = waiting[0].unplaced
    if view.told and UNBOUND in said:
        return view.told
    reason = _of_volume(said) or _of_nodes(view.room, view.live.needs) or _of_words(said, view.live.needs)
    where = f"{no_room(view.room)}. " if view.room and not view.room.fits else ""
    return Obstacle(reason, f"{where}The scheduler says: {said}", lasting=reason == rollout.OBJECT_MISSING.name)


def creating(view: View) -> Obstacle | None:
    """A pod has a node, and its container does not come."""
    placed = [p for p in view.of("pending") if not p.unplaced]
    stuck = [p for p in placed if view.for_seconds(p) >= CREATED_WITHIN_SECONDS]
    if view.told and (stuck or (placed and view.told.lasting)):
        return view.told
    if not stuck:
        return None
    text = f"the container of {stuck[0].name} is not created after {CREATED_WITHIN_SECONDS:.0f} s"
    return Obstacle(rollout.STUCK_CREATING.name, f"{text}; `kubectl describe pod {stuck[0].name}` shows why")


def slow(view: View) -> Obstacle | None:
    """Loading takes longer than the plan says."""
    late = [pod for pod in view.of("loading") if view.for_seconds(pod) >= view.load_seconds]
    if not late:
        return None
    return Obstacle(
        rollout.LOADS_SLOWLY.name, f"{late[0].name} loads for longer than the planned {view.load_seconds} s"
    )


def unready(view: View) -> Obstacle | None:
    """It served, and does not answer now."""
    silent = view.of("unready")
    return Obstacle(rollout.UNREADY.name, f"{silent[0].name} served and does not answer now") if silent else None


CHECKS: Final[tuple[Check, ...]] = (refused, engine_failed, container_failed, unplaced, creating, slow, unready)


def _limits(view: View) -> Iterator[tuple[PodState, float]]:
    for pod in view.pods:
        if pod.phase == "pending":
            yield pod, PLACED_WITHIN_SECONDS if pod.unplaced else LOOKED_INTO_AFTER_SECONDS
            yield pod, CREATED_WITHIN_SECONDS
        elif pod.phase == "loading":
            yield pod, float(view.load_seconds)


def _of_nodes(room: Room | None, needs: Needs) -> str:
    """Why no node has room, when the operator may look and GPUs are what is missing."""
    if room is None or room.fits or not needs.gpu_resource:
        return ""
    if not room.matching:
        return rollout.NO_NODE_OF_PRODUCT.name
    if room.open:
        return rollout.NO_FREE_GPU.name if room.most_free < needs.gpus else ""
    if room.tainted:
        return rollout.NODES_TAINTED.name
    return (rollout.NODES_UNAVAILABLE if room.away else rollout.NODE_WITHOUT_GPU).name


def _of_limit_range(said: str, template: Mapping[str, Any]) -> str:
    """Who set a limit that the pod template does not: the API server's refusal names the field and not the cause."""
    found = _ABOVE_LIMIT.search(said)
    containers = (template.get("spec") or {}).get("containers") or ()
    if not found or any(found["resource"] in (c.get("resources") or {}).get("limits", {}) for c in containers):
        return ""
    return (
        f". The pods set no {found['resource']} limit: a LimitRange of the namespace does. Raise its max or default, "
        "or set resources in spec.podTemplate"
    )


def _of_volume(said: str) -> str:
    if "persistentvolumeclaim" in said and "not found" in said:
        return rollout.OBJECT_MISSING.name
    return rollout.VOLUME_NOT_BOUND.name if UNBOUND in said else ""


def _of_words(said: str, needs: Needs) -> str:
    """The same from the scheduler's words: the nearest miss speaks, since each node is counted under its first."""
    if f"Insufficient {needs.gpu_resource}" in said:
        return rollout.NO_FREE_GPU.name
    if "Insufficient" in said or "volume" in said:
        return rollout.UNSCHEDULABLE.name
    if "untolerated taint" in said:
        return rollout.NODES_TAINTED.name
    if "unschedulable" in said:
        return rollout.NODES_UNAVAILABLE.name
    if "node affinity/selector" in said:
        return rollout.NO_NODE_OF_PRODUCT.name
    return rollout.UNSCHEDULABLE.name
