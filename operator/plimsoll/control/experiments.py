"""Experiments with one flag: two pods beside the fleet, what Prometheus says of them, and what becomes of it.

What follows from what is decided in ``core/experiment.py``; what is stored stands in ``status.tuning``. Here the world
is looked at, and canary and control are made and removed: as soon as no experiment explains them they go.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, MetricsSource
from plimsoll.api import experiment_reasons, names, reasons
from plimsoll.api.reason import Reason
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Children, Live
from plimsoll.control.gates import Gates
from plimsoll.control.planning import Planner
from plimsoll.control.survey import Survey
from plimsoll.core import experiment as core
from plimsoll.core import replan, replay, rollout, tuned
from plimsoll.core.conditions import Condition
from plimsoll.core.drift import digest
from plimsoll.core.experiment import Experiment, Outcome, Past, Proposal, Scene, Timing, TrialPod
from plimsoll.core.experiment_record import Record, read_record
from plimsoll.core.freeze import NEVER, Freeze, frozen
from plimsoll.core.judge import Aim, Pair
from plimsoll.core.ledger import Entry
from plimsoll.core.manifests.revision import Revision, current
from plimsoll.core.manifests.trial import trial_deployment, trial_name, trial_workload
from plimsoll.core.placement import read_needs
from plimsoll.core.plan.result import Plan
from plimsoll.core.pods import TRIAL_TRACKS, PodState
from plimsoll.core.request import Request
from plimsoll.core.sampling import Answer
from plimsoll.core.trial_windows import read_windows, window_query

RETUNE: Final = "Retune"
LEAST_REPLICAS: Final = 2
"""So many must serve beside canary and control: with one alone, a third of the users would meet a bad canary."""
AIMS: Final[Mapping[str, Aim]] = {"DecodeBound": "token"}
GATED_FLAGS: Final = frozenset({"--kv-cache-dtype"})
"""Flags of the settings that change answers: what was kept of them is for the engine and the GPU that were judged."""
REFUSED_SECONDS: Final = 150.0
"""For so long a write that the API server refuses is tried again before the experiment is given up."""
TRIAL_PODS: Final = 2
AT_ONCE_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Situation:
    """One service at one moment, as the reconciler has gathered it."""

    key: Key
    request: Request
    target: Revision | None
    live: Live
    pods: Sequence[PodState]
    """Of the fleet, made from the target's template."""
    replicas: int
    at_rest: bool
    """The fleet is as it should be, and all of it ready."""
    busy: str
    """Why this is no time for an experiment; empty: nothing speaks against it."""
    advice: Mapping[str, Any] | None
    finding: str
    known: bool
    """Metrics are complete."""
    late: bool
    """A latency target is missed."""
    targets: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True)
class Trial:
    """What became of it: what to store, to say and to enter, and when to look again."""

    tuning: Mapping[str, Any]
    condition: Condition
    entries: tuple[Entry, ...] = ()
    again_seconds: float | None = None


@dataclass
class Experiments:
    """Runs at most one experiment a service."""

    source: MetricsSource | None
    labels: Mapping[str, str]
    cache: Cache
    planner: Planner
    children: Children
    survey: Survey
    gates: Gates
    wall_seconds: Callable[[], float]
    timing: Timing = field(default_factory=Timing)
    _windows: dict[Key, tuple[float, dict[int, Pair]]] = field(default_factory=dict)
    """Windows that were asked for, by their number, of the experiment that began to measure then."""

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._windows.pop(key, None)

    async def tuned(self, service: Mapping[str, Any], request: Request, kept: Sequence[Revision]) -> Request:
        """The request with the flags that experiments have found; without them where planning would refuse them."""
        flags = _flags(read_record(_stored(service)), request, kept)
        found = tuned.with_flags(request, flags)
        running = current(kept)
        if not flags or (running and running.fingerprint == found.fingerprint):
            return found
        plan = await self.planner.plan(found, replan.known(found, kept))
        if not isinstance(plan, Plan):
            return request
        judged = tuned.kept_flags(request, kept)
        if running and any(flags.get(flag) == judged.get(flag) for flag in GATED_FLAGS & judged.keys()):
            return found if _same_engine(plan, running) else tuned.with_flags(request, _without(flags, GATED_FLAGS))
        return found

    def trying(self, service: Mapping[str, Any]) -> bool:
        """Whether canary and control are to run: they take a part of the traffic, so the count stays."""
        running = read_record(_stored(service)).experiment
        return running is not None and running.on_trial

    async def advance(self, service: Mapping[str, Any], seen: Situation) -> Trial:
        """One look: the next step of the experiment that runs, or the beginning of one; then its pods."""
        record = read_record(_stored(service))
        wish = seen.request.wish if seen.request.wish != record.answered else ""
        running, past, why_not = record.experiment, record.past, ""
        grounds = None
        if running is not None:
            grounds = replay.Stepped(running, await self._scene(seen, running, wish), self.timing)
            following = core.step(running, grounds.scene, self.timing)
            running, past = following.experiment, (*past, *filter(None, [following.past]))
        elif wish.startswith("revert") and seen.target and tuned.flags_of(seen.request, seen.target):
            running = self._taking_back(seen, past)
        else:
            running, past, why_not = await self._begun(seen, past, wish)
        stopped = await self._bring(seen, record.experiment, running)
        if stopped and running is not None and running.on_trial:
            past = (*past, core.abandoned(running, self.wall_seconds(), stopped))
            running = grounds = None
        waits = bool(why_not) and wish.startswith("approve")
        after = Record(running, past, record.answered if waits else seen.request.wish)
        due = core.due_seconds(running, self.wall_seconds(), self.timing) if running else None
        again = due if running == record.experiment else AT_ONCE_SECONDS
        if why_not and running is None:
            again = self._thaws_seconds(seen)
        condition = _condition(running, seen, past, why_not, self._ungated(_proposal(seen), seen))
        return Trial(after.written(), condition, tuple(_entries(record, after, grounds)), again)

    # What is seen.

    async def _scene(self, seen: Situation, running: Experiment, wish: str) -> Scene:
        target, now = seen.target, self.wall_seconds()
        tried = running.proposal
        flags = tuned.flags_of(seen.request, target) if target else {}
        pods = {pod.track: pod for pod in self._trial_pods(seen.key)}
        return Scene(
            now=now,
            base=target.name if target else "",
            rolled_out=seen.at_rest,
            carries=flags.get(tried.flag) == tried.after,
            canary=_trial_pod(pods.get(names.TRACK_CANARY)),
            control=_trial_pod(pods.get(names.TRACK_CONTROL)),
            pairs=await self._pairs(seen.key, running, pods) if running.phase == "Measuring" else (),
            start_seconds=float(target.deadline_seconds) if target else 0.0,
            gate=self.gates.seen(seen.request, running, seen.live),
            gate_seconds=self.gates.seconds(seen.request),
            stop=self._stop(seen, running, now),
            wish=wish.partition(" ")[0],
            worse=_worse(seen, running),
            late=seen.late,
            targets=seen.targets,
        )

    async def _pairs(self, key: Key, running: Experiment, pods: Mapping[str, PodState]) -> list[Pair]:
        """All windows that are over, each asked for once."""
        since, known = self._windows.get(key, (0.0, {}))
        if since != running.since:
            since, known = self._windows[key] = (running.since, {})
        due = core.windows_due(running, self.wall_seconds(), self.timing)
        for number in range(due):
            if number not in known and (pair := await self._pair(key, running, number, pods)) is not None:
                known[number] = pair
        # A window that could not be asked for now is asked for again; until then the experiment does not go on.
        return [known[number] for number in range(due) if number in known]

    async def _pair(self, key: Key, running: Experiment, number: int, pods: Mapping[str, PodState]) -> Pair | None:
        if self.source is None:
            return None
        seconds = self.timing.window_seconds
        ago = self.wall_seconds() - running.since - (number + 1) * seconds
        by_track = {track: pods[track].name if track in pods else "" for track in TRIAL_TRACKS}
        query = window_query(filter(None, by_track.values()), key.namespace, seconds, max(0.0, ago), self.labels)
        answer = await self.source.query(query)
        if not isinstance(answer, Answer):
            return None
        found = read_windows(answer, seconds)
        return Pair(found.get(by_track[names.TRACK_CONTROL]), found.get(by_track[names.TRACK_CANARY]))

    # What is begun.

    async def _begun(
        self, seen: Situation, past: tuple[Past, ...], wish: str
    ) -> tuple[Experiment | None, tuple[Past, ...], str]:
        """An experiment, if there is something to try, somebody allows it and nothing is in the way."""
        proposal, now = _proposal(seen), self.wall_seconds()
        if proposal is None or seen.target is None:
            return None, past, ""
        if wish.startswith("reject"):
            turned_down = Past(
                now,
                proposal.flag,
                proposal.before,
                proposal.after,
                "rejected",
                "a person did not want it",
                proposal.basis,
            )
            return None, (*past, turned_down), ""
        if no_gate := self._ungated(proposal, seen):
            return None, past, no_gate
        approved = wish.startswith("approve")
        if not approved and proposal.setting not in by_itself(seen.request):
            return None, past, ""
        early = "" if approved else core.over_budget(past, now, self.timing)
        freeze = self._freeze(seen, now)
        left = "a quality gate of the last experiment is still there" if self._leftovers(seen) else ""
        why_not = early or (freeze.why(now) if freeze else "") or _unfit(seen) or left or await self._no_room(seen)
        if why_not:
            return None, past, why_not
        return core.begin(proposal, seen.target.name, now, late=seen.late), past, ""

    def _ungated(self, proposal: Proposal | None, seen: Situation) -> str:
        """Why a change of answers may not be tried, because nobody would judge them."""
        gated = proposal is not None and proposal.setting in core.GATED
        return self.gates.missing(seen.request) if gated else ""

    def _leftovers(self, seen: Situation) -> bool:
        return bool(self.gates.leftovers(seen.request, seen.live))

    def _stop(self, seen: Situation, running: Experiment, now: float) -> str:
        """Why an experiment that runs may not go on."""
        no_gate = self.gates.missing(seen.request) if running.behind_gate else ""
        return _stop(seen, running) or no_gate or _frozen_out(frozen(seen.request.spec.tuning.freeze, now), now)

    def _freeze(self, seen: Situation, now: float) -> Freeze | None:
        """A freeze window that an experiment begun now would meet before its verdict."""
        proposal = _proposal(seen)
        ahead = self.timing.trial_seconds + (seen.target.load_seconds if seen.target else 0)
        ahead += self.gates.seconds(seen.request) if proposal and proposal.setting in core.GATED else 0
        return frozen(seen.request.spec.tuning.freeze, now, ahead)

    def _thaws_seconds(self, seen: Situation) -> float | None:
        """When a freeze window ends that an experiment waits for; None: it waits for something else."""
        now = self.wall_seconds()
        freeze = self._freeze(seen, now)
        return freeze.ends_seconds - now if freeze and freeze.ends_seconds < NEVER else None

    async def _no_room(self, seen: Situation) -> str:
        """Why there are no GPUs for two more pods."""
        assert seen.target is not None  # noqa: S101 - asked only with one
        each, allowed = rollout.gpus_per_replica(seen.target), seen.request.spec.hardware.max_gpus
        needed = (seen.replicas + TRIAL_PODS) * each
        if needed > allowed:
            return f"canary and control would make {needed} GPUs, hardware.maxGPUs is {allowed}"
        room = await self.survey.room(read_needs(seen.target.template["spec"]), TRIAL_PODS)
        if room is None:
            return "the operator may not look at nodes, so no GPU counts as free"
        return "" if room.fits >= TRIAL_PODS else f"there are free GPUs for {room.fits} of the two pods it needs"

    def _taking_back(self, seen: Situation, past: Sequence[Past]) -> Experiment:
        """What experiments have changed goes, all of it; the last of the changes stands for them."""
        assert seen.target is not None  # noqa: S101 - asked only with one
        flags = tuned.flags_of(seen.request, seen.target)
        last = next((p for p in reversed(past) if p.outcome == "kept" and flags.get(p.flag) == p.after), None)
        flag, value = (last.flag, last.after) if last else max(flags.items())
        before, basis = (last.before, last.basis) if last else ("unset", _basis(seen, ""))
        proposal, now = Proposal("", flag, before, value, "ttft", "", "", basis), self.wall_seconds()
        return Experiment(proposal, seen.target.name, "Reverting", now, now, "a person took it back")

    # Its pods.

    async def _bring(self, seen: Situation, stored: Experiment | None, running: Experiment | None) -> str:
        """Canary and control as the status says they are to be; why they cannot be, where that is so.

        A step counts from when it is stored: pods come after it and go after it, so that who starts anew in between
        finds either what the step was decided on, or the step.
        """
        if seen.request.held_because or seen.target is None:
            return ""
        if stored is None or not stored.on_trial:
            for track in TRIAL_TRACKS:
                await self.children.drop(seen.request, DEPLOYMENTS, trial_name(seen.key.name, track), seen.live)
            await self.gates.drop(seen.request, seen.live)
            return ""
        return await self._made(seen, stored) if running is not None and running.on_trial else ""

    async def _made(self, seen: Situation, running: Experiment) -> str:
        """Both Deployments, each made once: while it stands its template stays, whatever is planned meanwhile."""
        assert seen.target is not None  # noqa: S101 - asked only with one
        flags = tuned.flags_of(seen.request, seen.target) | {running.proposal.flag: running.proposal.after}
        for track in TRIAL_TRACKS:
            name = trial_name(seen.key.name, track)
            if (DEPLOYMENTS, name) in seen.live:
                continue
            revision = seen.target if track == names.TRACK_CONTROL else await self._tried(seen, flags)
            if isinstance(revision, str):
                return revision
            manifest = trial_deployment(rollout.owner(seen.request), revision, track, gated=running.gated)
            applied = await self.children.bring(
                seen.request, [manifest], trial_workload(seen.key.name, track), 1, seen.live
            )
            if applied.blocked:
                return self._lasting(running, applied.blocked.message)
        if not running.gated:
            return ""
        pods = self._trial_pods(seen.key)
        return self._lasting(running, await self.gates.bring(seen.request, seen.target, running, seen.live, pods))

    def _lasting(self, running: Experiment, refused: str) -> str:
        """A refusal, once it has lasted: one that is over soon ends no experiment."""
        return refused if self.wall_seconds() - running.since > REFUSED_SECONDS else ""

    def _trial_pods(self, key: Key) -> list[PodState]:
        return [pod for pod in self.cache.pods(key, TRIAL_TRACKS) if pod.phase != "terminating"]

    async def _tried(self, seen: Situation, flags: Mapping[str, str]) -> Revision | str:
        """What the canary runs: the plan with the flag, and all others as they are kept; why there is none.

        Planned anew, a service that names no version gets the newest: then two things would differ, not one.
        """
        assert seen.target is not None  # noqa: S101 - asked only with one
        request = tuned.as_planned(tuned.with_flags(tuned.without_flags(seen.request), flags), seen.target)
        plan = await self.planner.plan(request)
        if not isinstance(plan, Plan):
            return "planning with it does not hold any more"
        if not _same_engine(plan, seen.target):
            engine = f"vLLM {plan.choice.engine_version} on {plan.choice.gpu}"
            return f"planned now it would run {engine}, and not as the fleet does: accept the new plan first"
        return rollout.render(request, plan, 0)


def by_itself(request: Request) -> frozenset[str]:
    """Settings that may be tried without anybody's word."""
    tuning = request.spec.tuning
    unjudged = () if tuning.quality_gate else core.GATED
    return frozenset(tuning.allow).difference(unjudged) if tuning.mode == "Auto" else frozenset()


def _stored(service: Mapping[str, Any]) -> Mapping[str, Any]:
    return (service.get("status") or {}).get("tuning") or {}


def _flags(record: Record, request: Request, kept: Sequence[Revision]) -> dict[str, str]:
    """Those that were kept, and the one that is being kept; without what is being taken back."""
    running, flags = record.experiment, tuned.kept_flags(request, kept)
    if running is None:
        return flags
    tried = running.proposal
    if running.phase == "Reverting":
        return {} if not tried.setting else _back(flags, tried)
    newest = current(kept)
    if running.phase == "Keeping" and newest and newest.name == running.base and not tuned.pinned(request, tried.flag):
        return {**flags, tried.flag: tried.after}
    return flags


def _same_engine(plan: Plan, running: Revision) -> bool:
    """Whether a plan's engine and GPU are those that run: what was found of one tells nothing of another."""
    choice = running.plan["choice"]
    return (plan.choice.engine_version, plan.choice.gpu) == (choice["engineVersion"], choice["gpu"])


def _without(flags: Mapping[str, str], others: Collection[str]) -> dict[str, str]:
    return {flag: value for flag, value in flags.items() if flag not in others}


def _back(flags: Mapping[str, str], tried: Proposal) -> dict[str, str]:
    return {flag: value for flag, value in flags.items() if (flag, value) != (tried.flag, tried.after)}


def _proposal(seen: Situation) -> Proposal | None:
    """The recommendation, as something to try."""
    advice = seen.advice
    if not advice or not seen.finding:
        return None
    aim = AIMS.get(seen.finding, "ttft")
    setting, flag, before, after, why = (str(advice[key]) for key in ("setting", "flag", "from", "to", "why"))
    return Proposal(setting, flag, before, after, aim, seen.finding, why, _basis(seen, seen.finding))


def _basis(seen: Situation, finding: str) -> str:
    return basis_of(tuned.without_flags(seen.request), seen.target, finding)


def basis_of(request: Request, revision: Revision | None, finding: str) -> str:
    """On what grounds a change is tried: what was asked for, the engine, what limits the service, and who judges."""
    version = revision.plan["choice"]["engineVersion"] if revision else ""
    gate = request.spec.tuning.quality_gate
    return digest([request.planned, version, finding, *([gate.model_dump()] if gate else [])])


def _unfit(seen: Situation) -> str:
    """Why the fleet is in no state for an experiment."""
    if seen.request.held_because:
        return seen.request.held_because
    if seen.target and seen.target.nodes > 1:
        return "replicas over several nodes are not experimented with"
    if any((DEPLOYMENTS, trial_name(seen.key.name, track)) in seen.live for track in TRIAL_TRACKS):
        return "pods of the last experiment are still there"
    if seen.busy or not seen.at_rest:
        return seen.busy or "the fleet is not at rest"
    if not seen.known:
        return "metrics are not complete: see MetricsAvailable"
    ready = sum(pod.phase == "ready" and pod.serves for pod in seen.pods)
    if ready < LEAST_REPLICAS:
        return f"{ready} replica serves: with fewer than {LEAST_REPLICAS} too many requests would meet a bad canary"
    return ""


def _frozen_out(freeze: Freeze | None, now: float) -> str:
    return f"frozen: {freeze.why(now)}" if freeze else ""


def _stop(seen: Situation, running: Experiment) -> str:
    """Why an experiment that runs may not go on."""
    tried = running.proposal
    if seen.request.spec.tuning.mode == "Off":
        return "spec.tuning.mode is Off"
    if seen.request.held_because:
        return seen.request.held_because
    if tuned.pinned(seen.request, tried.flag):
        return f"{tried.flag} stands in spec.engine.extraArgs now"
    if running.behind_gate and tried.basis != _basis(seen, tried.finding):
        return "spec.tuning.qualityGate is another one now"
    each = rollout.gpus_per_replica(seen.target) if seen.target else 0
    if (seen.replicas + TRIAL_PODS) * each > seen.request.spec.hardware.max_gpus:
        return "hardware.maxGPUs leaves no room for it any more"
    if any(pod.unplaced for pod in seen.pods):
        return "the fleet needs the GPUs"
    return ""


def _worse(seen: Situation, running: Experiment) -> str:
    """What is wrong with the fleet since it has the change."""
    failing = [pod for pod in seen.pods if pod.ended is not None and pod.ended.restarts > 0]
    if failing:
        return f"{failing[0].name} has ended {failing[0].ended.restarts} times since"  # type: ignore[union-attr]
    if running.phase == "Watching" and seen.late and not running.late_before:
        return "a latency target is missed that was met with the old flags"
    return ""


def _trial_pod(pod: PodState | None) -> TrialPod | None:
    if pod is None:
        return None
    failed = ""
    if pod.phase == "failing":
        failed = pod.obstacle.message if pod.obstacle else "its container ended"
    return TrialPod(pod.phase == "ready" or pod.answers, failed)


def _condition(
    running: Experiment | None, seen: Situation, past: Sequence[Past], why_not: str, no_gate: str
) -> Condition:
    """Experimenting, as it is now."""
    if running is not None:
        return _say("True", _RUNS[running.phase], _sentence(running))
    if seen.request.spec.tuning.mode == "Off":
        return _say("False", reasons.DISABLED, "spec.tuning.mode is Off")
    proposal = _proposal(seen)
    if proposal and no_gate:
        return _say("False", experiment_reasons.GATE_MISSING, f"{_change(proposal)}: {no_gate}")
    if proposal and why_not:
        return _say("False", experiment_reasons.NOT_NOW, f"{_change(proposal)}: not now, {why_not}")
    if proposal:
        return _say("False", experiment_reasons.PROPOSED, f"{_change(proposal)} is proposed: {proposal.why}")
    last = f"; the last one ({past[-1].flag} {past[-1].after}): {past[-1].outcome}, {past[-1].why}" if past else ""
    return _say("False", reasons.NO_EXPERIMENT, f"no experiment runs{last}")


_RUNS: Final[Mapping[str, Reason]] = {
    **dict.fromkeys(core.ON_TRIAL, experiment_reasons.TRYING),
    "Gating": experiment_reasons.GATING,
    "Keeping": experiment_reasons.KEEPING,
    "Watching": experiment_reasons.WATCHING,
    "Reverting": experiment_reasons.REVERTING,
}


def _say(status: str, reason: Reason, message: str) -> Condition:
    return Condition(names.EXPERIMENTING, status, reason.name, message)


def _change(proposal: Proposal) -> str:
    return f"{proposal.flag} {proposal.before} -> {proposal.after}"


def _sentence(running: Experiment) -> str:
    words = {
        "Starting": "canary and control are starting",
        "Gating": "the quality gate compares a candidate with a baseline; neither takes users' requests",
        "Warming": "canary and control warm up",
        "Measuring": "canary and control are compared",
        "Keeping": f"kept and rolling out: {running.verdict}",
        "Watching": f"kept and watched: {running.verdict}",
        "Reverting": f"taken back: {running.verdict}",
    }
    return f"{_change(running.proposal)}: {words[running.phase]}"


def _entries(before: Record, after: Record, grounds: replay.Stepped | None) -> list[Entry]:
    """What is worth an entry among the decisions: a beginning, a keep, an end; with what it followed from."""
    found = [_entry(past.outcome, past.why, past) for past in after.past[len(before.past) :]]
    now, then = after.experiment, before.experiment
    if now is not None and then is not None and now.gate != then.gate:
        found.append(
            Entry(RETUNE, "GatePassed", now.gate, inputs={"tried": f"{now.proposal.flag} {now.proposal.after}"})
        )
    if now is not None and (then is None or then.phase != now.phase) and now.phase in ("Starting", "Keeping"):
        tried = now.proposal
        why = tried.why if now.phase == "Starting" else now.verdict
        word = "Trying" if now.phase == "Starting" else "Keeping"
        found.append(Entry(RETUNE, word, why, f"{tried.flag} {tried.before}", f"{tried.flag} {tried.after}"))
    return [replace(entry, grounds=replay.written(grounds)) for entry in found] if grounds else found


def _entry(outcome: Outcome, why: str, past: Past) -> Entry:
    was, is_now = {"kept": (past.after, past.after), "reverted": (past.after, past.before)}.get(
        outcome, (past.before, past.before)
    )
    return Entry(RETUNE, core.word(outcome), why, f"{past.flag} {was}", f"{past.flag} {is_now}", {"tried": past.after})


def failed_changes(
    service: Mapping[str, Any], request: Request, revision: Revision | None, finding: str
) -> frozenset[tuple[str, str]]:
    """Flags and values that were tried on the same grounds and not kept."""
    basis = basis_of(tuned.without_flags(request), revision, finding)
    past = read_record(_stored(service)).past
    return frozenset((p.flag, p.after) for p in past if p.basis == basis and p.outcome in core.FAILURES)
