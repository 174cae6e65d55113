"""One experiment with one flag, from its first pod to its end. Pure: what is stored, what is seen, now → what follows.

Everything that the next step depends on stands in the cluster: the phase in the status, the pods in two Deployments,
what was kept in a ControllerRevision, the figures in Prometheus. An operator that dies at any step goes on at that
step; a status that is lost ends the experiment, since pods that no status explains are removed.

    Starting → (Gating →) Warming → Measuring → (verdict) → Keeping → Watching → kept
                  any harm, any doubt → the pods go, nothing has changed
                                       Watching, or a kept change → Reverting → as before

Where the fleet lends its own replicas (``core/loan.py``), Draining comes first, until their GPUs are free, and
Returning before Keeping, until they are back: count and template are never changed together.

A change of answers passes a quality gate first (``core/gate.py``): until it has, neither pod takes a user's request.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from plimsoll.core import judge
from plimsoll.core.gate import RUNNING, GateSeen
from plimsoll.core.judge import Aim, Pair, Question

Phase = Literal[
    "Draining", "Starting", "Gating", "Warming", "Measuring", "Returning", "Keeping", "Watching", "Reverting"
]
Outcome = Literal["kept", "rolled back", "inconclusive", "abandoned", "rejected", "reverted"]

ON_TRIAL: Final = ("Draining", "Starting", "Gating", "Warming", "Measuring")
"""Phases in which canary and control are to run, or are about to."""
BEFORE_ANY_POD: Final = ("Draining", "Starting")
GATED: Final = ("KVCacheDtype",)
"""Settings that change answers, which no load signal shows: never tried on users before a quality gate has passed."""
FAILURES: Final = ("rolled back", "inconclusive", "rejected", "reverted")
"""Outcomes after which the same change is not tried again while its grounds are the same."""


@dataclass(frozen=True)
class Timing:
    """How long things take. All but the budget follow from the window, so that a test can be quick."""

    window_seconds: float = 60.0
    windows: int = judge.WINDOWS
    a_day: int = 4

    @property
    def warm_up_seconds(self) -> float:
        """Left out: caches are empty, and a queue has not formed yet."""
        return 3 * self.window_seconds

    @property
    def trial_seconds(self) -> float:
        """From two pods that are ready to a verdict."""
        return self.warm_up_seconds + self.windows * self.window_seconds + self.settle_seconds

    @property
    def watch_seconds(self) -> float:
        """How long a change that was kept may still be taken back by itself."""
        return 30 * self.window_seconds

    @property
    def pause_seconds(self) -> float:
        """From the end of one experiment to the start of the next."""
        return 60 * self.window_seconds

    @property
    def settle_seconds(self) -> float:
        """After a window's end, until it is asked for."""
        return 0.5 * self.window_seconds

    @property
    def day_seconds(self) -> float:
        """What the budget is of."""
        return 24 * 60 * self.window_seconds


@dataclass(frozen=True)
class Proposal:
    """What could be tried, with its grounds."""

    setting: str
    flag: str
    before: str
    after: str
    aim: Aim
    finding: str
    why: str
    basis: str
    """Spec, engine and what limits the service, as a hash: while it is the same, a failure is not repeated."""


@dataclass(frozen=True)
class Experiment:
    """One experiment as it is stored. Times in seconds since 1970."""

    proposal: Proposal
    base: str
    """The revision that it is compared with."""
    phase: Phase
    started: float
    since: float
    """When the phase began."""
    verdict: str = ""
    late_before: bool = False
    """A latency target was missed with the old flags already: when it began, or when it was judged."""
    gate: str = ""
    """What the quality gate found, once it has passed."""

    @property
    def gated(self) -> bool:
        """Whether a quality gate stands before it."""
        return self.proposal.setting in GATED

    @property
    def behind_gate(self) -> bool:
        """Whether its pods may not take users' requests (yet): nothing but what the gate found lets them in."""
        return self.gated and not self.gate

    @property
    def on_trial(self) -> bool:
        """Whether its two pods are to run."""
        return self.phase in ON_TRIAL

    def at(self, phase: Phase, now: float, verdict: str = "") -> "Experiment":
        """The same in another phase."""
        return replace(self, phase=phase, since=now, verdict=verdict or self.verdict)


@dataclass(frozen=True)
class Past:
    """An experiment that is over."""

    time: float
    flag: str
    before: str
    after: str
    outcome: Outcome
    why: str
    basis: str


@dataclass(frozen=True)
class TrialPod:
    """What the one pod of a track is doing."""

    ready: bool
    """It can answer: users' requests too, unless a quality gate stands before them."""
    failed: str = ""
    """Why it will not serve, or has stopped: a crash, an image that does not come."""


@dataclass(frozen=True)
class Scene:
    """What is seen now."""

    now: float
    base: str
    """The revision that is to run, without what an experiment changes."""
    rolled_out: bool
    """All pods of the fleet are of the revision that is to run, and ready."""
    carries: bool
    """The revision that runs was made with the experiment's change."""
    canary: TrialPod | None = None
    control: TrialPod | None = None
    pairs: Sequence[Pair] = ()
    """Windows measured so far, oldest first."""
    start_seconds: float = 600.0
    """How long a pod may take to become ready."""
    gate: GateSeen = RUNNING
    """How far the quality gate is."""
    gate_seconds: float = 1800.0
    """How long it may take, whatever happens to it meanwhile."""
    stop: str = ""
    """Why there may be no experiment at all any more; empty: there may."""
    wish: str = ""
    """``reject`` or ``revert``, said just now."""
    worse: str = ""
    """What is wrong with the fleet since the change was kept; empty: nothing is."""
    late: bool = False
    """The fleet misses a latency target."""
    targets: tuple[float | None, float | None] = (None, None)
    """Time to first token and time per token, seconds."""
    lent: bool = False
    """The fleet does without some of its replicas, or is about to."""
    draining: bool = False
    """Some of those are still there."""

    @property
    def both_ready(self) -> bool:
        """Whether canary and control can answer."""
        return bool(self.canary and self.canary.ready and self.control and self.control.ready)


@dataclass(frozen=True)
class Next:
    """What follows: the experiment as it goes on (None: it is over), and what to remember of one that ended."""

    experiment: Experiment | None
    past: Past | None = None


def word(outcome: str) -> str:
    """An outcome as one word, as decisions have it: ``RolledBack``."""
    return "".join(part.capitalize() for part in outcome.split())


def begin(proposal: Proposal, base: str, now: float, *, late: bool = False, lent: bool = False) -> Experiment:
    """A new experiment. ``late``: a latency target is missed now; ``lent``: the fleet has to make room for it first."""
    return Experiment(proposal, base, "Draining" if lent else "Starting", now, now, late_before=late)


def abandoned(experiment: Experiment, now: float, why: str) -> Past:
    """The end of one that could not go on; it may be tried again."""
    return _past(experiment, now, "abandoned", why)


def step(experiment: Experiment, scene: Scene, timing: Timing) -> Next:
    """What becomes of a running experiment."""
    if experiment.on_trial:
        return _stopped(experiment, scene) or _lost(experiment, scene) or _on_trial(experiment, scene, timing)
    if experiment.phase == "Reverting":
        done = scene.rolled_out and not scene.carries
        return _over(experiment, scene.now, "reverted", experiment.verdict) if done else Next(experiment)
    if experiment.phase == "Returning":
        return _returning(experiment, scene)
    return _kept(experiment, scene, timing)


def _stopped(experiment: Experiment, scene: Scene) -> Next | None:
    """Somebody, or what has changed since, ends it before its time."""
    if scene.wish in ("reject", "revert"):
        return _over(experiment, scene.now, "rejected", "a person ended it")
    if scene.stop:
        return _over(experiment, scene.now, "abandoned", scene.stop)
    if scene.base != experiment.base:
        return _over(experiment, scene.now, "abandoned", "the plan it was compared with runs no more")
    return None


def _returning(experiment: Experiment, scene: Scene) -> Next:
    """It was better; the fleet is as before, and rolls once it is whole."""
    if scene.wish in ("reject", "revert"):
        return _over(experiment, scene.now, "rejected", "a person ended it")
    return Next(experiment if scene.lent else experiment.at("Keeping", scene.now))


def _kept(experiment: Experiment, scene: Scene, timing: Timing) -> Next:
    """Its change is the fleet's, or becomes so."""
    if not scene.carries:
        why = "no plan with it runs: the spec has changed, or planning with it does not hold any more"
        return _over(experiment, scene.now, "abandoned", why)
    if scene.wish in ("reject", "revert"):
        return Next(experiment.at("Reverting", scene.now, "a person took it back"))
    if scene.worse:
        return Next(experiment.at("Reverting", scene.now, scene.worse))
    if experiment.phase == "Keeping":
        return Next(experiment.at("Watching", scene.now)) if scene.rolled_out else Next(experiment)
    if scene.now - experiment.since < timing.watch_seconds:
        return Next(experiment)
    return _over(experiment, scene.now, "kept", experiment.verdict)


def due_seconds(experiment: Experiment, now: float, timing: Timing) -> float | None:
    """When time alone changes something; None: never."""
    inside = now - experiment.since
    ends = {"Warming": timing.warm_up_seconds, "Watching": timing.watch_seconds}
    if experiment.phase in ends:
        return max(0.0, ends[experiment.phase] - inside)
    if experiment.phase == "Measuring":
        next_window = (windows_due(experiment, now, timing) + 1) * timing.window_seconds + timing.settle_seconds
        return max(0.0, next_window - inside)
    return timing.window_seconds


def windows_due(experiment: Experiment, now: float, timing: Timing) -> int:
    """Windows that are over and can be asked for."""
    if experiment.phase != "Measuring":
        return 0
    over = int((now - experiment.since - timing.settle_seconds) // timing.window_seconds)
    return max(0, min(timing.windows, over))


def _on_trial(experiment: Experiment, scene: Scene, timing: Timing) -> Next:
    now, inside = scene.now, scene.now - experiment.since
    if experiment.phase == "Draining":
        return _draining(experiment, scene)
    if experiment.phase == "Starting":
        if scene.both_ready:
            return Next(experiment.at("Gating" if experiment.gated else "Warming", now))
        return _late(experiment, scene) if inside > scene.start_seconds else Next(experiment)
    if experiment.phase == "Gating":
        return _gating(experiment, scene)
    if experiment.phase == "Warming":
        return Next(experiment.at("Measuring", now) if inside >= timing.warm_up_seconds else experiment)
    return _measuring(experiment, scene, timing)


def _draining(experiment: Experiment, scene: Scene) -> Next:
    """Canary and control have a place once the lent replicas have left theirs."""
    if not scene.draining:
        return Next(experiment.at("Starting", scene.now))
    if scene.now - experiment.since <= scene.start_seconds:
        return Next(experiment)
    why = f"the replicas that the fleet lends were not gone in {scene.start_seconds:.0f} s"
    return _over(experiment, scene.now, "abandoned", why)


def _gating(experiment: Experiment, scene: Scene) -> Next:
    """Only what has passed goes on, with both pods there; what takes too long has not."""
    now, inside = scene.now, scene.now - experiment.since
    if scene.gate.outcome == "passed" and scene.both_ready:
        return Next(replace(experiment.at("Warming", now), gate=scene.gate.why))
    if scene.gate.outcome == "failed":
        return _over(experiment, now, "rolled back", f"the quality gate did not pass: {scene.gate.why}")
    if inside > scene.gate_seconds:
        said = f": {scene.gate.why}" if scene.gate.why else ""
        lacks = "two ready pods" if scene.gate.outcome == "passed" else "a result"
        return _over(experiment, now, "rolled back", f"the quality gate did not get {lacks} in {inside:.0f} s{said}")
    return Next(experiment)


def _lost(experiment: Experiment, scene: Scene) -> Next | None:
    """One of the two fails, or has gone: without a canary nothing is known of the change, so it is not made."""
    begun = experiment.phase not in BEFORE_ANY_POD
    if scene.canary and scene.canary.failed:
        return _over(experiment, scene.now, "rolled back", f"the canary failed: {scene.canary.failed}")
    if scene.control and scene.control.failed:
        return _over(experiment, scene.now, "inconclusive", f"the control failed: {scene.control.failed}")
    if begun and scene.canary is None:
        return _over(experiment, scene.now, "rolled back", "the canary is gone")
    if begun and scene.control is None:
        return _over(experiment, scene.now, "inconclusive", "the control is gone")
    return None


def _late(experiment: Experiment, scene: Scene) -> Next:
    if scene.canary and scene.canary.ready:
        return _over(experiment, scene.now, "inconclusive", f"the control was not ready in {scene.start_seconds:.0f} s")
    if scene.control is None or not scene.control.ready:
        text = f"neither pod was ready in {scene.start_seconds:.0f} s"
        return _over(experiment, scene.now, "abandoned", text)
    return _over(experiment, scene.now, "rolled back", f"the canary was not ready in {scene.start_seconds:.0f} s")


def _measuring(experiment: Experiment, scene: Scene, timing: Timing) -> Next:
    if harm := judge.alarm(scene.pairs):
        return _over(experiment, scene.now, "rolled back", harm)
    if len(scene.pairs) < timing.windows:
        return Next(experiment)
    question = Question(experiment.proposal.aim, timing.windows, *scene.targets)
    verdict = judge.judge(scene.pairs, question)
    if verdict.outcome == "keep":
        gate = f"; quality gate: {experiment.gate}" if experiment.gate else ""
        # A queue that grew while the two were compared is the old flags', and is still there when the new ones run.
        kept = replace(experiment, late_before=experiment.late_before or scene.late)
        return Next(kept.at("Returning" if scene.lent else "Keeping", scene.now, f"{verdict.why}{gate}"))
    outcome: Outcome = "rolled back" if verdict.outcome == "rollback" else "inconclusive"
    return _over(experiment, scene.now, outcome, verdict.why)


def _over(experiment: Experiment, now: float, outcome: Outcome, why: str) -> Next:
    return Next(None, _past(experiment, now, outcome, why))


def _past(experiment: Experiment, now: float, outcome: Outcome, why: str) -> Past:
    tried = experiment.proposal
    return Past(now, tried.flag, tried.before, tried.after, outcome, why, tried.basis)


# What is tried, and when.


def tried_before(proposal: Proposal, past: Sequence[Past]) -> Past | None:
    """The last failure of the same change on the same grounds."""
    same = (p for p in reversed(past) if (p.flag, p.after, p.basis) == (proposal.flag, proposal.after, proposal.basis))
    return next((found for found in same if found.outcome in FAILURES), None)


def over_budget(ended: Sequence[float], now: float, timing: Timing) -> str:
    """Why it is too early for another one; empty: it is not. What a person asks for has no budget.

    ``ended``: when the others were over, oldest first.
    """
    recent = [time for time in ended if now - time < timing.day_seconds]
    if len(recent) >= timing.a_day:
        return f"{len(recent)} experiments in a day, at most {timing.a_day} are allowed"
    if ended and now - ended[-1] < timing.pause_seconds:
        return f"the last experiment ended less than {timing.pause_seconds / 60:.0f} minutes ago"
    return ""
