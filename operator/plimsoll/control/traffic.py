"""What each service's traffic has shown, a tick after the other, and what of it counts as load.

Days stand in the service's status and nowhere else: whoever starts anew goes on from there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Final

from plimsoll import metrics
from plimsoll.control.cache import Key
from plimsoll.control.sampler import Sampler
from plimsoll.core import learned_load, traffic
from plimsoll.core.plan.demand import NOTHING_LEARNED
from plimsoll.core.request import Request
from plimsoll.core.traffic import Day, Tick

DECLARED: Final = "Declared"


@dataclass(frozen=True)
class _Memory:
    days: tuple[Day, ...]
    now: traffic.Traffic
    tick: int = 0
    shown: Tick | None = None
    """By the tick that was looked at last."""


class TrafficWatch:
    """The traffic of all services. It forgets with the process; the status keeps the days."""

    def __init__(self, sampler: Sampler, wall_seconds: Callable[[], float]) -> None:
        self._sampler = sampler
        self._wall_seconds = wall_seconds
        self._memories: dict[Key, _Memory] = {}

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._memories.pop(key, None)
        for gauge in (metrics.LOAD_OBSERVED, metrics.LOAD_COUNTED):
            for figure in learned_load.FIGURES:
                metrics.show(gauge, *key, None, figure)

    def start_over(self) -> None:
        """Another operator has led meanwhile: the status knows more than we do."""
        self._memories.clear()

    def again(self, key: Key, at_seconds: float) -> None:
        """A tick that shows what the last look has seen."""
        if memory := self._memories.get(key):
            now = traffic.after(memory.now, memory.shown, at_seconds, self._wall_seconds())
            self._memories[key] = replace(memory, now=now)

    def look(self, key: Key, request: Request, told: Mapping[str, Any]) -> tuple[Request, Mapping[str, Any]]:
        """The request with the load that counts, and ``status.load``, which ``told`` is as it stands there.

        The newest tick is counted once, however often this is asked.
        """
        days = self._days(key, told.get("days") or ())
        today, load = self._today(), request.spec.load
        learned = learned_load.decide(days, load, today)
        if request.spec.tuning.load == DECLARED:
            learned = NOTHING_LEARNED
        figures = learned_load.side_by_side(days, load, learned, today)
        request = replace(request, load=learned)
        if not days:
            return request, {}
        for figure in learned_load.FIGURES:
            row = figures.get(figure, {})
            metrics.show(metrics.LOAD_OBSERVED, *key, row.get("observed"), figure)
            metrics.show(metrics.LOAD_COUNTED, *key, row.get("counts"), figure)
        return request, {"figures": figures, "days": traffic.to_status(days)}

    def _days(self, key: Key, told: Sequence[Mapping[str, Any]]) -> tuple[Day, ...]:
        memory, found = self._memories.get(key), self._sampler.newest
        if memory is None:
            days = traffic.from_status(told)
            memory = _Memory(days, traffic.begin(days, self._wall_seconds()))
        if found is not None and found.tick != memory.tick and (look := self._sampler.look(key)) is not None:
            tick = traffic.read(look.view)
            now = traffic.after(memory.now, tick, found.at_seconds, self._wall_seconds())
            memory = _Memory(traffic.told(memory.days, now), now, found.tick, tick)
        self._memories[key] = memory
        return memory.days

    def _today(self) -> date:
        return datetime.fromtimestamp(self._wall_seconds(), UTC).date()
