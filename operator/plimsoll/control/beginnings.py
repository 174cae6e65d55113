"""Whether an experiment may begin now: something to try, somebody who allows it, and nothing in the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from plimsoll.adapters.ports import DEPLOYMENTS
from plimsoll.control.gates import Gates
from plimsoll.control.situation import Situation
from plimsoll.control.survey import Survey
from plimsoll.core import experiment as core
from plimsoll.core import rollout, tuned
from plimsoll.core.experiment import Experiment, Past, Proposal, Timing
from plimsoll.core.freeze import NEVER, Freeze, frozen
from plimsoll.core.loan import LEAST_REPLICAS, TRIAL_PODS, Loan, lend
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.manifests.trial import trial_name
from plimsoll.core.placement import read_needs
from plimsoll.core.pods import TRIAL_TRACKS
from plimsoll.core.proposed import Opening
from plimsoll.core.replay import Begun
from plimsoll.core.request import Request


@dataclass(frozen=True)
class Beginning:
    """What becomes of a proposal: an experiment, its end before it began, or why not now."""

    experiment: Experiment | None = None
    loan: Loan | None = None
    past: Past | None = None
    why_not: str = ""
    grounds: Begun | None = None
    """Of the experiment, for the ledger."""


@dataclass
class Beginnings:
    """Begins experiments, or says why not now."""

    survey: Survey
    gates: Gates
    wall_seconds: Callable[[], float]
    timing: Timing = field(default_factory=Timing)

    async def begun(self, seen: Situation, past: Sequence[Past], wish: str) -> Beginning:
        """An experiment, if there is something to try, somebody allows it and nothing is in the way."""
        proposal, now = seen.proposal, self.wall_seconds()
        if proposal is None or seen.target is None:
            return Beginning()
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
            return Beginning(past=turned_down)
        if no_gate := self.ungated(seen):
            return Beginning(why_not=no_gate)
        ended = tuple(each.time for each in past)
        opening = Opening(tuple(sorted(by_itself(seen.request))), wish.startswith("approve"), ended, now, self.timing)
        if not opening.allows(proposal.setting):
            return Beginning()
        freeze = self._freeze(seen, now)
        left = "a quality gate of the last experiment is still there" if self._leftovers(seen) else ""
        if why_not := opening.early or (freeze.why(now) if freeze else "") or _unfit(seen) or left:
            return Beginning(why_not=why_not)
        loan = await self.room(seen, seen.target)
        if isinstance(loan, str):
            return Beginning(why_not=loan)
        begun = core.begin(proposal, seen.target.name, now, late=seen.late, lent=loan is not None)
        return Beginning(begun, loan, grounds=Begun(seen.weighed, opening) if seen.weighed else None)

    def ungated(self, seen: Situation) -> str:
        """Why a change of answers may not be tried, because nobody would judge them."""
        proposal = seen.proposal
        gated = proposal is not None and proposal.setting in core.GATED
        return self.gates.missing(seen.request) if gated else ""

    def _leftovers(self, seen: Situation) -> bool:
        return bool(self.gates.leftovers(seen.request, seen.live))

    def _freeze(self, seen: Situation, now: float) -> Freeze | None:
        """A freeze window that an experiment begun now would meet before its verdict."""
        proposal = seen.proposal
        ahead = self.timing.trial_seconds + (seen.target.load_seconds if seen.target else 0)
        ahead += self.gates.seconds(seen.request) if proposal and proposal.setting in core.GATED else 0
        return frozen(seen.request.spec.tuning.freeze, now, ahead)

    def thaws_seconds(self, seen: Situation) -> float | None:
        """When a freeze window ends that an experiment waits for; None: it waits for something else."""
        now = self.wall_seconds()
        freeze = self._freeze(seen, now)
        return freeze.ends_seconds - now if freeze and freeze.ends_seconds < NEVER else None

    async def room(self, seen: Situation, target: Revision) -> Loan | str | None:
        """Room for two more pods: None, it is there; a loan that makes it; or why there is none.

        Nodes are looked at only where that can change the answer.
        """
        each, allowed = rollout.gpus_per_replica(target), seen.request.spec.hardware.max_gpus
        over = seen.replicas + TRIAL_PODS - allowed // each
        why = f"canary and control would make {(seen.replicas + TRIAL_PODS) * each} GPUs, hardware.maxGPUs is {allowed}"
        if over > 0 and isinstance(refused := lend(seen.lender, over), str):
            return f"{why}; {refused}"
        room = await self.survey.room(read_needs(target.template["spec"]), TRIAL_PODS)
        free = room.fits if room else 0
        if over <= 0 and free >= TRIAL_PODS:
            return None
        if free < TRIAL_PODS - max(over, 0):
            why = f"there are free GPUs for {free} of the two pods it needs"
            why = why if room else "the operator may not look at nodes, so no GPU counts as free"
        loan = lend(seen.lender, max(over, TRIAL_PODS - free))
        return f"{why}; {loan}" if isinstance(loan, str) else loan

    def taking_back(self, seen: Situation, past: Sequence[Past]) -> Experiment:
        """What experiments have changed goes, all of it; the last of the changes stands for them."""
        assert seen.target is not None  # noqa: S101 - asked only with one
        flags = tuned.flags_of(seen.request, seen.target)
        last = next((p for p in reversed(past) if p.outcome == "kept" and flags.get(p.flag) == p.after), None)
        flag, value = (last.flag, last.after) if last else max(flags.items())
        before, basis = (last.before, last.basis) if last else ("unset", seen.basis(""))
        proposal, now = Proposal("", flag, before, value, "ttft", "", "", basis), self.wall_seconds()
        return Experiment(proposal, seen.target.name, "Reverting", now, now, "a person took it back")


def by_itself(request: Request) -> frozenset[str]:
    """Settings that may be tried without anybody's word."""
    tuning = request.spec.tuning
    unjudged = () if tuning.quality_gate else core.GATED
    return frozenset(tuning.allow).difference(unjudged) if tuning.mode == "Auto" else frozenset()


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
