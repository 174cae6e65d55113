"""One reconcile of one service: gather → plan → apply what differs → report. A second run writes nothing."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.adapters.ports import (
    CHILDREN,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    REVISIONS,
    SERVICES,
    Clock,
    Cluster,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
)
from plimsoll.api import names, reasons
from plimsoll.control.cache import Cache, Key
from plimsoll.control.events import EventWriter
from plimsoll.control.planning import Planner
from plimsoll.core import conditions, drift, rollout
from plimsoll.core import status as status_doc
from plimsoll.core.conditions import Facts, Fleet, Problem
from plimsoll.core.manifests.deployment import scale
from plimsoll.core.manifests.identity import selector_text, track_selector
from plimsoll.core.manifests.revision import Revision, outdated, read_revision
from plimsoll.core.ownership import judge
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Target

log = logging.getLogger("plimsoll.reconcile")

LEAVING_RECHECK_SECONDS: Final = 1.0
FIRST_LOOK_SECONDS: Final = 1.0
REFUSED_RECHECK_SECONDS: Final = 15.0
"""A refusal may end without an event of ours: a ConfigMap corrected, a right granted."""

_KIND_OF: Final[Mapping[tuple[str, str], Kind]] = {(k.api_version, k.kind): k for k in CHILDREN}

Live = dict[tuple[Kind, str], dict[str, Any]]


class _BlockedError(Exception):
    """A child cannot be written until a human does something."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _LeavingError(Exception):
    """A child of an earlier service of the same name is still in deletion."""


@dataclass
class _Applied:
    """What became of writing the children."""

    blocked: Problem | None = None
    waiting: str = ""


@dataclass
class Reconciler:
    """Brings the world to what one service asks for. Raises ClusterError when it should be tried again."""

    cluster: Cluster
    cache: Cache
    planner: Planner
    clock: Clock
    events: EventWriter
    _figures: dict[Key, status_doc.FigureBudget] = field(default_factory=dict)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; the seconds after which to look again, or None when only an event should cause it."""
        service = self.cache.get(SERVICES, *key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            self._figures.pop(key, None)
            return None
        try:
            request = read_request(service)
        except ValidationError as error:
            facts = Facts(refusal=Problem(reasons.INVALID_SPEC.name, _first_error(error)))
            return await self._report(key, service, facts, None, 0)
        outcome = await self.planner.plan(request)
        live = self.cache.children(key)
        revisions = [r for (kind, _), obj in live.items() if kind is REVISIONS and (r := read_revision(obj))]
        target = rollout.choose_target(request, outcome, revisions)
        return await self._act(key, service, request, target, live, revisions)

    async def _act(
        self,
        key: Key,
        service: Mapping[str, Any],
        request: Request,
        target: Target,
        live: Live,
        revisions: list[Revision],
    ) -> float | None:
        replicas = self._replicas(request, target, live)
        applied = _Applied()
        if target.revision and not request.held_because:
            applied = await self._apply_all(request, target.revision, replicas, live)
            if applied.blocked is None and not applied.waiting:
                await self._tidy(request, target.revision, replicas, live, revisions)
        if self._just_made(request, live):
            return FIRST_LOOK_SECONDS
        facts = _facts(request, target, replicas, applied)
        facts = replace(facts, fleet=self._fleet(key, request, replicas))
        again = await self._report(key, service, facts, rollout.reported_plan(target, replicas), replicas)
        if applied.waiting:
            return LEAVING_RECHECK_SECONDS
        if facts.refusal or facts.blocked or facts.update_unknown:
            return REFUSED_RECHECK_SECONDS
        return again

    def _just_made(self, request: Request, live: Live) -> bool:
        """The Deployment is new: what its controller makes of it, a moment later, is the first thing to report."""
        known = (DEPLOYMENTS, request.name) in live
        return not known and self.cache.get(DEPLOYMENTS, request.namespace, request.name) is not None

    def _replicas(self, request: Request, target: Target, live: Live) -> int:
        """How many to run; a fleet without a plan for its new spec keeps its count."""
        if target.revision is None:
            return 0
        fleet = live.get((DEPLOYMENTS, request.name))
        if target.frozen and fleet is not None:
            return int(fleet["spec"].get("replicas", 1))
        per_replica = rollout.gpus_per_replica(target.revision)
        return request.wanted_replicas(per_replica, rollout.planned_replicas(target.revision))

    async def _apply_all(self, request: Request, revision: Revision, replicas: int, live: Live) -> _Applied:
        try:
            for manifest in rollout.children(request, revision, replicas):
                await self._apply(request, drift.stamp(manifest), live)
            await self._scale(request, replicas)
        except _BlockedError as stop:
            return _Applied(blocked=stop.problem)
        except _LeavingError as stop:
            return _Applied(waiting=str(stop))
        except (ForbiddenError, InvalidError) as error:
            if "is being terminated" in error.message:
                return _Applied(waiting="the namespace is being deleted")
            reason = (reasons.FORBIDDEN if isinstance(error, ForbiddenError) else reasons.REFUSED).name
            return _Applied(blocked=Problem(reason, f"the API server refuses our write: {error.message}"))
        return _Applied()

    async def _apply(self, request: Request, manifest: Mapping[str, Any], live: Live) -> None:
        """Apply one child if its intent changed or somebody edited it."""
        kind = _KIND_OF[manifest["apiVersion"], manifest["kind"]]
        name = manifest["metadata"]["name"]
        known = live.get((kind, name))
        if known is None and kind is REVISIONS:
            pass  # its name is a hash of its content: nobody else has it
        elif known is None or judge(known, request.name, request.uid).verdict != "ours":
            await self._check_owner(request, kind, name)
        elif self._current(manifest, known):
            return
        applied = await self.cluster.apply(kind, manifest, names.MANAGER_CHILDREN)
        self.cache.put(kind, applied)
        log.info("applied %s %s", kind.kind, name, extra={"service": f"{request.namespace}/{request.name}"})

    @staticmethod
    def _current(manifest: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
        annotations = known["metadata"].get("annotations") or {}
        wanted = manifest["metadata"]["annotations"][names.ANNOTATION_HASH]
        # A listing's items carry no apiVersion and kind, so what is known of an object does not either.
        intent = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
        return annotations.get(names.ANNOTATION_HASH) == wanted and drift.differs(intent, known) is None

    async def _check_owner(self, request: Request, kind: Kind, name: str) -> None:
        """What our watch does not show may still exist: somebody else's object, or ours without its labels."""
        try:
            found = await self.cluster.get(kind, request.namespace, name)
        except NotFoundError:
            return
        ownership = judge(found, request.name, request.uid)
        if ownership.verdict == "leaving":
            raise _LeavingError(f"{kind.kind} {name} of an earlier VLLMService of this name is still being deleted")
        if ownership.verdict == "foreign":
            message = (
                f"{kind.kind} {request.namespace}/{name} exists and is not ours ({ownership.whose}); "
                "delete or rename it, or give this VLLMService another name"
            )
            raise _BlockedError(Problem(reasons.NAME_CONFLICT.name, message))

    async def _scale(self, request: Request, replicas: int) -> None:
        fleet = self.cache.get(DEPLOYMENTS, request.namespace, request.name)
        if fleet is None or fleet["spec"].get("replicas") == replicas:
            return
        manifest = scale(rollout.owner(request), replicas)
        self.cache.put(DEPLOYMENTS, await self.cluster.apply(DEPLOYMENTS, manifest, names.MANAGER_SCALE))

    async def _tidy(
        self, request: Request, revision: Revision, replicas: int, live: Live, revisions: list[Revision]
    ) -> None:
        """Delete what is ours and no longer meant: the PDB of a single replica, revisions beyond the last five."""
        budget = live.get((DISRUPTION_BUDGETS, request.name))
        if replicas <= 1 and budget and judge(budget, request.name, request.uid).verdict == "ours":
            await self._delete(DISRUPTION_BUDGETS, budget)
        kept = [*(r for r in revisions if r.name != revision.name), revision]
        for name in outdated(kept):
            await self._delete(REVISIONS, live[REVISIONS, name])

    async def _delete(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        meta = obj["metadata"]
        await self.cluster.delete(kind, meta["namespace"], meta["name"], meta["uid"])

    def _fleet(self, key: Key, request: Request, replicas: int) -> Fleet | None:
        live = self.cache.get(DEPLOYMENTS, request.namespace, request.name)
        if live is None or judge(live, request.name, request.uid).verdict != "ours":
            return None
        status = live.get("status", {})
        total, ready, updated = (int(status.get(k, 0)) for k in ("replicas", "readyReplicas", "updatedReplicas"))
        seen = int(status.get("observedGeneration", 0)) >= int(live["metadata"].get("generation", 0))
        return Fleet(
            wanted=replicas,
            floor=_floor(request, replicas),
            replicas=total,
            ready=ready,
            updated_ready=min(ready, updated) if seen else 0,
            rolled_out=seen and updated == total and total >= min(replicas, 1),
            deadline_exceeded=status.get("progressReason") == "ProgressDeadlineExceeded",
            pods=self.cache.pods(key),
        )

    async def _report(
        self, key: Key, service: Mapping[str, Any], facts: Facts, plan: Mapping[str, Any] | None, replicas: int
    ) -> float | None:
        """Write the status if it says something new; the seconds until a postponed figure may be written."""
        before = service.get("status") or {}
        generation = int(service["metadata"].get("generation", 0))
        decided = conditions.decide(facts)
        fleet = facts.fleet or Fleet(wanted=replicas, floor=replicas)
        after = {
            "observedGeneration": generation,
            "conditions": conditions.merge(before.get("conditions") or (), decided, generation, self.clock.now()),
            "summary": {"replicas": f"{fleet.ready}/{replicas}"},
            "replicas": fleet.replicas,
            "readyReplicas": fleet.ready,
            "selector": selector_text(track_selector(key.name)),
        }
        if plan:
            after["plan"] = plan
        change = status_doc.change(before, after)
        if change == "none":
            return None
        budget = self._figures.setdefault(key, status_doc.FigureBudget())
        if change == "figures":
            wait = budget.wait_seconds(self.clock.monotonic())
            if wait > 0:
                return wait
            budget.spend()
        await self._write_status(key, after)
        if change == "flip":
            await self.events.transitions(service, before.get("conditions") or (), decided)
        return None

    async def _write_status(self, key: Key, status: Mapping[str, Any]) -> None:
        manifest = status_doc.manifest(key.namespace, key.name, status)
        try:
            written = await self.cluster.apply(SERVICES, manifest, names.MANAGER_STATUS, subresource="status")
        except NotFoundError:
            return  # deleted meanwhile: nobody is left to report to
        self.cache.put(SERVICES, written)


def _facts(request: Request, target: Target, replicas: int, applied: _Applied) -> Facts:
    planned = rollout.sentence(target.revision) if target.revision and not target.refusal else ""
    return Facts(
        planned=planned,
        refusal=target.refusal,
        blocked=applied.blocked,
        waiting=applied.waiting,
        held=request.held_because,
        update=target.update,
        update_unknown=target.update_unknown,
        limited=_limited(request, target, replicas),
    )


def _limited(request: Request, target: Target, replicas: int) -> Problem | None:
    if target.revision is None or request.spec.scaling.mode == "Auto" or request.spec.replicas <= replicas:
        return None
    gpus = rollout.gpus_per_replica(target.revision)
    return Problem(
        reasons.MAX_GPUS.name,
        f"spec.replicas: {request.spec.replicas} would take {request.spec.replicas * gpus} GPUs, "
        f"spec.hardware.maxGPUs is {request.spec.hardware.max_gpus}: {replicas} run",
    )


def _floor(request: Request, replicas: int) -> int:
    """Replicas that must be ready before the service counts as Ready; an autoscaler's wish is not one."""
    return min(replicas, 1) if request.spec.scaling.mode == "External" else replicas


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(["spec", *map(str, first["loc"])])
    return f"{path}: {first['msg']} (got {str(first.get('input'))[:80]!r})"
