"""The quality gate of an experiment: two Services, a Job, and the word to the pods that it has passed.

Until that word the pods of the experiment are not Ready, so no Service but the gate's own leads to them. What follows
from the Job's result is decided in ``core/experiment.py``.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.adapters.ports import (
    JOBS,
    NETWORK_SERVICES,
    PODS,
    Cluster,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
)
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Children, Live
from plimsoll.core import gate, rollout
from plimsoll.core.experiment import Experiment
from plimsoll.core.gate import GateSeen
from plimsoll.core.manifests import gate as manifests
from plimsoll.core.manifests.gate import SIDES, GateRequest, job_name, side_name
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.manifests.trial import trial_workload
from plimsoll.core.ownership import judge
from plimsoll.core.pods import GATE_TRACKS, PodState
from plimsoll.core.podtemplate.gate import gate_refusals
from plimsoll.core.policy import Allowed
from plimsoll.core.refusals import refusal
from plimsoll.core.request import Request

SLACK_SECONDS: Final = 60.0
"""Beyond the Job's own deadline: until the Job is seen, or made again because somebody deleted it."""
NO_GATE: Final = "it changes answers, and spec.tuning.qualityGate names nobody who judges them"
NO_IMAGE: Final = (
    "the operator does not know its own image (PLIMSOLL_GATE_IMAGE), so there is no built-in comparison; name one in "
    "spec.tuning.qualityGate.podTemplate"
)


@dataclass
class Gates:
    """Makes, reads and removes gates."""

    cluster: Cluster
    cache: Cache
    children: Children
    allowed: Allowed = field(default_factory=Allowed)
    image: str = ""
    """The operator's own."""

    def missing(self, request: Request) -> str:
        """Why nobody may judge a change of answers; empty: somebody may."""
        asked = request.spec.tuning.quality_gate
        if asked is None:
            return NO_GATE
        if refused := gate_refusals(request.spec, self.allowed):
            return "; ".join(refused)
        return NO_IMAGE if manifests.is_built_in(asked) and not self.image else ""

    def seconds(self, request: Request) -> float:
        """How long a gate may take, whatever happens to its Job."""
        asked = request.spec.tuning.quality_gate
        return asked.seconds + SLACK_SECONDS if asked else 0.0

    def seen(self, request: Request, running: Experiment, live: Live) -> GateSeen:
        """How far the Job is."""
        asked = request.spec.tuning.quality_gate
        job = live.get((JOBS, job_name(request.name, identity(running))))
        if job is not None and not _ours(request, job):
            return gate.RUNNING  # somebody else's word counts for nothing
        pods = self.cache.pods(Key(request.namespace, request.name), GATE_TRACKS)
        return gate.look(job, pods, asked.threshold if asked else None)

    def leftovers(self, request: Request, live: Live) -> list[tuple[Kind, str]]:
        """What is there of gates."""
        sides = {(NETWORK_SERVICES, side_name(request.name, side)) for side in SIDES}
        found = [each for each in live if each[0] is JOBS or each in sides]
        return [each for each in found if _ours(request, live[each])]

    async def drop(self, request: Request, live: Live) -> None:
        """Remove whatever there is of gates."""
        for kind, name in self.leftovers(request, live):
            await self.children.drop(request, kind, name, live)

    async def bring(
        self, request: Request, target: Revision, stored: Experiment, live: Live, pods: Iterable[PodState]
    ) -> str:
        """What the stored phase asks for; why it cannot be had, where that is so."""
        if not stored.behind_gate:
            return await self._admit(request, pods)
        there = {address for address, obj in live.items() if _ours(request, obj)}
        wanted = [each for each in self._manifests(request, target, stored) if _address(each) not in there]
        if not wanted:
            return ""
        fleet = trial_workload(request.name, names.TRACK_CANARY)
        applied = await self.children.bring(request, wanted, fleet, None, live)
        return applied.blocked.message if applied.blocked else ""

    def _manifests(self, request: Request, target: Revision, stored: Experiment) -> Iterator[dict[str, Any]]:
        owner = rollout.owner(request)
        for side in SIDES:
            yield manifests.side_service(owner, side)
        asked = request.spec.tuning.quality_gate
        if stored.phase == "Gating" and asked is not None:
            args = target.plan["choice"]["args"]
            yield manifests.gate_job(GateRequest(owner, asked, identity(stored), self.image, args))

    async def _admit(self, request: Request, pods: Iterable[PodState]) -> str:
        """Let the pods take requests: only after that the gate has passed is stored."""
        for pod in pods:
            if pod.admitted:
                continue
            word = manifests.passed(pod.name, request.namespace, pod.uid)
            try:
                self.cache.put(PODS, await self.cluster.apply(PODS, word, names.MANAGER_CHILDREN, subresource="status"))
            except (NotFoundError, ConflictError):
                continue  # it has just gone, or another one of its name has come: that will be an event
            except (ForbiddenError, InvalidError) as error:
                return refusal(f"status of pod {pod.name}", error.message, forbidden=True).message
        return ""


def identity(running: Experiment) -> str:
    """What tells one experiment from every other of its service."""
    tried = running.proposal
    return f"{running.started:.0f} {running.base} {tried.flag} {tried.after}"


def _ours(request: Request, obj: Mapping[str, Any]) -> bool:
    return judge(obj, request.name, request.uid).verdict == "ours"


def _address(manifest: dict[str, Any]) -> tuple[Kind, str]:
    kind = JOBS if manifest["kind"] == JOBS.kind else NETWORK_SERVICES
    return kind, manifest["metadata"]["name"]
