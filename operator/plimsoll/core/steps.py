"""The next step of a fleet: whose template, how many pods, replaced in which way. Pure.

Count and template are never changed in one step. While pods are being replaced the count stays, except down to what
``maxGPUs`` allows and to zero; before a template with larger pods the count first falls to what fits. A roll-out that
fails does not hold the count for ever, and a fleet that has nothing to lose does not wait.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.api import rollout_reasons
from plimsoll.core.capacity import Room
from plimsoll.core.live import LiveFleet, template_hash
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.placement import read_needs
from plimsoll.core.surge import SAID, Choice, Situation, Way, choose

UNPLACED_SECONDS: Final = 20.0
"""A surge pod without a node for so long makes us count GPUs again: somebody was faster."""
NOWHERE_SECONDS: Final = 60.0
"""After so long there is no place, whatever we count: affinity, a volume that only one node may mount."""


@dataclass(frozen=True)
class Policy:
    """What user and cluster allow a roll-out."""

    max_gpus: int
    may_recreate: bool = False
    room: Room | None = None
    on_demand: int | None = None


@dataclass(frozen=True)
class Progress:
    """What the pods say of a roll-out."""

    serving: int
    starting: int
    unplaced_seconds: float = 0.0
    """For how long a pod of the new template has found no node."""
    failed: bool = False
    """Pods of the new template fail again and again: whether it will ever be done is open."""


@dataclass(frozen=True)
class Step:
    """What to apply now. ``revision`` None: the running template is in no kept revision, so only the count is ours."""

    revision: Revision | None
    replicas: int
    way: Way
    why: str = ""
    """How pods are being replaced, and why so; empty at rest."""
    waiting: Obstacle | None = None
    """Why the target's template is not applied yet."""


def starts_rollout(target: Revision, live: LiveFleet | None) -> bool:
    """Whether the fleet has pods of another template than the target's, which would have to be replaced."""
    return live is not None and live.asked > 0 and live.template_hash != template_hash(target.template)


def next_step(
    target: Revision, kept: Sequence[Revision], live: LiveFleet | None, wanted: int, policy: Policy, progress: Progress
) -> Step:
    """The step towards ``target`` with ``wanted`` replicas."""
    if live is None:
        return Step(target, wanted, "OneAtATime")
    way = live.way or "OneAtATime"
    if wanted == 0:
        return Step(target, 0, way)
    if starts_rollout(target, live):
        return _begin(target, _running(kept, live), live, wanted, policy, progress)
    if live.mixed:
        return _go_on(target, live, wanted, policy, progress)
    return Step(target, wanted, way)


def keep(kept: Sequence[Revision], live: LiveFleet) -> Step:
    """The fleet as it is: its template, its count, its way."""
    return Step(_running(kept, live), live.asked, live.way or "OneAtATime")


def _running(kept: Iterable[Revision], live: LiveFleet) -> Revision | None:
    """The newest kept revision of the template that runs."""
    same = [r for r in kept if template_hash(r.template) == live.template_hash]
    return max(same, key=lambda r: r.number, default=None)


def _begin(
    target: Revision, running: Revision | None, live: LiveFleet, wanted: int, policy: Policy, progress: Progress
) -> Step:
    """First the count that both templates allow, then the template; or neither, while nothing makes room."""
    way, most = live.way or "OneAtATime", _most(target, live, policy)
    if live.asked > most:
        return Step(running, most, way, f"first {most} replicas: more of the new size would exceed hardware.maxGPUs")
    if not live.seen or (live.replicas > live.asked and not live.mixed):
        return Step(running, live.asked, way)  # the last count is not there yet
    chosen = choose(_situation(target, live, policy, progress))
    if chosen.way is None:
        fits = max(1, policy.max_gpus // max(1, live.gpus_per_replica))
        return Step(running, min(wanted, fits), way, waiting=_waits(chosen))
    return Step(target, live.asked, chosen.way, chosen.why)


def _go_on(target: Revision, live: LiveFleet, wanted: int, policy: Policy, progress: Progress) -> Step:
    """A roll-out under way keeps its count, and its way unless one more pod has no place: no node, or no quota."""
    way, most = live.way or "OneAtATime", _most(target, live, policy)
    count = min(wanted if progress.failed else live.asked, most)
    nowhere = "one more pod is refused" if live.refused else ""
    if progress.unplaced_seconds >= NOWHERE_SECONDS:
        nowhere = "the scheduler finds no place for one more pod"
    if way != "Surge" or not (nowhere or progress.unplaced_seconds >= UNPLACED_SECONDS):
        return Step(target, count, way, SAID[way] if live.updated < live.replicas else "")
    chosen = choose(replace(_situation(target, live, policy, progress), has_surplus=False, nowhere=nowhere))
    return Step(target, count, chosen.way or way, chosen.why)


def _most(target: Revision, live: LiveFleet, policy: Policy) -> int:
    """Replicas that ``maxGPUs`` allows while pods of both templates may stand side by side."""
    return max(1, policy.max_gpus // max(1, _larger(target, live)))


def _larger(target: Revision, live: LiveFleet) -> int:
    return max(live.gpus_per_replica, read_needs(target.template["spec"]).gpus * target.nodes)


def _situation(target: Revision, live: LiveFleet, policy: Policy, progress: Progress) -> Situation:
    return Situation(
        replicas=live.asked,
        serving=progress.serving,
        starting=progress.starting,
        has_surplus=live.way == "Surge" and live.mixed and live.replicas > live.asked,
        gpus_per_replica=_larger(target, live),
        pods_per_replica=target.nodes,
        max_gpus=policy.max_gpus,
        room=policy.room,
        on_demand=policy.on_demand,
        may_recreate=policy.may_recreate,
        exclusive=bool((target.plan.get("host") or {}).get("exclusiveVolume")),
    )


def _waits(chosen: Choice) -> Obstacle:
    return Obstacle(
        rollout_reasons.NO_SPARE_GPU.name,
        f"the new template waits, the old pod keeps serving: {chosen.why}. It is rolled out as soon as there is room; "
        "to interrupt the service instead, set spec.rollout.noSpareGPU: Recreate",
        lasting=chosen.lasting,
    )
