"""Writing the status of a service, when it says something new and no more often than is worth it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from plimsoll.adapters.ports import SERVICES, Clock, Cluster, ConflictError, NotFoundError
from plimsoll.api import names
from plimsoll.control.cache import Cache, Key
from plimsoll.control.events import EventWriter
from plimsoll.control.ledger import record
from plimsoll.core import chronicle, conditions, drift, ledger, status
from plimsoll.core.conditions import Facts, Fleet
from plimsoll.core.manifests.identity import selector_text, track_selector
from plimsoll.core.observed import NOTHING_OBSERVED, Observed
from plimsoll.core.sizing import Size


class Reporter:
    """Tells users what is planned, seen and decided: status, and events on flips."""

    def __init__(self, cluster: Cluster, cache: Cache, clock: Clock, events: EventWriter, served_by: str) -> None:
        self._served_by = served_by
        self._cluster = cluster
        self._cache = cache
        self._clock = clock
        self._events = events
        self._figures: dict[Key, status.FigureBudget] = {}
        self._all_figures = status.FigureBudget(status.ALL_FIGURES_BURST, status.ALL_FIGURES_EVERY_SECONDS)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._figures.pop(key, None)

    async def report(
        self,
        key: Key,
        service: Mapping[str, Any],
        facts: Facts,
        plan: Mapping[str, Any] | None,
        size: Size,
        observed: Observed = NOTHING_OBSERVED,
        recommendation: Mapping[str, Any] | None = None,
        tuning: Mapping[str, Any] | None = None,
        *,
        grounds: chronicle.Grounds = dict,
    ) -> float | None:
        """Write the status if it says something new; the seconds until a postponed figure may be written.

        ``grounds``: what the planner's answer rests on.
        """
        before = service.get("status") or {}
        generation = int(service["metadata"].get("generation", 0))
        decided = conditions.decide(replace(facts, observed=(*observed.conditions(before), *facts.observed)))
        fleet = facts.fleet or Fleet(wanted=size.replicas, floor=size.floor)
        after = {
            "observedGeneration": generation,
            "servedBy": self._served_by,
            "conditions": conditions.merge(before.get("conditions") or (), decided, generation, self._clock.now()),
            "summary": {"replicas": f"{fleet.ready}/{size.replicas}"},
            "replicas": fleet.replicas,
            "readyReplicas": fleet.ready,
            "selector": selector_text(track_selector(key.name)),
        }
        parts = {
            "plan": plan,
            "observed": observed.status(before.get("observed") or {}, self._clock.now()),
            "load": before.get("load") if observed.load is None else observed.load,
            "recommendation": recommendation,
            "tuning": tuning,
            "scaling": size.scaling,
            "decisions": ledger.added(before.get("decisions") or (), size.entries, self._clock.now()),
        }
        after = status.without_empty_maps(after | {key: part for key, part in parts.items() if part})
        change = status.change(before, after)
        if change == "none":
            return None
        if change == "figures" and (wait := self._wait_seconds(key)) > 0:
            return wait
        await self._write(service, after)
        noted = chronicle.noted(before, after, service.get("spec") or {}, grounds)
        record(key, (*noted, *size.entries), self._clock.now())
        if change == "flip":
            await self._events.transitions(service, before.get("conditions") or (), decided)
            await self._events.decisions(service, size.entries, noted)
            await self._events.finding(service, (before.get("observed") or {}).get("bottleneck"), observed.finding)
        return None

    def _wait_seconds(self, key: Key) -> float:
        """0 and the write is on the object's budget and that of all, or the seconds until it may be made."""
        budgets = (self._figures.setdefault(key, status.FigureBudget()), self._all_figures)
        wait = max(budget.wait_seconds(self._clock.monotonic()) for budget in budgets)
        if wait == 0:
            for budget in budgets:
                budget.spend()
        return wait

    async def claim(self, service: Mapping[str, Any]) -> None:
        """Say that we act on the service from now on, before we do; all else that was reported stays."""
        await self._write(service, {**(service.get("status") or {}), "servedBy": self._served_by})

    async def release(self, service: Mapping[str, Any]) -> None:
        """Say that we do not act on the service any more; all else that was reported stays."""
        await self._write(service, {k: v for k, v in (service.get("status") or {}).items() if k != "servedBy"})

    async def _write(self, service: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        manifest = drift.decided_on(status.manifest(service["metadata"], after), service)
        try:
            written = await self._cluster.apply(SERVICES, manifest, names.MANAGER_STATUS, subresource="status")
        except NotFoundError as error:
            if not await self._cluster.served(SERVICES):
                return  # it is the kind that is away: that says nothing of the object
            # Deleted, and no watch has said so: for as long as it is thought to be there, what it owned is made anew.
            self._cache.drop(SERVICES, service)
            raise ConflictError(error.message, status=error.status) from error
        except ConflictError:
            # What we know of it is old, and a watch that lags would let us try in vain.
            self._cache.put(SERVICES, await self._cluster.get(SERVICES, *_address(service)))
            raise
        self._cache.put(SERVICES, written)


def _address(service: Mapping[str, Any]) -> tuple[str, str]:
    return service["metadata"]["namespace"], service["metadata"]["name"]
