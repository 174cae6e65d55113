"""One reconcile of one service: gather → plan → apply what differs → report. A second run writes nothing.

What each step does stands elsewhere: which plan runs in ``core/rollout.py``, the next step of the fleet in
``core/steps.py``, writing children in ``children.py``, what is in the way in ``core/hindrance.py``, the status in
``report.py``. Nodes and logs are looked at only when a decision or a sentence needs them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from plimsoll.adapters.ports import PODS, SERVICES
from plimsoll.api import reasons
from plimsoll.api.parse import InvalidServiceError
from plimsoll.api.rollout_reasons import NO_SPARE_GPU
from plimsoll.control.advisor import Advisor, shown
from plimsoll.control.autoscalers import Autoscalers
from plimsoll.control.beside import Beside
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Applied, Children, Live, kept_revisions
from plimsoll.control.creation import Creation
from plimsoll.control.experiments import Experiments
from plimsoll.control.fleets import Fleets, limited
from plimsoll.control.observer import Observer
from plimsoll.control.patience import Patience
from plimsoll.control.planning import Planner
from plimsoll.control.postmortem import Finding, Postmortem
from plimsoll.control.report import Reporter
from plimsoll.control.scaler import Scaler
from plimsoll.control.situation import Situation, failed_changes
from plimsoll.control.sized_fleet import Fleet
from plimsoll.control.survey import Survey
from plimsoll.control.traffic import TrafficWatch
from plimsoll.core import hindrance, hold, learn, observe, replan, rollout, speed
from plimsoll.core.conditions import Facts, Problem
from plimsoll.core.handover import Handover
from plimsoll.core.hindrance import View
from plimsoll.core.kinds import Kinds
from plimsoll.core.live import template_hash
from plimsoll.core.loan import Lender, Loan
from plimsoll.core.manifests.revision import Revision, restarted
from plimsoll.core.manifests.workload import Workload
from plimsoll.core.observed import Observed
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.placement import read_needs
from plimsoll.core.plan.release import unrecorded
from plimsoll.core.pods import PodState
from plimsoll.core.refusals import MESSAGE_LIMIT
from plimsoll.core.replica import capacity_of
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Target
from plimsoll.core.sizing import Size
from plimsoll.core.stable_text import stable
from plimsoll.core.steps import Policy, Progress, Step, keep, next_step, starts_rollout
from plimsoll.core.tuned import as_planned, with_lessons

LEAVING_RECHECK_SECONDS: Final = 1.0
FIRST_LOOK_SECONDS: Final = 1.0
REFUSED_RECHECK_SECONDS: Final = 15.0
"""A refusal may end without an event of ours: a ConfigMap corrected, a right granted, a GPU freed."""
CONTEST_RECHECK_SECONDS: Final = 60.0
"""A contest is over when nobody changes anything for a while: that makes no event."""

INTEGRATION_RECHECK_SECONDS: Final = 60.0
"""As for a refusal, but the fleet is not concerned, and a missing right concerns every service at once."""


@dataclass(frozen=True)
class _Seen:
    """What there is of a service, and what should run."""

    target: Target
    kept: Sequence[Revision]
    fleets: Fleets
    pods: tuple[PodState, ...]
    """Of the fleet, those that are leaving left out."""
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
    beside: Beside
    reporter: Reporter
    survey: Survey
    postmortem: Postmortem
    creation: Creation
    scaler: Scaler
    observer: Observer
    traffic: TrafficWatch
    advisor: Advisor
    autoscalers: Autoscalers
    experiments: Experiments
    kinds: Callable[[str], Kinds]
    """Optional kinds as found in a namespace."""
    wall_seconds: Callable[[], float]
    """Seconds since 1970: to compare with times that pods carry."""
    patience: Patience = field(default_factory=Patience)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; the seconds after which to look again, or None when only an event should cause it."""
        service = self.cache.get(SERVICES, *key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            self.reporter.forget(key)
            self.children.forget(key)
            self.patience.forget(key)
            self.scaler.forget(key)
            self.observer.forget(key)
            self.traffic.forget(key)
            self.advisor.forget(key)
            self.experiments.forget(key)
            return None
        try:
            request = read_request(service)
        except InvalidServiceError as error:
            facts = Facts(refusal=Problem(reasons.INVALID_SPEC.name, stable(str(error), MESSAGE_LIMIT)))
            return await self.reporter.report(key, service, facts, None, Size(0, 0))
        return await self._act(key, service, request)

    async def _act(self, key: Key, service: Mapping[str, Any], request: Request) -> float | None:
        live = self.cache.children(key)
        kept = kept_revisions(live)
        request, load = self.traffic.look(key, request, (service.get("status") or {}).get("load") or {})
        request = await self.experiments.tuned(service, request.lasting(restarted(kept)), kept)
        request = with_lessons(request, kept)
        seen = await self._with_events(request, await self._gather(key, request, kept, live))
        target, told = seen.target, (service.get("status") or {}).get("observed") or {}
        request = replace(request, step_factor=speed.told(told, target.revision.plan if target.revision else {}))
        size = await self._size(key, service, request, seen, live)
        wanted = size.replicas
        policy = await self._policy(request, seen, size)
        step, applied = None, Applied()
        if target.revision:
            step, hand = self._step(seen, target.revision, size, policy)
            applied = await self._apply(request, seen, target.revision, step, hand, live, size.ours)
        now = replace(seen, fleets=self._fleets(request, target, self.cache.children(key)))
        if self._unseen(key, now.fleets):
            return FIRST_LOOK_SECONDS
        facts, again = self._facts(request, now, size, step, applied, policy)
        settled = target.revision is not None and now.fleets.settled(target.revision)
        observed = self.observer.observe(key, request, target.revision, told, settled=settled)
        observed = replace(observed, load=load)
        plan = rollout.reported_plan(target, wanted)
        finding = observed.finding.word if observed.finding else ""
        failed = failed_changes(service, request, target.revision, finding)
        advice = await self.advisor.advise(
            key, request, target.revision, observed.finding, _advised(service), failed, shown(observed)
        )
        trial = await self.experiments.advance(
            service, self._situation(key, request, now, size, observed, advice, live)
        )
        said = replace(facts, observed=(trial.condition,))
        sized = replace(size, entries=(*size.entries, *trial.entries))
        grounds = partial(self.planner.grounds, target.answer)
        written = await self.reporter.report(
            key, service, said, plan, sized, observed, advice, trial.tuning, grounds=grounds
        )
        self.scaler.reported(key, size.entries)
        if applied.waiting:
            return LEAVING_RECHECK_SECONDS
        changeable = facts.refusal or facts.blocked or facts.lacking or facts.update_unknown or facts.waits
        waiting = self.patience.seconds(key, seen.pods, self.wall_seconds())
        contested = CONTEST_RECHECK_SECONDS if applied.contest else None
        looking_again = REFUSED_RECHECK_SECONDS if changeable else waiting
        apart = INTEGRATION_RECHECK_SECONDS if applied.beside else None
        waits = (
            again,
            written,
            trial.again_seconds,
            looking_again,
            applied.again_seconds,
            contested,
            size.again_seconds,
            apart,
        )
        return min((wait for wait in waits if wait is not None), default=None)

    async def _gather(self, key: Key, request: Request, kept: Sequence[Revision], live: Live) -> _Seen:
        """What runs and what should; a plan whose engine failed is made once more with what the engine said."""
        known, kinds = replan.known(request, kept), self.kinds(request.namespace)
        target = rollout.choose_target(request, await self.planner.plan(request, known), kept, known, kinds)
        pods = tuple(pod for pod in self.cache.pods(key) if pod.phase != "terminating")
        seen = _Seen(target, kept, self._fleets(request, target, live), pods)
        finding = await self.postmortem.of(request.namespace, seen.new_pods)
        if finding is None or target.revision is None or target.frozen or request.held_because:
            return replace(seen, finding=finding)
        lesson = learn.correction(finding.failure, finding.log, target.revision.plan)
        if lesson is None:
            return replace(seen, finding=finding)
        if replan.was_tried(request, kept):
            return replace(seen, finding=finding, tried=replan.TRIED)
        together = lesson.added_to(known)
        same = as_planned(request, target.revision)
        again = await self.planner.plan(same, together)
        target, tried = rollout.replanned(same, target, kept, again, together, kinds)
        fleets, unexplained = self._fleets(request, target, live), finding if target is seen.target else None
        return replace(seen, target=target, fleets=fleets, tried=tried, finding=unexplained)

    def _fleets(self, request: Request, target: Target, live: Live) -> Fleets:
        return Fleets.of(request, target, live, self.kinds(request.namespace))

    async def _with_events(self, request: Request, seen: _Seen) -> _Seen:
        live = seen.fleets.live
        if live is None:
            return seen
        pods, now = seen.new_pods, self.wall_seconds()
        return replace(seen, told=await self.creation.told(request.namespace, pods, live.template, now))

    async def _size(self, key: Key, service: Mapping[str, Any], request: Request, seen: _Seen, live: Live) -> Size:
        """How many replicas are wanted. While pods are being replaced, demand waits."""
        revision, fleets = seen.target.revision, seen.fleets
        if revision is None:
            return Size(0, 0)
        lent = self.experiments.lent(key, service, live)
        if seen.target.frozen and (kept := fleets.live or fleets.old):
            whole = lent.whole(kept.asked)
            return Size(lent.runs(whole), min(whole, 1), lender=Lender(whole), lent=lent)
        status = service.get("status") or {}
        fleet = Fleet(
            key=key,
            request=request,
            revision=revision,
            workload=fleets.found,
            decisions=status.get("decisions") or (),
            told=status.get("scaling") or {},
            pods=seen.pods,
            busy_with=self._busy_with(seen, revision),
            lent=lent,
        )
        other = await self.autoscalers.of(fleets.mine, key, self.scaler.edited_count(fleet))
        return self.scaler.size(replace(fleet, other=other))

    def _situation(
        self,
        key: Key,
        request: Request,
        seen: _Seen,
        size: Size,
        observed: Observed,
        advice: Mapping[str, Any] | None,
        live: Live,
    ) -> Situation:
        """The service as an experiment needs to know it."""
        fleet, target = seen.fleets.live, seen.target.revision
        at_rest = False
        if target and fleet and seen.fleets.settled(target) and not seen.target.frozen:
            at_rest = not starts_rollout(target, fleet) and fleet.ready == fleet.asked == size.replicas
        capacity = capacity_of(target.plan, request.spec) if target else None
        asked = fleet.asked if fleet else 0
        return Situation(
            key=key,
            request=request,
            target=None if seen.target.frozen else target,
            live=live,
            pods=seen.new_pods,
            replicas=size.replicas,
            at_rest=at_rest,
            changes=target is None or seen.target.frozen or starts_rollout(target, fleet),
            busy="the number of replicas is changing" if size.entries else "",
            advice=advice,
            finding=observed.finding.word if observed.finding else "",
            known=observed.available is not None and observed.available.status == "True",
            late=observed.slo is not None and observed.slo.status == "False",
            targets=(capacity.ttft_seconds, capacity.itl_seconds) if capacity else (None, None),
            weighed=self.advisor.grounds(key),
            lent=size.lent,
            lender=size.lender or Lender(size.replicas),
            given=asked,
            ready=fleet.ready if fleet else 0,
            there=sum(pod.phase != "failing" for pod in self.cache.pods(key)),
            placed=len(seen.pods) >= asked and not any(map(_finds_a_node, seen.pods)),
        )

    def _busy_with(self, seen: _Seen, revision: Revision) -> str:
        """Why demand waits; empty: it counts."""
        live = seen.fleets.live
        if seen.fleets.unseen:
            return f"{seen.fleets.mine.kind}s cannot be seen now"
        if seen.fleets.old:
            return "one fleet follows another"
        mixed = live is not None and (starts_rollout(revision, live) or live.updated < live.replicas)
        return "a roll-out is under way" if mixed and not self._progress(seen).failed else ""

    async def _policy(self, request: Request, seen: _Seen, size: Size) -> Policy:
        """What the roll-out may count on. Nodes are looked at only where a pod would have to be placed."""
        allowed = Policy(
            max_gpus=request.spec.hardware.max_gpus, may_recreate=request.spec.rollout.no_spare_gpu == "Recreate"
        )
        if seen.target.revision is None or size.lent.loan or not _needs_room(seen):
            return allowed
        needs = read_needs(seen.target.revision.template["spec"])
        room = await self.survey.room(needs, seen.target.revision.nodes)
        return replace(allowed, room=room, on_demand=self.survey.on_demand(needs, room))

    def _step(self, seen: _Seen, target: Revision, size: Size, policy: Policy) -> tuple[Step, Handover]:
        """The fleet's next step, and what becomes of one of the other kind. Canary and control go, and what is lent
        comes back, before a template changes: a surge beside them might be more GPUs than the service may have.
        """
        wanted = size.replicas
        live, progress = seen.fleets.live, self._progress(seen)
        hand = seen.fleets.handover(seen.target, wanted, policy, progress)
        if seen.target.frozen and live:
            return replace(keep(seen.kept, live), replicas=wanted), hand
        if (size.lent.loan or size.lent.beside) and live and starts_rollout(target, live):
            waiting = _waits_for(size.lent.loan) if size.lent.loan else None
            return replace(keep(seen.kept, live), replicas=wanted, waiting=waiting), hand
        return limited(next_step(target, seen.kept, live, wanted, policy, progress), hand), hand

    def _progress(self, seen: _Seen) -> Progress:
        pods, now, live = seen.pods, self.wall_seconds(), seen.fleets.live
        waits = [now - pod.since_seconds for pod in seen.new_pods if pod.unplaced and pod.since_seconds is not None]
        serving = sum(pod.phase in ("ready", "unready") and pod.serves for pod in pods)
        return Progress(
            # Pods and their workload are watched apart, and either view may lag: nothing serves only if both say so.
            serving=max(serving, live.ready) if live else serving,
            starting=sum(pod.phase == "loading" for pod in pods),
            unplaced_seconds=max(waits, default=0.0),
            failed=bool(live and live.deadline_exceeded) or any(map(_fails_for_good, seen.new_pods)),
        )

    async def _apply(
        self,
        request: Request,
        seen: _Seen,
        target: Revision,
        step: Step,
        hand: Handover,
        live: Live,
        count_is_ours: bool,
    ) -> Applied:
        """The fleet, as far as one of the other kind leaves it room; then that one; then what stands beside."""
        if request.held_because:
            return Applied()
        fleets, manifests = seen.fleets, rollout.children(request, target, step)
        count = step.replicas if count_is_ours else None
        applied = await self.children.bring(request, manifests, fleets.mine, count, live)
        if applied.blocked is None and not applied.waiting:
            if fleets.old:
                await self._retire(request, fleets.other, hand.old_replicas, live, applied)
            else:
                await self.children.tidy(request, target, step, live, seen.kept)
        if not applied.waiting:
            applied.beside = await self.beside.bring(request, live, applied)
        return applied

    async def _retire(
        self, request: Request, other: Workload, replicas: int | None, live: Live, applied: Applied
    ) -> None:
        """The fleet of the other kind: fewer replicas, unless somebody else's autoscaler sets them; or its end."""
        key = Key(request.namespace, request.name)
        if replicas is None or await self.autoscalers.of(other, key) is None:
            await self.children.retire(request, other, replicas, live, applied)

    def _unseen(self, key: Key, fleets: Fleets) -> bool:
        """We wrote the workload a moment ago: what its controller makes of it, at once, is what to report.

        Without this a mere change of the count, which is a new generation too, would show as a roll-out.
        """
        kind, _ = fleets.place
        return fleets.live is not None and not fleets.live.seen and self.children.just_wrote(key, kind)

    def _facts(
        self, request: Request, seen: _Seen, size: Size, step: Step | None, applied: Applied, policy: Policy
    ) -> tuple[Facts, float | None]:
        """What the conditions depend on, and the seconds after which time alone may change it."""
        target, live = seen.target, seen.fleets.seen(seen.pods, size.replicas)
        facts = Facts(
            planned=rollout.sentence(target.revision) if target.revision and not target.refusal else "",
            unrecorded=unrecorded(target.revision.plan["choice"]["engineVersion"]) if target.revision else "",
            refusal=target.refusal,
            blocked=applied.blocked,
            lacking=applied.lacking or self.children.unseen(PODS, request.namespace) or size.refused,
            waiting=applied.waiting,
            held=request.held_because,
            update=target.update,
            update_unknown=target.update_unknown,
            limited=size.limited or observe.limited(request, target, size.replicas),
            contest=size.contest or applied.contest,
            integrations=applied.beside,
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
        waits, old = facts.waits is not None, seen.fleets.old
        withheld = hold.withheld(request, target.revision, old or live, size.replicas)
        fleet = observe.fleet(live, seen.pods, size.replicas, size.floor, waits=waits, old=old)
        obstacle = hindrance.obstacle(view)
        return replace(facts, fleet=fleet, obstacle=obstacle, withheld=withheld), hindrance.due(view)


def _advised(service: Mapping[str, Any]) -> Mapping[str, Any]:
    return (service.get("status") or {}).get("recommendation") or {}


def _waits_for(loan: Loan) -> Obstacle:
    text = f"the new template waits until an experiment's pods are gone and the fleet is whole again: {loan}"
    return Obstacle(NO_SPARE_GPU.name, text)


def _fails_for_good(pod: PodState) -> bool:
    return pod.ended is not None and pod.ended.restarts >= hindrance.RESTARTS_THAT_LAST


def _finds_a_node(pod: PodState) -> bool:
    return pod.phase == "pending" and not pod.unplaced


def _needs_room(seen: _Seen) -> bool:
    """Whether a decision or a sentence depends on what nodes have left."""
    assert seen.target.revision is not None  # noqa: S101 - asked only with one
    return starts_rollout(seen.target.revision, seen.fleets.live) or any(pod.unplaced for pod in seen.pods)
