"""Services of which every tick says the same are looked at less often: a thousand idle ones must cost next to nothing.

What does change is followed at the very next tick. Where time alone may change a decision (fewer replicas once fewer
were needed for long enough), looks stay frequent enough for the window of the way down (``Tuning.gap_seconds`` is four
ticks). Elsewhere that window begins anew with the change that ends the lull, and was not needed before.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from plimsoll.control.cache import Key
from plimsoll.core.pods import PodState
from plimsoll.core.sampling import Engine, Sampling
from plimsoll.core.signals import Stale

STEADY_TICKS: Final = 8
"""So many ticks alike before any is passed over: evidence is complete by then, and new replicas have settled."""
SETTLED_TICKS: Final = 40
"""Looks come after twice as many ticks each time, until it is every so many-th: ten minutes at the usual interval, as
often as a sweep."""
RESTLESS_EVERY: Final = 3

_Figures = tuple[tuple[str, object, object], ...]


@dataclass
class Lulls:
    """What each service showed last, and for how many ticks. ``restless``: whether time alone may change what is
    decided of a service. ``again`` is told of each tick that shows what the last look has seen.
    """

    restless: Callable[[Key], bool] = lambda _key: True
    again: Callable[[Key, float], object] = lambda _key, _at_seconds: None
    _shown: dict[Key, tuple[object, int]] = field(default_factory=dict)
    _looked_seconds: dict[Key, float] = field(default_factory=dict)

    def looked_seconds(self, key: Key, newest_seconds: float) -> float:
        """The moment of the tick that was last looked at. One that was passed over is none to decide on later: an
        event between two looks must not find news in it.
        """
        return self._looked_seconds.get(key, newest_seconds)

    def due(self, pods_by_key: Mapping[Key, tuple[PodState, ...]], taken: Sampling) -> list[Key]:
        """Services to look at after this tick, of those whose fleets serve or load."""
        faults = tuple(sorted((name, fault.message) for name, fault in taken.faults.items()))
        shown = {
            key: self._after(key, (faults, taken.warnings, _fleet(key, pods, taken)))
            for key, pods in pods_by_key.items()
        }
        self._shown = shown
        due = [key for key, (_, ticks) in shown.items() if self._is_due(key, ticks)]
        for key in shown.keys() - due:
            self.again(key, taken.at_seconds)
        looked = {key: self._looked_seconds.get(key, taken.at_seconds) for key in shown}
        self._looked_seconds = looked | dict.fromkeys(due, taken.at_seconds)
        return due

    def _is_due(self, key: Key, ticks: int) -> bool:
        if ticks < STEADY_TICKS:
            return True
        if self.restless(key):
            return ticks % RESTLESS_EVERY == 0
        return ticks.bit_count() == 1 if ticks < SETTLED_TICKS else ticks % SETTLED_TICKS == 0

    def _after(self, key: Key, now: object) -> tuple[object, int]:
        before, ticks = self._shown.get(key, (None, 0))
        return now, ticks + 1 if before == now else 0


def _fleet(key: Key, pods: Iterable[PodState], taken: Sampling) -> tuple[tuple[PodState, object], ...]:
    return tuple((pod, _figures(taken.pods.get((key.namespace, pod.name), {}))) for pod in pods)


def _figures(engines: Mapping[str, Engine]) -> _Figures:
    """Readings of one pod; how long a stale one is stale is no news."""
    return tuple(
        (engine, asked, Stale if isinstance(reading, Stale) else reading)
        for engine, said in engines.items()
        for asked, reading in said.items()
    )
