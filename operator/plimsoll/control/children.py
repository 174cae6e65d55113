"""Writing what a service owns: only where the intent changed or somebody edited it, never over what others own."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.adapters.ports import (
    CHILDREN,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
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
from plimsoll.api import names, reasons, write_reasons
from plimsoll.control.cache import Cache, Key
from plimsoll.control.turns import Slot, Stop, Turns
from plimsoll.core import drift, rollout
from plimsoll.core.conditions import Contest, Problem
from plimsoll.core.contention import WHOLE
from plimsoll.core.drift import Path
from plimsoll.core.manifests.deployment import scale
from plimsoll.core.manifests.identity import selector_text
from plimsoll.core.manifests.revision import Revision, outdated
from plimsoll.core.ownership import judge
from plimsoll.core.refusals import leaving, refusal, webhook_away
from plimsoll.core.request import Request
from plimsoll.core.steps import Step

log = logging.getLogger("plimsoll.children")

_KIND_OF: Final[Mapping[tuple[str, str], Kind]] = {(k.api_version, k.kind): k for k in CHILDREN}

_REPLICAS: Final = ("spec", "replicas")

Live = Mapping[tuple[Kind, str], dict[str, Any]]


@dataclass
class Applied:
    """What became of writing the children."""

    blocked: Problem | None = None
    """A child cannot be written until a human does something."""
    lacking: Problem | None = None
    """Something is missing that engines run without."""
    waiting: str = ""
    """What must go before we can write."""
    contest: Contest | None = None
    """Somebody keeps changing a child."""
    again_seconds: float | None = None
    """After so long a change that waits for its turn may be put back."""

    def wait(self, seconds: float) -> None:
        """A write has to wait."""
        self.again_seconds = min(seconds, self.again_seconds or seconds)


class _StoppedError(Exception):
    """A child cannot be written now."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.text)
        self.stop = stop


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
    ) -> None:
        self._cluster = cluster
        self._cache = cache
        self._turns = turns
        self._unlisted = unlisted

    def forget(self, service: Key) -> None:
        """The service is gone."""
        self._turns.forget(service)

    def just_wrote(self, service: Key, kind: Kind) -> bool:
        """Whether an object of this kind was written so shortly ago that its controller may not have seen it."""
        return self._turns.just_wrote(service, kind)

    def unseen(self, kind: Kind, namespace: str) -> Problem | None:
        """Why nothing is known of this kind: then nothing of it may be written, or said to be missing."""
        sentence = self._unlisted(kind, namespace)
        return refusal(f"{kind.kind}s of {namespace}", sentence, forbidden=True) if sentence else None

    async def bring(
        self, request: Request, manifests: Iterable[Mapping[str, Any]], replicas: int | None, live: Live
    ) -> Applied:
        """Apply the manifests in their order, then the count (None: it is not ours); stop at the first that cannot be
        written.
        """
        applied = Applied()
        try:
            fleet: Object | None = live.get((DEPLOYMENTS, request.name))
            for manifest in manifests:
                written = await self._apply(request, drift.stamp(manifest), live, applied)
                fleet = written if written and manifest["kind"] == DEPLOYMENTS.kind else fleet
            if replicas is not None:
                await self._scale(request, replicas, fleet, applied)
        except _StoppedError as stopped:
            applied.blocked, applied.waiting = stopped.stop.problem, stopped.stop.waiting
        return applied

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
        self, request: Request, manifest: Mapping[str, Any], live: Live, applied: Applied
    ) -> Object | None:
        """Apply one child if its intent changed or somebody edited it, when it is our turn; what it became, or None."""
        kind = _KIND_OF[manifest["apiVersion"], manifest["kind"]]
        name = manifest["metadata"]["name"]
        slot = Slot(Key(request.namespace, request.name), kind, name, names.MANAGER_CHILDREN)
        written = None
        try:
            written = await self._bring_one(request, slot, manifest, live.get((kind, name)), applied)
        except _StoppedError as stopped:
            if kind is not DISRUPTION_BUDGETS or stopped.stop.problem is None:
                raise
            applied.lacking = stopped.stop.problem
        applied.contest = applied.contest or self._turns.contest(slot)
        return written

    async def _bring_one(
        self, request: Request, slot: Slot, manifest: Mapping[str, Any], known: Object | None, applied: Applied
    ) -> Object | None:
        if unseen := self.unseen(slot.kind, request.namespace):
            raise _StoppedError(Stop(unseen))
        ours = known is not None and judge(known, request.name, request.uid).verdict == "ours"
        if ours and not _changed(manifest, known):
            return None
        # A revision's name is a hash of its content: nobody else has it.
        if not ours and not (known is None and slot.kind is REVISIONS):
            known = await self._find(request, slot)
        if known is not None:
            _check_selector(slot, manifest, known)
        intent, changed = manifest["metadata"]["annotations"][names.ANNOTATION_HASH], _changed(manifest, known)
        wait = await self._turns.wait_seconds(slot, intent, changed)
        if wait > 0:
            applied.wait(wait)
            return None
        answer = await self._write(slot, intent, manifest, known)
        self._turns.wrote(slot, intent, changed, _changed(manifest, answer))
        log.info("applied %s %s", slot.kind.kind, slot.name, extra={"service": str(slot.service)})
        return answer

    async def _write(self, slot: Slot, intent: str, manifest: Mapping[str, Any], known: Object | None) -> Object:
        """Apply over what the decision was made on, unless it was refused a moment ago."""
        if stop := self._turns.stopped(slot, intent):
            raise _StoppedError(stop)
        try:
            answer = await self._cluster.apply(slot.kind, drift.decided_on(manifest, known), slot.manager)
        except ConflictError:
            self._cache.put(slot.kind, await self._cluster.get(slot.kind, slot.service.namespace, slot.name))
            raise
        except (ForbiddenError, InvalidError, UnreachableError) as error:
            stop = _why(slot, error)
            if stop is None:
                raise
            self._turns.stop(slot, intent, stop)
            raise _StoppedError(stop) from error
        self._cache.put(slot.kind, answer)
        return answer

    async def _find(self, request: Request, slot: Slot) -> Object | None:
        """What our watch does not show may still exist: ours without its labels, or somebody else's object."""
        try:
            found = await self._cluster.get(slot.kind, request.namespace, slot.name)
        except NotFoundError:
            return None
        except ForbiddenError as error:
            raise _StoppedError(Stop(refusal(str(slot), error.message, forbidden=True))) from error
        ownership = judge(found, request.name, request.uid)
        if ownership.verdict == "leaving":
            text = f"{slot.kind.kind} {slot.name} of an earlier VLLMService of this name is still being deleted"
            raise _StoppedError(Stop(waiting=text))
        if ownership.verdict == "foreign":
            message = (
                f"{slot} exists and is not ours ({ownership.whose}); "
                "delete or rename it, or give this VLLMService another name"
            )
            raise _StoppedError(Stop(Problem(reasons.NAME_CONFLICT.name, message)))
        return found

    async def _scale(self, request: Request, replicas: int, fleet: Object | None, applied: Applied) -> None:
        slot = Slot(Key(request.namespace, request.name), DEPLOYMENTS, request.name, names.MANAGER_SCALE)
        if fleet is not None and fleet["spec"].get("replicas") != replicas:
            wait = await self._turns.wait_seconds(slot, str(replicas), [_REPLICAS])
            if wait > 0:
                applied.wait(wait)
            else:
                answer = await self._write(slot, str(replicas), scale(rollout.owner(request), replicas), fleet)
                left = [] if answer["spec"].get("replicas") == replicas else [_REPLICAS]
                self._turns.wrote(slot, str(replicas), [_REPLICAS], left)
        applied.contest = applied.contest or self._turns.contest(slot)

    async def _delete(self, kind: Kind, obj: Mapping[str, Any]) -> None:
        meta = obj["metadata"]
        version = meta.get("resourceVersion", "")
        await self._cluster.delete(kind, meta["namespace"], meta["name"], meta["uid"], version=version)


def _changed(manifest: Mapping[str, Any], known: Mapping[str, Any] | None) -> list[Path]:
    """Paths in which the live object is not what is meant; empty when nothing is to be written."""
    if known is None:
        return [WHOLE]
    # A listing's items carry no apiVersion and kind, so what is known of an object does not either.
    intent = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    return [*drift.differences(intent, known)]


def _check_selector(slot: Slot, manifest: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """A Deployment with another selector, restored or made anew by hand, cannot be mended by a write."""
    if slot.kind is not DEPLOYMENTS:
        return
    wanted, found = (obj["spec"]["selector"]["matchLabels"] for obj in (manifest, known))
    if wanted != found:
        message = (
            f"{slot} selects {selector_text(found)}, which cannot be changed, and must select {selector_text(wanted)}; "
            f"delete it (kubectl delete deployment {slot.name} -n {slot.service.namespace}): its pods end, and it is "
            "made anew"
        )
        raise _StoppedError(Stop(Problem(write_reasons.IMMUTABLE_FIELD.name, message)))


def _why(slot: Slot, error: ClusterError) -> Stop | None:
    """What stopped a write, or None when only trying again can tell."""
    if isinstance(error, UnreachableError):
        webhook = webhook_away(error.message)
        return Stop(waiting=f"{slot}: admission webhook {webhook} does not answer") if webhook else None
    if leaving(error.message):
        return Stop(waiting="the namespace is being deleted")
    return Stop(refusal(str(slot), error.message, forbidden=isinstance(error, ForbiddenError)))
