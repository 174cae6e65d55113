"""Writing what a service owns: only where the intent changed or somebody edited it, never over what others own."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.adapters.ports import (
    CHILDREN,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    REVISIONS,
    Cluster,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
    Object,
)
from plimsoll.api import names, reasons
from plimsoll.control.cache import Cache
from plimsoll.core import drift, rollout
from plimsoll.core.conditions import Problem
from plimsoll.core.manifests.deployment import scale
from plimsoll.core.manifests.revision import Revision, outdated
from plimsoll.core.ownership import judge
from plimsoll.core.request import Request
from plimsoll.core.steps import Step

log = logging.getLogger("plimsoll.children")

_KIND_OF: Final[Mapping[tuple[str, str], Kind]] = {(k.api_version, k.kind): k for k in CHILDREN}

Live = Mapping[tuple[Kind, str], dict[str, Any]]


@dataclass(frozen=True)
class Applied:
    """What became of writing the children."""

    blocked: Problem | None = None
    """A child cannot be written until a human does something."""
    waiting: str = ""
    """What must go before we can write."""


class _BlockedError(Exception):
    """A child cannot be written until a human does something."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _LeavingError(Exception):
    """A child of an earlier service of the same name is still in deletion."""


class Children:
    """Brings the children of one service at a time to what is meant. Raises ClusterError when it should be retried.

    Every write over an object that exists carries the version it was decided on: what changed meanwhile, or was written
    by another leader, is never overwritten from an older view (ConflictError: read again, decide again).
    """

    def __init__(self, cluster: Cluster, cache: Cache) -> None:
        self._cluster = cluster
        self._cache = cache

    async def bring(
        self, request: Request, manifests: Iterable[Mapping[str, Any]], replicas: int, live: Live
    ) -> Applied:
        """Apply the manifests in their order, then the count."""
        try:
            fleet: Object | None = live.get((DEPLOYMENTS, request.name))
            for manifest in manifests:
                applied = await self._apply(request, drift.stamp(manifest), live)
                fleet = applied if applied and applied["kind"] == DEPLOYMENTS.kind else fleet
            await self._scale(request, replicas, fleet)
        except _BlockedError as stop:
            return Applied(blocked=stop.problem)
        except _LeavingError as stop:
            return Applied(waiting=str(stop))
        except (ForbiddenError, InvalidError) as error:
            if "is being terminated" in error.message:
                return Applied(waiting="the namespace is being deleted")
            reason = (reasons.FORBIDDEN if isinstance(error, ForbiddenError) else reasons.REFUSED).name
            return Applied(blocked=Problem(reason, f"the API server refuses our write: {error.message}"))
        return Applied()

    async def tidy(
        self, request: Request, revision: Revision, step: Step, live: Live, revisions: Sequence[Revision]
    ) -> None:
        """Delete what is ours and no longer meant: the PDB of a single replica, revisions beyond the last five."""
        budget = live.get((DISRUPTION_BUDGETS, request.name))
        if step.replicas <= 1 and budget and judge(budget, request.name, request.uid).verdict == "ours":
            await self._delete(DISRUPTION_BUDGETS, budget)
        kept = [*(r for r in revisions if r.name != revision.name), revision]
        for name in outdated(kept, step.revision.name if step.revision else ""):
            await self._delete(REVISIONS, live[REVISIONS, name])

    async def _apply(self, request: Request, manifest: Mapping[str, Any], live: Live) -> Object | None:
        """Apply one child if its intent changed or somebody edited it; what it became, or None."""
        kind = _KIND_OF[manifest["apiVersion"], manifest["kind"]]
        name = manifest["metadata"]["name"]
        known = live.get((kind, name))
        if known is None and kind is REVISIONS:
            pass  # its name is a hash of its content: nobody else has it
        elif known is None or judge(known, request.name, request.uid).verdict != "ours":
            await self._check_owner(request, kind, name)
        elif _current(manifest, known):
            return None
        applied = await self._write(kind, manifest, names.MANAGER_CHILDREN, known)
        log.info("applied %s %s", kind.kind, name, extra={"service": f"{request.namespace}/{request.name}"})
        return applied

    async def _write(self, kind: Kind, manifest: Mapping[str, Any], manager: str, known: Object | None) -> Object:
        try:
            applied = await self._cluster.apply(kind, drift.decided_on(manifest, known), manager)
        except ConflictError:
            meta = manifest["metadata"]
            self._cache.put(kind, await self._cluster.get(kind, meta["namespace"], meta["name"]))
            raise
        self._cache.put(kind, applied)
        return applied

    async def _check_owner(self, request: Request, kind: Kind, name: str) -> None:
        """What our watch does not show may still exist: somebody else's object, or ours without its labels."""
        try:
            found = await self._cluster.get(kind, request.namespace, name)
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

    async def _scale(self, request: Request, replicas: int, fleet: Object | None) -> None:
        if fleet is not None and fleet["spec"].get("replicas") != replicas:
            await self._write(DEPLOYMENTS, scale(rollout.owner(request), replicas), names.MANAGER_SCALE, fleet)

    async def _delete(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        meta = obj["metadata"]
        version = meta.get("resourceVersion", "")
        await self._cluster.delete(kind, meta["namespace"], meta["name"], meta["uid"], version=version)


def _current(manifest: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    annotations = known["metadata"].get("annotations") or {}
    wanted = manifest["metadata"]["annotations"][names.ANNOTATION_HASH]
    # A listing's items carry no apiVersion and kind, so what is known of an object does not either.
    intent = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    return annotations.get(names.ANNOTATION_HASH) == wanted and drift.differs(intent, known) is None
