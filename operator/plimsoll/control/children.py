"""Writing what a service owns: only where the intent changed or somebody edited it, never over what others own."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.adapters.ports import (
    CHILDREN,
    DISRUPTION_BUDGETS,
    OPTIONAL,
    REVISIONS,
    Cluster,
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    NotFoundError,
    Object,
    UnreachableError,
)
from plimsoll.api import names, reasons
from plimsoll.control.cache import Cache, Key, is_listed, owner_of
from plimsoll.control.stops import StoppedError, check_selector, unusable, why
from plimsoll.control.turns import Slot, Stop, Turns
from plimsoll.core import drift, rollout
from plimsoll.core.conditions import Contest, Problem
from plimsoll.core.contention import WHOLE
from plimsoll.core.drift import Path
from plimsoll.core.kinds import NOTHING_OPTIONAL, Kinds
from plimsoll.core.managers import holders
from plimsoll.core.manifests.revision import Revision, outdated, read_revision
from plimsoll.core.manifests.workload import Workload, scale
from plimsoll.core.ownership import judge
from plimsoll.core.refusals import refusal
from plimsoll.core.request import Request
from plimsoll.core.stable_text import stable
from plimsoll.core.steps import Step

log = logging.getLogger("plimsoll.children")

_KIND_OF: Final[Mapping[tuple[str, str], Kind]] = {(k.api_version, k.kind): k for k in (*CHILDREN, *OPTIONAL)}

_REPLICAS: Final = ("spec", "replicas")

SAID_LIMIT: Final = 400

Live = Mapping[tuple[Kind, str], dict[str, Any]]


def kept_revisions(live: Live) -> list[Revision]:
    """The plans that are kept among a service's children, in no order."""
    return [found for (kind, _), obj in live.items() if kind is REVISIONS and (found := read_revision(obj))]


@dataclass
class Applied:
    """What became of writing the children."""

    blocked: Problem | None = None
    """A child cannot be written until a human does something."""
    lacking: Problem | None = None
    """Something is missing that engines run without."""
    waiting: str = ""
    """What must go before we can write."""
    beside: tuple[Problem, ...] | None = None
    """What is in the way of objects beside the fleet; None: nobody has tried to make them."""
    contest: Contest | None = None
    """Somebody keeps changing a child."""
    again_seconds: float | None = None
    """After so long a change that waits for its turn may be put back."""

    def wait(self, seconds: float) -> None:
        """A write has to wait."""
        self.again_seconds = min(seconds, self.again_seconds or seconds)


class Children:
    """Brings the children of one service at a time to what is meant. Raises ClusterError when it should be retried.

    Every write over an object that exists carries the version it was decided on: what changed meanwhile, or was written
    by another leader, is never overwritten from an older view (ConflictError: read again, decide again).
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: Cache,
        turns: Turns,
        unlisted: Callable[[Kind, str], str] = lambda _kind, _namespace: "",
        kinds: Callable[[str], Kinds] = lambda _namespace: NOTHING_OPTIONAL,
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._turns = turns
        self._unlisted = unlisted
        self._kinds = kinds
        self._same: dict[Key, dict[Slot, tuple[str, str]]] = {}
        """Intent and version of objects that were found to say what is meant: nothing to compare until one changes."""

    def forget(self, service: Key) -> None:
        """The service is gone."""
        self._same.pop(service, None)
        self._turns.forget(service)

    def just_wrote(self, service: Key, kind: Kind) -> bool:
        """Whether an object of this kind was written so shortly ago that its controller may not have seen it."""
        return self._turns.just_wrote(service, kind)

    def unseen(self, kind: Kind, namespace: str) -> Problem | None:
        """Why nothing is known of this kind: then nothing of it may be written, or said to be missing."""
        if kind in OPTIONAL:
            found = self._kinds(namespace).of(kind.kind)
            return None if found.access == "usable" else unusable(kind, found.why)
        sentence = self._unlisted(kind, namespace)
        return refusal(f"{kind.kind}s of {namespace}", sentence, forbidden=True) if sentence else None

    async def bring(
        self,
        request: Request,
        manifests: Sequence[Mapping[str, Any]],
        fleet: Workload,
        replicas: int | None,
        live: Live,
    ) -> Applied:
        """Apply the manifests in their order, the fleet's count (None: it is not ours) before its budget; stop at the
        first that cannot be written.
        """
        applied = Applied()
        try:
            absent = () if live else await self._absent(request, fleet)
            known: Object | None = live.get(address(fleet))
            for manifest in manifests:
                if manifest["kind"] == fleet.kind:
                    written = await self._apply(request, drift.stamp(manifest), live, applied, absent, first=replicas)
                    known = written or known
                elif manifest["kind"] != DISRUPTION_BUDGETS.kind:
                    await self._apply(request, drift.stamp(manifest), live, applied, absent)
            if replicas is not None:
                await self._scale(request, fleet, replicas, known, applied)
            for manifest in manifests:
                if manifest["kind"] == DISRUPTION_BUDGETS.kind:
                    await self._apply(request, drift.stamp(manifest), live, applied)
        except StoppedError as stopped:
            applied.blocked, applied.waiting = stopped.stop.problem, stopped.stop.waiting
        return applied

    async def retire(
        self, request: Request, fleet: Workload, replicas: int | None, live: Live, applied: Applied
    ) -> None:
        """A workload that another one follows: so many replicas of it for now, or its end (None)."""
        kind, name = address(fleet)
        if replicas is None:
            applied.blocked = await self.drop(request, kind, name, live)
            return
        try:
            await self._scale(request, fleet, replicas, live.get((kind, name)), applied)
        except StoppedError as stopped:
            applied.blocked, applied.waiting = stopped.stop.problem, stopped.stop.waiting

    async def beside(
        self, request: Request, manifest: Mapping[str, Any], live: Live, applied: Applied
    ) -> Problem | None:
        """Apply what stands beside the fleet; what is in the way concerns nothing else."""
        try:
            await self._apply(request, drift.stamp(manifest), live, applied)
        except StoppedError as stopped:
            return stopped.stop.problem or Problem(reasons.KIND_UNUSABLE.name, stopped.stop.waiting)
        except ConflictError:
            raise
        except ClusterError as error:
            message = f"{manifest['kind']} {request.namespace}/{request.name}: {error.message}"
            return Problem(reasons.KIND_UNUSABLE.name, stable(message, SAID_LIMIT))
        return None

    async def drop(self, request: Request, kind: Kind, name: str, live: Live) -> Problem | None:
        """Delete what is not wanted any more, as far as it is there and ours; why it may not be deleted."""
        found = live.get((kind, name))
        if found is None or judge(found, request.name, request.uid).verdict != "ours":
            return None
        try:
            await self._delete(kind, found)
        except ForbiddenError as error:
            return refusal(f"{kind.kind} {request.namespace}/{name}", error.message, forbidden=True)
        return None

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

    async def _apply(
        self,
        request: Request,
        manifest: Mapping[str, Any],
        live: Live,
        applied: Applied,
        absent: Collection[Kind] = (),
        *,
        first: int | None = None,
    ) -> Object | None:
        """Apply one child if its intent changed or somebody edited it, when it is our turn; what it became, or None.

        ``absent``: kinds that are certainly not there; ``first``: the count with which a fleet is made.
        """
        kind = _KIND_OF[manifest["apiVersion"], manifest["kind"]]
        name = manifest["metadata"]["name"]
        slot = Slot(Key(request.namespace, request.name), kind, name, names.MANAGER_CHILDREN)
        written = None
        try:
            written = await self._bring_one(
                request, slot, manifest, live.get((kind, name)), applied, absent, first=first
            )
        except StoppedError as stopped:
            if kind is not DISRUPTION_BUDGETS or stopped.stop.problem is None:
                raise
            applied.lacking = stopped.stop.problem
        applied.contest = applied.contest or self._turns.contest(slot)
        return written

    async def _bring_one(
        self,
        request: Request,
        slot: Slot,
        manifest: Mapping[str, Any],
        known: Object | None,
        applied: Applied,
        absent: Collection[Kind],
        *,
        first: int | None,
    ) -> Object | None:
        if unseen := self.unseen(slot.kind, request.namespace):
            raise StoppedError(Stop(unseen))
        ours = known is not None and judge(known, request.name, request.uid).verdict == "ours"
        if ours and self._says_what_is_meant(slot, manifest, known):
            return None
        if not ours and slot.kind not in absent:
            known = await self._find(request, slot)
            manifest = _as_kept(manifest, known) if known and slot.kind is REVISIONS else manifest
        if known is not None:
            check_selector(slot, manifest, known)
        intent, changed = manifest["metadata"]["annotations"][names.ANNOTATION_HASH], _changed(manifest, known)
        wait = await self._turns.wait_seconds(slot, intent, changed)
        if wait > 0:
            applied.wait(wait)
            return None
        answer = await self._write(slot, intent, manifest if known else _made_with(manifest, first), known)
        self._turns.wrote(slot, intent, changed, _changed(manifest, answer))
        log.info("applied %s %s", slot.kind.kind, slot.name, extra={"service": str(slot.service)})
        return answer

    def _says_what_is_meant(self, slot: Slot, manifest: Mapping[str, Any], known: Object | None) -> bool:
        """Compared once for each version of the object: most of what an idle reconcile would cost."""
        version = known["metadata"].get("resourceVersion", "") if known else ""
        seen = (manifest["metadata"]["annotations"][names.ANNOTATION_HASH], version)
        same = self._same.setdefault(slot.service, {})
        if version and same.get(slot) == seen:
            return True
        if _changed(manifest, known):
            same.pop(slot, None)
            return False
        same[slot] = seen
        return True

    async def _write(self, slot: Slot, intent: str, manifest: Mapping[str, Any], known: Object | None) -> Object:
        """Apply over what the decision was made on, unless it was refused a moment ago."""
        if stop := self._turns.stopped(slot, intent):
            raise StoppedError(stop)
        try:
            answer = await self._cluster.apply(slot.kind, drift.decided_on(manifest, known), slot.manager)
        except ConflictError:
            self._cache.put(slot.kind, await self._cluster.get(slot.kind, slot.service.namespace, slot.name))
            raise
        except (ForbiddenError, InvalidError, NotFoundError, UnreachableError) as error:
            stop = why(slot, error)
            if stop is None:
                raise
            self._turns.stop(slot, intent, stop)
            raise StoppedError(stop) from error
        self._cache.put(slot.kind, answer)
        return answer

    async def _find(self, request: Request, slot: Slot) -> Object | None:
        """What our watch does not show may still exist: ours without its labels, or somebody else's object."""
        try:
            found = await self._cluster.get(slot.kind, request.namespace, slot.name)
        except NotFoundError:
            return None
        except ForbiddenError as error:
            raise StoppedError(Stop(refusal(str(slot), error.message, forbidden=True))) from error
        ownership = judge(found, request.name, request.uid)
        if ownership.verdict == "leaving":
            text = f"{slot.kind.kind} {slot.name} of an earlier VLLMService of this name is still being deleted"
            raise StoppedError(Stop(waiting=text))
        if ownership.verdict == "foreign":
            message = (
                f"{slot} exists and is not ours ({ownership.whose}); "
                "delete or rename it, or give this VLLMService another name"
            )
            raise StoppedError(Stop(Problem(reasons.NAME_CONFLICT.name, message)))
        return found

    async def _absent(self, request: Request, fleet: Workload) -> tuple[Kind, ...]:
        """Of a service of which nothing is seen: the kinds that are not there. It is new, or our listing is older than
        what we made, and any plan would be its first: ConflictError until its revisions are seen.
        """
        kind, name = address(fleet)
        slot = Slot(Key(request.namespace, request.name), kind, name, names.MANAGER_CHILDREN)
        found = await self._find(request, slot)
        if found is not None and owner_of(found) == slot.service and is_listed(found):
            await self._see(slot, found)
            raise ConflictError(f"{slot} exists, and was not listed")
        # A revision's name is a hash of its content: nobody else has it, and of a new service nor have we.
        return (REVISIONS,) if found else (REVISIONS, kind)

    async def _see(self, slot: Slot, fleet: Object) -> None:
        """A fleet that was not listed, and before it the revisions that tell what it runs: not the one without them."""
        selector = f"{names.LABEL_SERVICE}={slot.service.name}"
        revisions = [each async for each in self._cluster.list(REVISIONS, slot.service.namespace, selector)]
        for revision in revisions:
            self._cache.put(REVISIONS, revision)
        if revisions:
            self._cache.put(slot.kind, fleet)

    async def _scale(
        self, request: Request, fleet: Workload, replicas: int, known: Object | None, applied: Applied
    ) -> None:
        """Write the count, where it differs or is not claimed. ``known``: the workload on which it was decided."""
        kind, name = address(fleet)
        slot = Slot(Key(request.namespace, request.name), kind, name, names.MANAGER_SCALE)
        if known is not None and (known["spec"].get("replicas") != replicas or _unclaimed(known)):
            wait = await self._turns.wait_seconds(slot, str(replicas), [_REPLICAS])
            if wait > 0:
                applied.wait(wait)
            else:
                answer = await self._write(slot, str(replicas), scale(rollout.owner(request), fleet, replicas), known)
                left = [] if answer["spec"].get("replicas") == replicas else [_REPLICAS]
                self._turns.wrote(slot, str(replicas), [_REPLICAS], left)
        applied.contest = applied.contest or self._turns.contest(slot)

    async def _delete(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        meta = obj["metadata"]
        version = meta.get("resourceVersion", "")
        await self._cluster.delete(kind, meta["namespace"], meta["name"], meta["uid"], version=version)
        # A watch that lags would let us delete it again and again; whatever is left of it, a later event shows.
        self._cache.drop(kind, obj)


def address(fleet: Workload) -> tuple[Kind, str]:
    """Where a workload is found among the live children."""
    return _KIND_OF[fleet.api_version, fleet.kind], fleet.name


def _made_with(manifest: Mapping[str, Any], count: int | None) -> Mapping[str, Any]:
    """A parked fleet is made with no replicas: made without a count it gets one, and a pod starts only to be ended.

    The hash leaves the count out, and `_scale` sees to it that it is not lost.
    """
    return manifest if count != 0 else {**manifest, "spec": {**manifest["spec"], "replicas": count}}


def _unclaimed(known: Mapping[str, Any]) -> bool:
    """Whether only who made the fleet holds the count: applied again without it, the fleet would lose it.

    ``known`` is as the cache keeps it, or as the API answered.
    """
    held = known["countedBy"] if "countedBy" in known else holders(known, *_REPLICAS)
    return names.MANAGER_CHILDREN in held and names.MANAGER_SCALE not in held


def _as_kept(manifest: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A revision that is there and was not seen (its labels were taken) keeps its data, which nobody may change.

    Its name is a hash of choice and template; what the plan estimates may be known better by now.
    """
    meta = dict(manifest["metadata"])
    annotations = {key: value for key, value in meta.pop("annotations").items() if key != names.ANNOTATION_HASH}
    kept = {**manifest, "data": known["data"], "metadata": meta | ({"annotations": annotations} if annotations else {})}
    return drift.stamp(kept)


def _changed(manifest: Mapping[str, Any], known: Mapping[str, Any] | None) -> list[Path]:
    """Paths in which the live object is not what is meant; empty when nothing is to be written."""
    if known is None:
        return [WHOLE]
    # A listing's items carry no apiVersion and kind, so what is known of an object does not either.
    intent = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    return [*drift.differences(intent, known)]
