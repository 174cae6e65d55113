"""One reconcile of one service: gather → plan → apply what differs → report. A second run writes nothing.

What each step does stands elsewhere: which plan runs in ``core/rollout.py``, the next step of the fleet in
``core/steps.py``, writing children in ``children.py``, what is in the way in ``core/hindrance.py``, the status in
``report.py``. Nodes and logs are looked at only when a decision or a sentence needs them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.adapters.ports import DEPLOYMENTS, PODS, REVISIONS, SERVICES
from plimsoll.api import reasons
from plimsoll.control.autoscalers import Autoscalers
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Applied, Children, Live
from plimsoll.control.creation import Creation
from plimsoll.control.observer import Observer
from plimsoll.control.planning import Planner
from plimsoll.control.postmortem import Finding, Postmortem
from plimsoll.control.report import Reporter
from plimsoll.control.scaler import Fleet, Scaler
from plimsoll.control.survey import Survey
from plimsoll.core import hindrance, hold, learn, observe, replan, rollout
from plimsoll.core.conditions import Facts, Problem
from plimsoll.core.hindrance import View
from plimsoll.core.live import LiveFleet, read_live, template_hash
from plimsoll.core.manifests.revision import Revision, read_revision, restarted
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.ownership import judge
from plimsoll.core.placement import read_needs
from plimsoll.core.pods import PodState
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Target
from plimsoll.core.sizing import Size
from plimsoll.core.steps import Policy, Progress, Step, keep, next_step, starts_rollout

LEAVING_RECHECK_SECONDS: Final = 1.0
FIRST_LOOK_SECONDS: Final = 1.0
REFUSED_RECHECK_SECONDS: Final = 15.0
"""A refusal may end without an event of ours: a ConfigMap corrected, a right granted, a GPU freed."""
CONTEST_RECHECK_SECONDS: Final = 60.0
"""A contest is over when nobody changes anything for a while: that makes no event."""


@dataclass(frozen=True)
class _Seen:
    """What there is of a service, and what should run."""

    target: Target
    kept: Sequence[Revision]
    live: LiveFleet | None
    pods: tuple[PodState, ...]
    """Of the fleet, those that are leaving left out."""
    blind: bool = False
    """Pods may not be listed: that none is known does not mean that none serves."""
    tried: str = ""
    """What came of a second try to plan, when nothing did."""
    finding: Finding | None = None
    told: Obstacle | None = None
    """What events say of pods whose containers do not come."""

    @property
    def new_pods(self) -> list[PodState]:
        """Pods of the target's template."""
        wanted = template_hash(self.target.revision.template) if self.target.revision else ""
        return [pod for pod in self.pods if pod.template == wanted]


@dataclass
class Reconciler:
    """Brings the world to what one service asks for. Raises ClusterError when it should be tried again."""

    cache: Cache
    planner: Planner
    children: Children
    reporter: Reporter
    survey: Survey
    postmortem: Postmortem
    creation: Creation
    scaler: Scaler
    observer: Observer
    autoscalers: Autoscalers
    wall_seconds: Callable[[], float]
    """Seconds since 1970: to compare with times that pods carry."""

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; the seconds after which to look again, or None when only an event should cause it."""
        service = self.cache.get(SERVICES, *key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            self.reporter.forget(key)
            self.children.forget(key)
            self.scaler.forget(key)
            self.observer.forget(key)
            return None
        try:
            request = read_request(service)
        except ValidationError as error:
            facts = Facts(refusal=Problem(reasons.INVALID_SPEC.name, _first_error(error)))
            return await self.reporter.report(key, service, facts, None, Size(0, 0))
        return await self._act(key, service, request)

    async def _act(self, key: Key, service: Mapping[str, Any], request: Request) -> float | None:
        live = self.cache.children(key)
        kept = [r for (kind, _), obj in live.items() if kind is REVISIONS and (r := read_revision(obj))]
        request = request.lasting(restarted(kept))
        seen = await self._with_events(request, await self._gather(key, request, kept))
        target = seen.target
        size = await self._size(key, service, request, seen)
        wanted = size.replicas
        policy = await self._policy(request, seen)
        step, applied = None, Applied()
        if target.revision:
            step = self._step(seen, target.revision, wanted, policy)
            applied = await self._apply(request, target.revision, step, live, seen.kept, size.ours)
        if self._unseen(key, request):
            return FIRST_LOOK_SECONDS
        facts, again = self._facts(request, seen, size, step, applied, policy)
        observed = self.observer.observe(key, request, target.revision)
        plan = rollout.reported_plan(target, wanted)
        written = await self.reporter.report(key, service, facts, plan, size, observed)
        self.scaler.reported(key, size.entries)
        if applied.waiting:
            return LEAVING_RECHECK_SECONDS
        changeable = facts.refusal or facts.blocked or facts.lacking or facts.update_unknown or facts.waits
        looking = changeable or any(pod.phase == "pending" for pod in seen.pods)
        contested = CONTEST_RECHECK_SECONDS if applied.contest else None
        looking_again = REFUSED_RECHECK_SECONDS if looking else None
        waits = (again, written, looking_again, applied.again_seconds, contested, size.again_seconds)
        return min((wait for wait in waits if wait is not None), default=None)

    async def _gather(self, key: Key, request: Request, kept: Sequence[Revision]) -> _Seen:
        """What runs and what should; a plan whose engine failed is made once more with what the engine said."""
        known = replan.known(request, kept)
        target = rollout.choose_target(request, await self.planner.plan(request, known), kept, known)
        pods = tuple(pod for pod in self.cache.pods(key) if pod.phase != "terminating")
        blind = self.children.unseen(PODS, request.namespace) is not None
        seen = _Seen(target, kept, self._fleet(request), pods, blind)
        finding = await self.postmortem.of(request.namespace, seen.new_pods)
        if finding is None or target.revision is None or target.frozen or request.held_because:
            return replace(seen, finding=finding)
        lesson = learn.correction(finding.failure, finding.log, target.revision.plan)
        if lesson is None:
            return replace(seen, finding=finding)
        if replan.was_tried(request, kept):
            return replace(seen, finding=finding, tried=replan.TRIED)
        together = lesson.added_to(known)
        again = await self.planner.plan(request, together)
        target, tried = rollout.replanned(request, target, kept, again, together)
        return replace(seen, target=target, tried=tried, finding=finding if target is seen.target else None)

    async def _with_events(self, request: Request, seen: _Seen) -> _Seen:
        if seen.live is None:
            return seen
        pods, now = seen.new_pods, self.wall_seconds()
        return replace(seen, told=await self.creation.told(request.namespace, pods, seen.live.template, now))

    def _workload(self, request: Request) -> Mapping[str, Any] | None:
        obj = self.cache.get(DEPLOYMENTS, request.namespace, request.name)
        return obj if obj is not None and judge(obj, request.name, request.uid).verdict == "ours" else None

    def _fleet(self, request: Request) -> LiveFleet | None:
        obj = self._workload(request)
        return None if obj is None else read_live(obj)

    async def _size(self, key: Key, service: Mapping[str, Any], request: Request, seen: _Seen) -> Size:
        """How many replicas are wanted. While pods are being replaced, demand waits."""
        revision, live = seen.target.revision, seen.live
        if revision is None:
            return Size(0, 0)
        if seen.target.frozen and live is not None:
            return Size(live.asked, min(live.asked, 1))
        mixed = live is not None and (starts_rollout(revision, live) or live.updated < live.replicas)
        fleet = Fleet(
            key=key,
            request=request,
            revision=revision,
            workload=self._workload(request),
            decisions=(service.get("status") or {}).get("decisions") or (),
            pods=seen.pods,
            busy_with="a roll-out is under way" if mixed and not self._progress(seen).failed else "",
        )
        other = await self.autoscalers.of(DEPLOYMENTS.kind, key, edited=not fleet.by_us)
        return self.scaler.size(replace(fleet, other=other))

    async def _policy(self, request: Request, seen: _Seen) -> Policy:
        """What the roll-out may count on. Nodes are looked at only where a pod would have to be placed."""
        allowed = Policy(
            max_gpus=request.spec.hardware.max_gpus, may_recreate=request.spec.rollout.no_spare_gpu == "Recreate"
        )
        if seen.target.revision is None or not _needs_room(seen):
            return allowed
        needs = read_needs(seen.target.revision.template["spec"])
        room = await self.survey.room(needs)
        return replace(allowed, room=room, on_demand=self.survey.on_demand(needs, room))

    def _step(self, seen: _Seen, target: Revision, wanted: int, policy: Policy) -> Step:
        if seen.target.frozen and seen.live:
            return keep(seen.kept, seen.live)
        return next_step(target, seen.kept, seen.live, wanted, policy, self._progress(seen))

    def _progress(self, seen: _Seen) -> Progress:
        pods, now = seen.pods, self.wall_seconds()
        waits = [now - pod.since_seconds for pod in seen.new_pods if pod.unplaced and pod.since_seconds is not None]
        serving = sum(pod.phase in ("ready", "unready") for pod in pods)
        return Progress(
            serving=max(serving, seen.live.ready) if seen.blind and seen.live else serving,
            starting=sum(pod.phase == "loading" for pod in pods),
            unplaced_seconds=max(waits, default=0.0),
            failed=bool(seen.live and seen.live.deadline_exceeded) or any(map(_fails_for_good, seen.new_pods)),
        )

    async def _apply(
        self, request: Request, target: Revision, step: Step, live: Live, kept: Sequence[Revision], count_is_ours: bool
    ) -> Applied:
        if request.held_because:
            return Applied()
        manifests = rollout.children(request, target, step)
        applied = await self.children.bring(request, manifests, step.replicas if count_is_ours else None, live)
        if applied.blocked is None and not applied.waiting:
            await self.children.tidy(request, target, step, live, kept)
        return applied

    def _unseen(self, key: Key, request: Request) -> bool:
        """We wrote the Deployment a moment ago: what its controller makes of it, at once, is what to report.

        Without this a mere change of the count, which is a new generation too, would show as a roll-out.
        """
        live = self._fleet(request)
        return live is not None and not live.seen and self.children.just_wrote(key, DEPLOYMENTS)

    def _facts(
        self, request: Request, seen: _Seen, size: Size, step: Step | None, applied: Applied, policy: Policy
    ) -> tuple[Facts, float | None]:
        """What the conditions depend on, and the seconds after which time alone may change it."""
        target, live = seen.target, self._fleet(request)
        facts = Facts(
            planned=rollout.sentence(target.revision) if target.revision and not target.refusal else "",
            refusal=target.refusal,
            blocked=applied.blocked,
            lacking=applied.lacking or self.children.unseen(PODS, request.namespace) or size.refused,
            waiting=applied.waiting,
            held=request.held_because,
            update=target.update,
            update_unknown=target.update_unknown,
            limited=size.limited or observe.limited(request, target, size.replicas),
            contest=size.contest or applied.contest,
            ignored=rollout.ignored(request, target, seen.kept),
            rollout=step.why if step and not request.held_because else "",
            waits=step.waiting if step and not request.held_because else None,
        )
        if live is None or target.revision is None:
            return facts, None
        view = View(
            live=live,
            pods=seen.pods if facts.waits else seen.new_pods,
            now_seconds=self.wall_seconds(),
            load_seconds=target.revision.load_seconds,
            failure=seen.finding.failure if seen.finding else None,
            tried=seen.tried,
            room=policy.room,
            told=seen.told,
        )
        withheld = hold.withheld(request, target.revision, live, size.replicas)
        fleet = observe.fleet(live, seen.pods, size.replicas, size.floor, waits=facts.waits is not None)
        obstacle = hindrance.obstacle(view)
        return replace(facts, fleet=fleet, obstacle=obstacle, withheld=withheld), hindrance.due(view)


def _fails_for_good(pod: PodState) -> bool:
    return pod.ended is not None and pod.ended.restarts >= hindrance.RESTARTS_THAT_LAST


def _needs_room(seen: _Seen) -> bool:
    """Whether a decision or a sentence depends on what nodes have left."""
    assert seen.target.revision is not None  # noqa: S101 - asked only with one
    return starts_rollout(seen.target.revision, seen.live) or any(pod.unplaced for pod in seen.pods)


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(["spec", *map(str, first["loc"])])
    return f"{path}: {first['msg']} (got {str(first.get('input'))[:80]!r})"
