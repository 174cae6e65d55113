"""Writing what a service owns: only where the intent changed or somebody edited it, never over what others own."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.adapters.ports import (
    CHILDREN,
    DISRUPTION_BUDGETS,
    OPTIONAL,
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
from plimsoll.core.kinds import Kinds
from plimsoll.core.manifests.revision import Revision, outdated
from plimsoll.core.manifests.workload import Workload, scale
from plimsoll.core.ownership import judge
from plimsoll.core.request import Request
from plimsoll.core.steps import Step

log = logging.getLogger("plimsoll.children")

_KIND_OF: Final[Mapping[tuple[str, str], Kind]] = {(k.api_version, k.kind): k for k in (*CHILDREN, *OPTIONAL)}

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

    def __init__(self, cluster: Cluster, cache: Cache, kinds: Callable[[str], Kinds]) -> None:
        self._cluster = cluster
        self._cache = cache
        self._kinds = kinds

    async def bring(
        self, request: Request, manifests: Iterable[Mapping[str, Any]], fleet: Workload, replicas: int, live: Live
    ) -> Applied:
        """Apply the manifests in their order, then the fleet's count."""
        try:
            known: Object | None = live.get(address(fleet))
            for manifest in manifests:
                applied = await self._apply(request, drift.stamp(manifest), live)
                known = applied if applied and applied["kind"] == fleet.kind else known
            await self.scale(request, fleet, replicas, known)
        except _BlockedError as stop:
            return Applied(blocked=stop.problem)
        except _LeavingError as stop:
            return Applied(waiting=str(stop))
        except NotFoundError as error:
            if address(fleet)[0] not in OPTIONAL:
                raise
            return Applied(blocked=Problem(reasons.SEVERAL_NODES.name, f"not served any more: {error.message}"))
        except (ForbiddenError, InvalidError) as error:
            if "is being terminated" in error.message:
                return Applied(waiting="the namespace is being deleted")
            reason = (reasons.FORBIDDEN if isinstance(error, ForbiddenError) else reasons.REFUSED).name
            return Applied(blocked=Problem(reason, f"the API server refuses our write: {error.message}"))
        return Applied()

    async def beside(self, request: Request, manifests: Iterable[Mapping[str, Any]], live: Live) -> tuple[Problem, ...]:
        """Apply manifests that stand beside the fleet, each for itself; what is in the way of those that failed."""
        tried = [await self._try(request, manifest, live) for manifest in manifests]
        return tuple(problem for problem in tried if problem)

    async def drop(self, request: Request, places: Iterable[tuple[Kind, str]], live: Live) -> None:
        """Delete what is not wanted any more, as far as it is there and ours."""
        for kind, name in places:
            found = live.get((kind, name))
            if found and judge(found, request.name, request.uid).verdict == "ours":
                await self._delete(kind, found)

    async def tidy(
        self, request: Request, revision: Revision, step: Step, live: Live, revisions: Sequence[Revision]
    ) -> None:
        """Delete what is ours and no longer meant: the PDB of a single replica, revisions beyond the last five."""
        if step.replicas <= 1:
            await self.drop(request, [(DISRUPTION_BUDGETS, request.name)], live)
        kept = [*(r for r in revisions if r.name != revision.name), revision]
        for name in outdated(kept, step.revision.name if step.revision else ""):
            await self._delete(REVISIONS, live[REVISIONS, name])

    async def _apply(self, request: Request, manifest: Mapping[str, Any], live: Live) -> Object | None:
        """Apply one child if its intent changed or somebody edited it; what it became, or None."""
        kind = _KIND_OF[manifest["apiVersion"], manifest["kind"]]
        name = manifest["metadata"]["name"]
        if kind in OPTIONAL and not (kinds := self._kinds(request.namespace)).usable(kind.kind):
            raise _BlockedError(_unusable(kind, name, kinds))
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

    async def _try(self, request: Request, manifest: Mapping[str, Any], live: Live) -> Problem | None:
        """Apply one manifest that nothing else depends on."""
        kind = manifest["kind"]
        try:
            await self._apply(request, drift.stamp(manifest), live)
        except _BlockedError as stop:
            return stop.problem
        except _LeavingError as stop:
            return Problem(reasons.NAME_CONFLICT.name, str(stop))
        except ForbiddenError as error:
            return Problem(reasons.KIND_UNUSABLE.name, f"the operator may not write the {kind}: {error.message}")
        except InvalidError as error:
            return Problem(reasons.REFUSED.name, f"the API server refuses the {kind}: {error.message}")
        except NotFoundError:
            return Problem(reasons.KIND_MISSING.name, f"{kind} ({manifest['apiVersion']}) is not served any more")
        return None

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

    async def scale(self, request: Request, fleet: Workload, replicas: int, known: Object | None) -> None:
        """Write the count, where it differs. ``known``: the workload on which it was decided."""
        if known is not None and known["spec"].get("replicas") != replicas:
            kind, _ = address(fleet)
            await self._write(kind, scale(rollout.owner(request), fleet, replicas), names.MANAGER_SCALE, known)

    async def _delete(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        meta = obj["metadata"]
        version = meta.get("resourceVersion", "")
        await self._cluster.delete(kind, meta["namespace"], meta["name"], meta["uid"], version=version)


def _unusable(kind: Kind, name: str, kinds: Kinds) -> Problem:
    """A fleet of a kind that cannot be seen now is left as it is: whatever we did would be a guess."""
    why = kinds.of(kind.kind).why
    return Problem(
        reasons.SEVERAL_NODES.name,
        f"{why}. {kind.kind} {name} can be neither seen nor changed; what runs is left as it is, and managed again as "
        "soon as the kind can be used",
    )


def address(fleet: Workload) -> tuple[Kind, str]:
    """Where a workload is found among the live children."""
    return _KIND_OF[fleet.api_version, fleet.kind], fleet.name


def _current(manifest: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    annotations = known["metadata"].get("annotations") or {}
    wanted = manifest["metadata"]["annotations"][names.ANNOTATION_HASH]
    # A listing's items carry no apiVersion and kind, so what is known of an object does not either.
    intent = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    return annotations.get(names.ANNOTATION_HASH) == wanted and drift.differs(intent, known) is None
