"""One reconcile of one service: gather → plan → apply what differs → report. A second run writes nothing.

What each step does stands elsewhere: which plan runs in ``core/rollout.py``, writing children in ``children.py``,
what is seen of them in ``core/observe.py``, the status in ``report.py``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.adapters.ports import OPTIONAL, REVISIONS, SERVICES, Kind
from plimsoll.api import reasons
from plimsoll.control.cache import Cache, Key
from plimsoll.control.children import Applied, Children, Live, address
from plimsoll.control.fleets import Fleets
from plimsoll.control.planning import Planner
from plimsoll.control.report import Reporter
from plimsoll.core import observe, rollout
from plimsoll.core.conditions import Facts, Problem
from plimsoll.core.handover import Handover
from plimsoll.core.integrations import integrations
from plimsoll.core.kinds import Kinds
from plimsoll.core.manifests.revision import Revision, read_revision
from plimsoll.core.request import Request, read_request
from plimsoll.core.rollout import Target

KINDS: Final = {kind.kind: kind for kind in OPTIONAL}
LEAVING_RECHECK_SECONDS: Final = 1.0
FIRST_LOOK_SECONDS: Final = 1.0
REFUSED_RECHECK_SECONDS: Final = 15.0
"""A refusal may end without an event of ours: a ConfigMap corrected, a right granted."""
INTEGRATION_RECHECK_SECONDS: Final = 60.0
"""As above, but the fleet is not concerned, and a missing right concerns every service at once."""


@dataclass
class Reconciler:
    """Brings the world to what one service asks for. Raises ClusterError when it should be tried again."""

    cache: Cache
    planner: Planner
    children: Children
    reporter: Reporter
    kinds: Callable[[str], Kinds]
    """Optional kinds as found in a namespace."""
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every PodMonitor."""

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile once; the seconds after which to look again, or None when only an event should cause it."""
        service = self.cache.get(SERVICES, *key)
        if service is None or service["metadata"].get("deletionTimestamp"):
            self.reporter.forget(key)
            return None
        try:
            request = read_request(service)
        except ValidationError as error:
            facts = Facts(refusal=Problem(reasons.INVALID_SPEC.name, _first_error(error)))
            return await self.reporter.report(key, service, facts, None, 0)
        return await self._act(key, service, request)

    async def _act(self, key: Key, service: Mapping[str, Any], request: Request) -> float | None:
        outcome = await self.planner.plan(request)
        live, kinds = self.cache.children(key), self.kinds(request.namespace)
        revisions = [r for (kind, _), obj in live.items() if kind is REVISIONS and (r := read_revision(obj))]
        target = rollout.choose_target(request, outcome, revisions, kinds)
        fleets = Fleets.of(request, target, live)
        replicas = rollout.replicas(request, target, live.get(fleets.place))
        applied, problems = Applied(), None
        if target.revision and not request.held_because:
            step = fleets.step(request, target, replicas)
            applied = await self._bring(request, target.revision, fleets, step, live)
            if applied.blocked is None and not applied.waiting:
                await self.children.tidy(request, target.revision, replicas, live, revisions)
            if not applied.waiting:
                problems = await self._integrate(request, kinds, live)
        if self._just_made(request, fleets.place, live):
            return FIRST_LOOK_SECONDS
        facts = replace(self._facts(key, request, target, replicas, applied, fleets), integrations=problems)
        again = await self.reporter.report(key, service, facts, rollout.reported_plan(target, replicas), replicas)
        if applied.waiting:
            return LEAVING_RECHECK_SECONDS
        if facts.refusal or facts.blocked or facts.update_unknown:
            return REFUSED_RECHECK_SECONDS
        return min(again or INTEGRATION_RECHECK_SECONDS, INTEGRATION_RECHECK_SECONDS) if problems else again

    async def _bring(self, request: Request, revision: Revision, fleets: Fleets, step: Handover, live: Live) -> Applied:
        """The fleet as planned; while a fleet of the other kind runs, as far as both have room."""
        if step.problem:
            return Applied(blocked=step.problem)
        applied = Applied()
        if step.replicas or step.old_replicas is None:
            manifests = rollout.children(request, revision, step.replicas)
            applied = await self.children.bring(request, manifests, fleets.mine, step.replicas, live)
        if fleets.old is None or applied.blocked or applied.waiting:
            return applied
        if step.old_replicas is None:
            await self.children.drop(request, [address(fleets.other)], live)
        else:
            await self.children.scale(request, fleets.other, step.old_replicas, fleets.old)
        return applied

    async def _integrate(self, request: Request, kinds: Kinds, live: Live) -> tuple[Problem, ...]:
        """Objects of optional kinds; what is in the way of those that are wanted."""
        wanted = integrations(request, rollout.owner(request), kinds, self.monitor_labels)
        await self.children.drop(request, [(KINDS[name], request.name) for name in wanted.unwanted], live)
        return (*wanted.problems, *await self.children.beside(request, wanted.manifests, live))

    def _just_made(self, request: Request, fleet: tuple[Kind, str], live: Live) -> bool:
        """The workload is new: what its controller makes of it, a moment later, is the first thing to report."""
        kind, name = fleet
        return fleet not in live and self.cache.get(kind, request.namespace, name) is not None

    def _facts(
        self, key: Key, request: Request, target: Target, replicas: int, applied: Applied, fleets: Fleets
    ) -> Facts:
        kind, name = fleets.place
        live = self.cache.get(kind, request.namespace, name)
        unseen = kind in OPTIONAL and not self.kinds(request.namespace).usable(kind.kind)
        return Facts(
            planned=rollout.sentence(target.revision) if target.revision and not target.refusal else "",
            refusal=target.refusal,
            blocked=applied.blocked,
            waiting=applied.waiting,
            held=request.held_because,
            fleet=observe.fleet(request, live, self.cache.pods(key), replicas, old=fleets.old, unseen=unseen),
            update=target.update,
            update_unknown=target.update_unknown,
            limited=observe.limited(request, target, replicas),
        )


def _first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(["spec", *map(str, first["loc"])])
    return f"{path}: {first['msg']} (got {str(first.get('input'))[:80]!r})"
