"""Experiments with one flag: two pods beside the fleet, what Prometheus says of them, and what becomes of it.

What follows from what is decided in ``core/experiment.py``; what is stored stands in ``status.tuning``. Here the world
is looked at; what is begun stands in ``beginnings.py``, canary and control are made and removed in ``trial_pods.py``.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.adapters.ports import MetricsSource
from plimsoll.api import names
from plimsoll.control.beginnings import Beginnings
from plimsoll.control.cache import Key
from plimsoll.control.children import Live
from plimsoll.control.gates import Gates
from plimsoll.control.planning import Planner
from plimsoll.control.situation import Situation, record_of
from plimsoll.control.trial_pods import TrialPods, same_engine
from plimsoll.core import experiment as core
from plimsoll.core import experiment_words, replan, replay, rollout, tuned
from plimsoll.core.conditions import Condition
from plimsoll.core.experiment import Experiment, Proposal, Scene, Timing, TrialPod
from plimsoll.core.experiment_record import Record
from plimsoll.core.freeze import Freeze, frozen
from plimsoll.core.judge import Pair
from plimsoll.core.ledger import Entry
from plimsoll.core.loan import TRIAL_PODS, Lent, Loan, why_over
from plimsoll.core.manifests.revision import Revision, current
from plimsoll.core.plan.result import Plan
from plimsoll.core.pods import TRIAL_TRACKS, PodState
from plimsoll.core.request import Request
from plimsoll.core.sampling import Answer
from plimsoll.core.trial_windows import read_windows, window_query

GATED_FLAGS: Final = frozenset({"--kv-cache-dtype"})
"""Flags of the settings that change answers: what was kept of them is for the engine and the GPU that were judged."""
AT_ONCE_SECONDS: Final = 0.1


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
    planner: Planner
    gates: Gates
    beginnings: Beginnings
    pods: TrialPods
    wall_seconds: Callable[[], float]
    timing: Timing = field(default_factory=Timing)
    _windows: dict[Key, tuple[float, dict[int, Pair]]] = field(default_factory=dict)
    """Windows that were asked for, by their number, of the experiment that began to measure then."""

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._windows.pop(key, None)

    async def tuned(self, service: Mapping[str, Any], request: Request, kept: Sequence[Revision]) -> Request:
        """The request with the flags that experiments have found; without them where planning would refuse them."""
        flags = _flags(record_of(service), request, kept)
        found = tuned.with_flags(request, flags)
        running = current(kept)
        if not flags or (running and running.fingerprint == found.fingerprint):
            return found
        plan = await self.planner.plan(found, replan.known(found, kept))
        if not isinstance(plan, Plan):
            return request
        judged = tuned.kept_flags(request, kept)
        if running and any(flags.get(flag) == judged.get(flag) for flag in GATED_FLAGS & judged.keys()):
            return found if same_engine(plan, running) else tuned.with_flags(request, _without(flags, GATED_FLAGS))
        return found

    def lent(self, key: Key, service: Mapping[str, Any], live: Live) -> Lent:
        """What the fleet lends, and whether it is to do without it still: until canary and control are gone."""
        record = record_of(service)
        running, loan, beside = record.experiment, record.loan, self.pods.beside(key, live)
        if running is not None and running.on_trial:
            measuring = running.phase == "Measuring"
            return Lent(loan, holds=loan is not None, trying=True, beside=beside, measuring=measuring)
        holds = loan is not None and self.pods.there(key, live)
        return Lent(loan, holds=holds, trying=loan is not None, beside=beside)

    async def advance(self, service: Mapping[str, Any], seen: Situation) -> Trial:
        """One look: the next step of the experiment that runs, or the beginning of one; then its pods."""
        record = record_of(service)
        wish = seen.request.wish if seen.request.wish != record.answered else ""
        running, past, why_not = record.experiment, record.past, ""
        loan = None if _is_back(record, seen, self.wall_seconds()) else record.loan
        grounds: replay.Stepped | replay.Begun | None = None
        if running is not None:
            scene = await self._scene(seen, running, loan, wish)
            grounds = replay.Stepped(running, scene, self.timing)
            following = core.step(running, scene, self.timing)
            running, past = following.experiment, (*past, *filter(None, [following.past]))
        elif wish.startswith("revert") and seen.target and tuned.flags_of(seen.request, seen.target):
            running = self.beginnings.taking_back(seen, past)
        elif loan is None:
            beginning = await self.beginnings.begun(seen, past, wish)
            running, loan, why_not = beginning.experiment, beginning.loan, beginning.why_not
            grounds = beginning.grounds
            past = (*past, *filter(None, [beginning.past]))
        stopped = await self.pods.bring(seen, record.experiment, running)
        if stopped and running is not None and running.on_trial:
            past = (*past, core.abandoned(running, self.wall_seconds(), stopped))
            running = grounds = None
        waits = bool(why_not) and wish.startswith("approve")
        unheard = waits or (record.experiment is None and record.loan is not None and running is None)
        after = Record(running, past, record.answered if unheard else seen.request.wish, loan)
        due = core.due_seconds(running, self.wall_seconds(), self.timing) if running else None
        again = due if running == record.experiment else AT_ONCE_SECONDS
        if why_not and running is None:
            again = self.beginnings.thaws_seconds(seen)
        condition = experiment_words.condition(
            running,
            seen.proposal,
            past,
            loan,
            off=seen.request.spec.tuning.mode == "Off",
            why_not=why_not,
            no_gate=self.beginnings.ungated(seen),
        )
        return Trial(after.written(), condition, tuple(experiment_words.entries(record, after, grounds)), again)

    # What is seen.

    async def _scene(self, seen: Situation, running: Experiment, loan: Loan | None, wish: str) -> Scene:
        target, now = seen.target, self.wall_seconds()
        tried = running.proposal
        flags = tuned.flags_of(seen.request, target) if target else {}
        pods = {pod.track: pod for pod in self.pods.of(seen.key)}
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
            stop=self._stop(seen, running, loan, now),
            wish=wish.partition(" ")[0],
            worse=_worse(seen, running),
            late=seen.late,
            targets=seen.targets,
            lent=loan is not None,
            draining=loan is not None and (seen.given != loan.rest or seen.there > loan.rest),
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

    def _stop(self, seen: Situation, running: Experiment, loan: Loan | None, now: float) -> str:
        """Why an experiment that runs may not go on."""
        no_gate = self.gates.missing(seen.request) if running.behind_gate else ""
        recalled = why_over(loan, seen.lender) if loan else ""
        frozen_out = _frozen_out(frozen(seen.request.spec.tuning.freeze, now), now)
        return _stop(seen, running) or recalled or no_gate or frozen_out


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


def _without(flags: Mapping[str, str], others: Collection[str]) -> dict[str, str]:
    return {flag: value for flag, value in flags.items() if flag not in others}


def _back(flags: Mapping[str, str], tried: Proposal) -> dict[str, str]:
    return {flag: value for flag, value in flags.items() if (flag, value) != (tried.flag, tried.after)}


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
    if running.behind_gate and tried.basis != seen.basis(tried.finding):
        return "spec.tuning.qualityGate is another one now"
    each = rollout.gpus_per_replica(seen.target) if seen.target else 0
    if (seen.replicas + TRIAL_PODS) * each > seen.request.spec.hardware.max_gpus:
        return "hardware.maxGPUs leaves no room for it any more"
    if any(pod.unplaced for pod in seen.pods):
        return "the fleet needs the GPUs"
    return ""


def _is_back(record: Record, seen: Situation, now: float) -> bool:
    """Nothing is lent any more: canary and control are gone, the count is what it is to be, and what came back serves.

    A roll-out does not wait for the last, which it would replace at once, but until they hold their GPUs: those must
    not count as free. Nobody waits for ever.
    """
    if seen.lent.holds or seen.given != seen.lender.replicas:
        return False
    serve = record.loan is None or seen.ready >= min(record.loan.of, seen.given)
    rolls = seen.changes or record.experiment is not None
    waited = seen.target is not None and now - record.ended_seconds > seen.target.deadline_seconds
    return serve or waited or (rolls and seen.placed)


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
    elif pod.restarts:  # while nobody looked
        failed = "its container ended, and runs again"
    return TrialPod(pod.phase == "ready" or pod.answers, failed)
