"""Canary and control: made as the status says, each once, and removed as soon as no experiment explains them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.adapters.ports import DEPLOYMENTS
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Children, Live
from plimsoll.control.gates import Gates
from plimsoll.control.planning import Planner
from plimsoll.control.situation import Situation
from plimsoll.core import rollout, tuned
from plimsoll.core.experiment import Experiment
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.manifests.trial import trial_deployment, trial_name, trial_workload
from plimsoll.core.plan.result import Plan
from plimsoll.core.pods import TRIAL_TRACKS, PodState

REFUSED_SECONDS: Final = 150.0
"""For so long a write that the API server refuses is tried again before the experiment is given up."""

LEAVING_SECONDS: Final = 30.0
"""After its grace period has passed, a pod that is still there is stuck."""


@dataclass
class TrialPods:
    """Makes and removes the pods of one experiment a service."""

    cache: Cache
    planner: Planner
    children: Children
    gates: Gates
    wall_seconds: Callable[[], float]

    def of(self, key: Key) -> list[PodState]:
        """Those that are there and not leaving."""
        return [pod for pod in self.cache.pods(key, TRIAL_TRACKS) if pod.phase != "terminating"]

    def there(self, key: Key, live: Live) -> bool:
        """Whether canary or control is there, or may be made at any moment.

        Those that end hold their GPUs: what came instead would only wait for them. One that does not end counts for no
        longer than it was given.
        """
        if self._made_of(key, live):
            return True
        now = self.wall_seconds()
        pods = self.cache.pods(key, TRIAL_TRACKS)
        return any(pod.gone_by_seconds is None or now < pod.gone_by_seconds + LEAVING_SECONDS for pod in pods)

    def beside(self, key: Key, live: Live) -> bool:
        """Whether they count among the service's GPUs: pods that end do not."""
        return self._made_of(key, live) or bool(self.of(key))

    def _made_of(self, key: Key, live: Live) -> bool:
        return any((DEPLOYMENTS, trial_name(key.name, track)) in live for track in TRIAL_TRACKS)

    async def bring(self, seen: Situation, stored: Experiment | None, running: Experiment | None) -> str:
        """Canary and control as the status says they are to be; why they cannot be, where that is so.

        A step counts from when it is stored: pods come after it and go after it, so that who starts anew in between
        finds either what the step was decided on, or the step.
        """
        if seen.request.held_because:
            return ""
        if stored is None or not stored.on_trial:
            for track in TRIAL_TRACKS:
                await self.children.drop(seen.request, DEPLOYMENTS, trial_name(seen.key.name, track), seen.live)
            await self.gates.drop(seen.request, seen.live)
            return ""
        wanted = seen.target is not None and running is not None and running.on_trial and stored.phase != "Draining"
        return await self._made(seen, stored) if wanted else ""

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
        pods = self.of(seen.key)
        return self._lasting(running, await self.gates.bring(seen.request, seen.target, running, seen.live, pods))

    def _lasting(self, running: Experiment, refused: str) -> str:
        """A refusal, once it has lasted: one that is over soon ends no experiment."""
        return refused if self.wall_seconds() - running.since > REFUSED_SECONDS else ""

    async def _tried(self, seen: Situation, flags: Mapping[str, str]) -> Revision | str:
        """What the canary runs: the plan with the flag, and all others as they are kept; why there is none.

        Planned anew, a service that names no version gets the newest: then two things would differ, not one.
        """
        assert seen.target is not None  # noqa: S101 - asked only with one
        request = tuned.as_planned(tuned.with_flags(tuned.without_flags(seen.request), flags), seen.target)
        plan = await self.planner.plan(request)
        if not isinstance(plan, Plan):
            return "planning with it does not hold any more"
        if not same_engine(plan, seen.target):
            engine = f"vLLM {plan.choice.engine_version} on {plan.choice.gpu}"
            return f"planned now it would run {engine}, and not as the fleet does: accept the new plan first"
        return rollout.render(request, plan, 0)


def same_engine(plan: Plan, running: Revision) -> bool:
    """Whether a plan's engine and GPU are those that run: what was found of one tells nothing of another."""
    choice = running.plan["choice"]
    return (plan.choice.engine_version, plan.choice.gpu) == (choice["engineVersion"], choice["gpu"])
