"""Asks for requests that wait where no replica runs: one query a template, whatever the number of services."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from plimsoll import metrics
from plimsoll.adapters.ports import MetricsSource
from plimsoll.control.cache import Cache, Key
from plimsoll.control.workqueue import WorkQueue
from plimsoll.core.activation import Template, joined
from plimsoll.core.sampling import Answer

log = logging.getLogger("plimsoll.activations")

MISSED_TICKS: Final = 3
"""After so many an answer is too old to say anything."""


@dataclass
class Activations:
    """The newest answers of the templates."""

    templates: Mapping[str, Template]
    source: MetricsSource | None
    cache: Cache
    queue: WorkQueue[Key]
    monotonic: Callable[[], float]
    interval_seconds: float
    _found: dict[str, tuple[float, Mapping[tuple[str, str], float]]] = field(default_factory=dict)
    _told: dict[str, str] = field(default_factory=dict)

    def requests(self, name: str, key: Key) -> float | None:
        """Requests for a service by the newest answer; None when nobody can tell."""
        at, found = self._found.get(name, (float("-inf"), {}))
        fresh = self.monotonic() - at <= MISSED_TICKS * self.interval_seconds
        return found.get((key.namespace, key.name)) if fresh else None

    async def run(self) -> None:
        """Ask for ever; without templates there is nothing to ask."""
        while self.source is not None and self.templates:
            await asyncio.gather(*(self._ask(self.source, name, of) for name, of in self.templates.items()))
            await asyncio.sleep(self.interval_seconds)

    async def _ask(self, source: MetricsSource, name: str, template: Template) -> None:
        answer = await source.query(template.query)
        metrics.PROMETHEUS_QUERIES.inc()
        if not isinstance(answer, Answer):
            self._tell(name, answer.message)
            return
        self._tell(name, "")
        at = self.monotonic() - answer.age_seconds
        self._found[name] = (at, joined(((one.labels, one.value) for one in answer.series), template))
        known = set(self.cache.services())
        for address, value in self._found[name][1].items():
            if value > 0 and Key(*address) in known:
                self.queue.add(Key(*address))

    def _tell(self, name: str, fault: str) -> None:
        if fault != self._told.get(name, ""):
            log.warning("activation query %s: %s", name, fault or "answered again")
        self._told[name] = fault
