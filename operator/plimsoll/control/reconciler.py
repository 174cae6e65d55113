"""One reconcile of one service: gather → plan → apply what differs → report. A second run writes nothing.

What each step does stands elsewhere: which plan runs in ``core/rollout.py``, writing children in ``children.py``,
what is seen of them in ``core/observe.py``, the status in ``report.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.adapters.ports import DEPLOYMENTS, REVISIONS, SERVICES
from plimsoll.api import reasons
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Applied, Children
from plimsoll.control.planning import Planner
from plimsoll.control.report import Reporter
from plimsoll.core import observe, rollout
from plimsoll.core.conditions import Facts, Problem
from plimsoll.core.manifests.revision import read_revision
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Target

LEAVING_RECHECK_SECONDS: Final = 1.0
FIRST_LOOK_SECONDS: Final = 1.0
REFUSED_RECHECK_SECONDS: Final = 15.0
"""A refusal may end without an event of ours: a ConfigMap corrected, a right granted."""
CONTEST_RECHECK_SECONDS: Final = 60.0
"""A contest is over when nobody changes anything for a while: that makes no event."""


@dataclass
class Reconciler:
    """Brings the world to what one service asks for. Raises ClusterError when it should be tried again."""

    cache: Cache
    planner: Planner
    children: Children
    reporter: Reporter

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; the seconds after which to look again, or None when only an event should cause it."""
        service = self.cache.get(SERVICES, *key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            self.reporter.forget(key)
            self.children.forget(key)
            return None
        try:
            request = read_request(service)
        except ValidationError as error:
            facts = Facts(refusal=Problem(reasons.INVALID_SPEC.name, _first_error(error)))
            return await self.reporter.report(key, service, facts, None, 0)
        return await self._act(key, service, request)

    async def _act(self, key: Key, service: Mapping[str, Any], request: Request) -> float | None:
        outcome = await self.planner.plan(request)
        live = self.cache.children(key)
        revisions = [r for (kind, _), obj in live.items() if kind is REVISIONS and (r := read_revision(obj))]
        target = rollout.choose_target(request, outcome, revisions)
        replicas = rollout.replicas(request, target, live.get((DEPLOYMENTS, request.name)))
        applied = Applied()
        if target.revision and not request.held_because:
            manifests = rollout.children(request, target.revision, replicas)
            applied = await self.children.bring(request, manifests, replicas, live)
            if applied.blocked is None and not applied.waiting:
                await self.children.tidy(request, target.revision, replicas, live, revisions)
        if self._unseen(key):
            return FIRST_LOOK_SECONDS
        facts = self._facts(key, request, target, replicas, applied)
        again = await self.reporter.report(key, service, facts, rollout.reported_plan(target, replicas), replicas)
        if applied.waiting:
            return LEAVING_RECHECK_SECONDS
        if facts.refusal or facts.blocked or facts.update_unknown:
            return REFUSED_RECHECK_SECONDS
        return _earliest(again, applied.again_seconds, CONTEST_RECHECK_SECONDS if applied.contest else None)

    def _unseen(self, key: Key) -> bool:
        """We wrote the Deployment a moment ago: what its controller makes of it, at once, is what to report.

        Without this a mere change of the count, which is a new generation too, would show as a roll-out.
        """
        deployment = self.cache.get(DEPLOYMENTS, *key)
        return deployment is not None and not observe.seen(deployment) and self.children.just_wrote(key, DEPLOYMENTS)

    def _facts(self, key: Key, request: Request, target: Target, replicas: int, applied: Applied) -> Facts:
        deployment = self.cache.get(DEPLOYMENTS, request.namespace, request.name)
        return Facts(
            planned=rollout.sentence(target.revision) if target.revision and not target.refusal else "",
            refusal=target.refusal,
            blocked=applied.blocked,
            waiting=applied.waiting,
            held=request.held_because,
            fleet=observe.fleet(request, deployment, self.cache.pods(key), replicas),
            update=target.update,
            update_unknown=target.update_unknown,
            contest=applied.contest,
            limited=observe.limited(request, target, replicas),
        )


def _earliest(*waits: float | None) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(["spec", *map(str, first["loc"])])
    return f"{path}: {first['msg']} (got {str(first.get('input'))[:80]!r})"
