"""What load counts: the declared one, or what the engines have shown for long enough. Pure; why: docs/adr/0048.

A declared figure is a floor. More than it counts once two of the last days have shown it; less only when all of the
last days have, five whole ones at least. Of prefix hits, which save work, it is the other way round.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from plimsoll.api.v1alpha1 import LoadSpec
from plimsoll.core.plan.demand import DEFAULT_PROMPT_TOKENS, LearnedLoad
from plimsoll.core.traffic import Day

WINDOW_DAYS: Final = 7
"""Beside today: a week has every day of the week."""
CONFIRMED_BY: Final = 2
"""Days that must show a figure: one alone may be a test, or an accident."""
WHOLE_DAYS: Final = 5
"""So many say that a floor is too high: a service that is used on working days has no more in a week."""
WHOLE_HOURS: Final = 18
TOLERANCE: Final = 0.1
"""Nearer to the declared figure is no contradiction."""


@dataclass(frozen=True)
class _Evidence:
    """The days that count; ``whole`` of them are over and were watched."""

    days: Sequence[Day]
    whole: int

    def of(self, name: str) -> list[float]:
        """A figure's values, lowest first."""
        return sorted(float(value) for day in self.days if (value := getattr(day, name)) is not None)


def decide(days: Iterable[Day], load: LoadSpec | None, today: date) -> LearnedLoad:
    """The figures that count instead of those of ``spec.load``.

    Requests at once or a second: whichever is declared, for how many requests a rate makes is the planner's to say;
    where neither is, the rate, which does not depend on how quick the present fleet is.
    """
    seen, load = _recent(days, today), load or LoadSpec()
    rated = load.requests_per_second is not None or load.concurrency is None
    concurrency = _demand(seen, "concurrency", load.concurrency) if load.concurrency is not None else None
    prompt = _demand(seen, "prompt_tokens", load.prompt_tokens)
    output = _demand(seen, "output_tokens", load.output_tokens)
    shared, hits = _saving(seen, load, prompt)
    return LearnedLoad(
        concurrency=_tokens(concurrency),
        requests_per_second=_demand(seen, "requests_per_second", load.requests_per_second) if rated else None,
        prompt_tokens=_tokens(prompt),
        output_tokens=_tokens(output),
        shared_prefix_tokens=shared,
        prefix_hit_tokens=hits,
    )


def side_by_side(
    days: Sequence[Day], load: LoadSpec | None, learned: LearnedLoad, today: date
) -> dict[str, dict[str, float]]:
    """``status.load.figures``: of each what is declared, what was observed, what counts. Empty without evidence."""
    seen, load = _recent(days, today), load or LoadSpec()
    found = {
        outside: _row(getattr(load, name), max(seen.of(name), default=None), getattr(learned, name))
        for outside, name in _ROWS.items()
    }
    percents, prompt = seen.of("hit_percent"), _prompt(load, learned.prompt_tokens)
    hits = round(percents[0] * prompt / 100) if percents else None
    saved = learned.shared_prefix_tokens if learned.prefix_hit_tokens is None else learned.prefix_hit_tokens
    found[_HITS] = _row(load.shared_prefix_tokens, hits, saved)
    return {outside: row for outside, row in found.items() if row} if seen.days else {}


_ROWS: Final[Mapping[str, str]] = {
    "concurrency": "concurrency",
    "requestsPerSecond": "requests_per_second",
    "promptTokens": "prompt_tokens",
    "outputTokens": "output_tokens",
}
_HITS: Final = "prefixHitTokens"
FIGURES: Final = (*_ROWS, _HITS)
"""Keys of ``status.load.figures``."""


def _recent(days: Iterable[Day], today: date) -> _Evidence:
    first, last = (today - timedelta(days=WINDOW_DAYS)).isoformat(), today.isoformat()
    found = [day for day in days if first <= day.date <= last]
    return _Evidence(found, sum(day.hours >= WHOLE_HOURS and day.date < last for day in found))


def _demand(seen: _Evidence, name: str, declared: float | None) -> float | None:
    """A figure that asks for more the larger it is; None: the declared one counts, or there is nothing to go by."""
    values = seen.of(name)
    if len(values) < CONFIRMED_BY:
        return None
    confirmed, highest = values[-CONFIRMED_BY], values[-1]
    if declared is None or confirmed > declared * (1 + TOLERANCE):
        return confirmed
    return highest if seen.whole >= WHOLE_DAYS and highest < declared * (1 - TOLERANCE) else None


def _saving(seen: _Evidence, load: LoadSpec, prompt: float | None) -> tuple[int | None, int | None]:
    """The shared prefix that counts, and the tokens of a prompt that need no computing.

    Fewer hits than declared: the prefix is shared less. More hits save computing and no block: they may be of a
    conversation's own past, which nobody shares.
    """
    percents, whole = seen.of("hit_percent"), _prompt(load, prompt)
    if len(percents) < CONFIRMED_BY:
        return None, None
    declared = load.shared_prefix_tokens or 0
    confirmed, lowest = (round(percent * whole / 100) for percent in (percents[CONFIRMED_BY - 1], percents[0]))
    if confirmed < declared * (1 - TOLERANCE):
        return confirmed, None
    longer = seen.whole >= WHOLE_DAYS and lowest > declared * (1 + TOLERANCE)
    return None, lowest if longer else None


def _prompt(load: LoadSpec, learned: float | None) -> float:
    return learned or load.prompt_tokens or DEFAULT_PROMPT_TOKENS


def _row(declared: float | None, observed: float | None, learned: float | None) -> dict[str, float]:
    counts = declared if learned is None else learned
    found = {"declared": declared, "observed": observed, "counts": counts}
    return {key: int(value) if value == int(value) else value for key, value in found.items() if value is not None}


def _tokens(value: float | None) -> int | None:
    return None if value is None else round(value)
