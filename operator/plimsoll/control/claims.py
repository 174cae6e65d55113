"""Reconciles only what this install is to serve: by class, and by who was first where installs overlap."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll import metrics
from plimsoll.adapters.ports import SERVICES, ClusterError, ForbiddenError, LeaseStore
from plimsoll.control.cache import Cache, Key
from plimsoll.control.report import Reporter
from plimsoll.core.claims import Life, Standing, Unanswered, claim_of, class_of, looked_at, standing, unanswered

log = logging.getLogger("plimsoll.claims")

RECHECK_SECONDS: Final = 10.0
LOOK_SECONDS: Final = 5.0


@dataclass
class Claims:
    """Wraps the reconcile of one service. ``me`` is our Lease, ``lease_of`` opens another install's by its name."""

    cache: Cache
    reporter: Reporter
    operator_class: str
    me: str
    lease_of: Callable[[str], LeaseStore]
    serve: Callable[[Key], Awaitable[float | None]]
    monotonic: Callable[[], float]
    _lives: dict[str, Life] = field(default_factory=dict)
    _looked_seconds: dict[str, float] = field(default_factory=dict)
    _hidden: set[str] = field(default_factory=set)
    """Installs whose Lease we may not read."""
    _unanswered: dict[Key, Unanswered] = field(default_factory=dict)
    _yielded: set[Key] = field(default_factory=set)

    async def reconcile(self, key: Key) -> float | None:
        """Serve it, yield it or let it go; the seconds after which to look again."""
        service = self.cache.get(SERVICES, *key)
        if service is None:
            self._forget(key)
            return await self.serve(key)
        match await self._standing(key, service):
            case Standing.SERVE:
                self._forget(key)
                return await self.serve(key)
            case Standing.CLAIM:
                log.warning("taking over from %s, which is gone", claim_of(service), extra={"service": str(key)})
                await self.reporter.claim(service)
                return 0.0
            case Standing.RELEASE:
                log.info("let go: its class is %r now", class_of(service), extra={"service": str(key)})
                await self.reporter.release(service)
                self._forget(key)
                self.reporter.forget(key)
                return None
            case Standing.YIELD:
                self._note_yield(key, service)
                return RECHECK_SECONDS
            case Standing.IGNORE:
                self._forget(key)
                return None

    async def _standing(self, key: Key, service: Mapping[str, Any]) -> Standing:
        found = standing(service, self.operator_class, self.me, rival_gone=False)
        if found is Standing.YIELD and await self._gone(key, service):
            return standing(service, self.operator_class, self.me, rival_gone=True)
        return found

    async def _gone(self, key: Key, service: Mapping[str, Any]) -> bool:
        rival, now = claim_of(service), self.monotonic()
        waiting = unanswered(self._unanswered.get(key), service, now)
        if waiting:
            self._unanswered[key] = waiting
        else:
            self._unanswered.pop(key, None)
        await self._look(rival)
        if rival in self._hidden:
            return waiting is not None and waiting.given_up(now)
        life = self._lives.get(rival)
        return life is not None and life.gone(now)

    async def _look(self, rival: str) -> None:
        """Look at the rival's Lease, a few times a minute at most however many services it has."""
        now = self.monotonic()
        if now - self._looked_seconds.get(rival, float("-inf")) < LOOK_SECONDS:
            return
        self._looked_seconds[rival] = now
        try:
            term, _ = await self.lease_of(rival).read()
        except ForbiddenError:
            self._hidden.add(rival)
        except ClusterError as error:
            log.info("cannot look at Lease %s: %s", rival, error.message)
        else:
            self._hidden.discard(rival)
            self._lives[rival] = looked_at(self._lives.get(rival), term, now)

    def _note_yield(self, key: Key, service: Mapping[str, Any]) -> None:
        if key not in self._yielded:
            log.warning(
                "another install serves it (status.servedBy: %s); this one (%s) yields. Give one of them a class, or "
                "other namespaces",
                claim_of(service),
                self.me,
                extra={"service": str(key)},
            )
        self._yielded.add(key)
        metrics.YIELDED.set(len(self._yielded))

    def _forget(self, key: Key) -> None:
        self._unanswered.pop(key, None)
        self._yielded.discard(key)
        metrics.YIELDED.set(len(self._yielded))
