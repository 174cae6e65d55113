"""What a service's engines show of its traffic, gathered by day (UTC). Pure: a tick in, a few figures a day out.

A tick counts only where every engine that serves says all of it: what is not seen is no traffic and no rest either.
What is *told* of a day moves in steps (a tenth, decades of requests, quarters of the day), so that traffic which stays
the same writes nothing, and a service without requests never does.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Final

from pydantic.alias_generators import to_camel

from plimsoll.core.signals import FleetView, Sample, Signal

ENOUGH_REQUESTS: Final = 100
"""A day with fewer says nothing."""
BLOCK_SECONDS: Final = 300
"""A busy time is the busiest five minutes of a day: shorter ones are chance, longer ones hide a burst."""
LEAST_OF_BLOCK_SECONDS: Final = 120
MOST_BETWEEN_SECONDS: Final = 60.0
"""A look stands for the time since the one before, no more of it than the window of its rates."""
HOURS_STEP: Final = 3
KEPT_DAYS: Final = 8
STEP: Final = 0.1
_DAY_SECONDS: Final = 86_400
_HOUR_SECONDS: Final = 3600


@dataclass(frozen=True)
class Day:
    """What is told of one day; None: not known. ``hours`` it was watched, ``requests`` that were served at least.

    ``concurrency`` and ``requests_per_second`` are means of the busiest five minutes, lengths those of all requests,
    ``hit_percent`` the share of the prompts' tokens that the prefix cache had.
    """

    date: str
    requests: int
    hours: int
    concurrency: int | None = None
    requests_per_second: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    hit_percent: int | None = None


@dataclass(frozen=True)
class Tick:
    """The whole service at one moment; all but ``in_flight`` a second. Of the prompts' tokens the prefix cache had
    ``hit_tokens`` of ``asked_tokens`` (engines that say so).
    """

    in_flight: float
    arriving: float
    finished: float
    prompt_tokens: float
    output_tokens: float
    hit_tokens: float = 0.0
    asked_tokens: float = 0.0


@dataclass(frozen=True)
class _Sums:
    """Integrals over time of what ticks show."""

    seconds: float = 0.0
    in_flight: float = 0.0
    arriving: float = 0.0

    def plus(self, tick: Tick, seconds: float) -> "_Sums":
        return _Sums(
            self.seconds + seconds,
            self.in_flight + tick.in_flight * seconds,
            self.arriving + tick.arriving * seconds,
        )


@dataclass(frozen=True)
class Traffic:
    """A day so far. ``at_seconds``: the tick that was counted last, by the monotonic clock of the ticks."""

    date: str
    at_seconds: float | None = None
    seconds: float = 0.0
    requests: float = 0.0
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    hit_tokens: float = 0.0
    asked_tokens: float = 0.0
    concurrency: float = 0.0
    requests_per_second: float = 0.0
    block: int = 0
    sums: _Sums = _Sums()


def read(view: FleetView) -> Tick | None:
    """What a view says of the traffic; None where anything of it is not known.

    Of a queue at most as many as run count: a backlog grows for as long as a fleet is too small, and says little of how
    much too small it is.
    """
    found = {signal: view.total(signal) for signal in _READ}
    if not view.complete or not all(reach.complete for reach in found.values()):
        return None
    value = {signal: reach.value or 0.0 for signal, reach in found.items()}
    running, waiting = value[Signal.RUNNING], value[Signal.WAITING]
    hit, asked = _hits(view)
    return Tick(
        in_flight=running + min(waiting, running),
        arriving=value[Signal.REQUESTS],
        finished=value[Signal.FINISHED],
        prompt_tokens=value[Signal.PROMPT_TOKENS],
        output_tokens=value[Signal.GENERATION_TOKENS],
        hit_tokens=hit,
        asked_tokens=asked,
    )


_READ: Final = (
    Signal.RUNNING, Signal.WAITING, Signal.REQUESTS, Signal.FINISHED, Signal.PROMPT_TOKENS, Signal.GENERATION_TOKENS,
)  # fmt: skip


def begin(days: Sequence[Day], wall_seconds: float) -> Traffic:
    """The day as it was told last, for an operator that has just started; an empty one where it was not."""
    date = _date(wall_seconds)
    told = next((day for day in days if day.date == date), None)
    if told is None:
        return Traffic(date)
    requests, prompt = float(told.requests), told.prompt_tokens or 0
    return Traffic(
        date=date,
        seconds=told.hours * float(_HOUR_SECONDS),
        requests=requests,
        prompt_tokens=requests * prompt,
        output_tokens=requests * (told.output_tokens or 0),
        hit_tokens=requests * prompt * (told.hit_percent or 0) / 100,
        asked_tokens=requests * prompt if told.hit_percent is not None else 0.0,
        concurrency=float(told.concurrency or 0),
        requests_per_second=told.requests_per_second or 0.0,
    )


def after(traffic: Traffic, tick: Tick | None, at_seconds: float, wall_seconds: float) -> Traffic:
    """With one tick more. The time between two ticks of which one is not known is not counted at all."""
    date = _date(wall_seconds)
    if date > traffic.date:  # a clock that is set back goes on with the day
        traffic = Traffic(date, traffic.at_seconds)
    if tick is None:
        return replace(traffic, at_seconds=None)
    since = 0.0 if traffic.at_seconds is None else at_seconds - traffic.at_seconds
    seconds = min(max(0.0, since), MOST_BETWEEN_SECONDS)
    counted = replace(
        traffic,
        at_seconds=at_seconds,
        seconds=traffic.seconds + seconds,
        requests=traffic.requests + tick.finished * seconds,
        prompt_tokens=traffic.prompt_tokens + tick.prompt_tokens * seconds,
        output_tokens=traffic.output_tokens + tick.output_tokens * seconds,
        hit_tokens=traffic.hit_tokens + tick.hit_tokens * seconds,
        asked_tokens=traffic.asked_tokens + tick.asked_tokens * seconds,
    )
    return _in_block(counted, tick, seconds, int(wall_seconds // BLOCK_SECONDS))


def told(days: Sequence[Day], traffic: Traffic) -> tuple[Day, ...]:
    """The days to tell, oldest first: as they were told, as long as nothing of today has moved by a step."""
    if traffic.requests < ENOUGH_REQUESTS:
        return tuple(days)
    others = [day for day in days if day.date != traffic.date]
    before = next((day for day in days if day.date == traffic.date), None)
    return (*others, _day(traffic, before or Day(traffic.date, 0, 0)))[-KEPT_DAYS:]


def to_status(days: Sequence[Day]) -> list[dict[str, Any]]:
    """For ``status.load.days``."""
    return [{_OUTSIDE[k]: v for k, v in asdict(day).items() if v is not None} for day in days]


def from_status(found: Sequence[Mapping[str, Any]]) -> tuple[Day, ...]:
    """From ``status.load.days``; what another version wrote beside is passed over."""
    return tuple(Day(**{k: each[outside] for k, outside in _OUTSIDE.items() if outside in each}) for each in found)


_OUTSIDE: Final[Mapping[str, str]] = {field.name: to_camel(field.name) for field in fields(Day)} | {
    "hit_percent": "prefixHitPercent"
}


def _hits(view: FleetView) -> tuple[float, float]:
    """Tokens a second that were found in prefix caches, of those that were looked for: an engine without a ratio has
    looked for none, or says nothing of it.
    """
    hit = asked = 0.0
    for engine in (engine for pod in view.serving for engine in pod.engines.values()):
        ratio, tokens = engine.get(Signal.HIT_RATIO), engine.get(Signal.PROMPT_TOKENS)
        if isinstance(ratio, Sample) and isinstance(tokens, Sample):
            hit, asked = hit + ratio.value * tokens.value, asked + tokens.value
    return hit, asked


def _in_block(traffic: Traffic, tick: Tick, seconds: float, block: int) -> Traffic:
    """The five minutes so far; those that are over count when enough of them was seen."""
    sums = traffic.sums
    if block == traffic.block:
        return replace(traffic, sums=sums.plus(tick, seconds))
    if sums.seconds >= LEAST_OF_BLOCK_SECONDS:
        traffic = replace(
            traffic,
            concurrency=max(traffic.concurrency, sums.in_flight / sums.seconds),
            requests_per_second=max(traffic.requests_per_second, sums.arriving / sums.seconds),
        )
    return replace(traffic, block=block, sums=_Sums().plus(tick, seconds))


def _day(now: Traffic, before: Day) -> Day:
    """What is told of a day with enough requests."""
    hits = 100 * now.hit_tokens / now.asked_tokens if now.asked_tokens else None
    return Day(
        date=now.date,
        requests=max(before.requests, 10 ** int(math.log10(now.requests))),
        hours=max(before.hours, int(now.seconds // _HOUR_SECONDS) // HOURS_STEP * HOURS_STEP),
        concurrency=_whole(_moved(before.concurrency, now.concurrency)),
        requests_per_second=_moved(before.requests_per_second, now.requests_per_second),
        prompt_tokens=_whole(_moved(before.prompt_tokens, now.prompt_tokens / now.requests)),
        output_tokens=_whole(_moved(before.output_tokens, now.output_tokens / now.requests)),
        hit_percent=_moved_points(before.hit_percent, hits),
    )


def _moved(before: float | None, now: float) -> float | None:
    """The figure to tell: the one before while this one is within a tenth of it, else this one, in two digits."""
    if now <= 0:
        return before
    return before if before is not None and abs(now - before) < STEP * before else _two_digits(now)


def _moved_points(before: int | None, now: float | None) -> int | None:
    """The same for percent: by ten points."""
    if now is None or (before is not None and abs(now - before) < 100 * STEP):
        return before
    return int(now)


def _two_digits(value: float) -> float:
    """Rounded up to two digits."""
    digits = 1 - math.floor(math.log10(value))
    step = 10.0**-digits
    # What is a whole number of steps but for the last bits of a float is not rounded up to the next.
    return round(math.ceil(round(value / step, 6)) * step, max(0, digits))


def _whole(value: float | None) -> int | None:
    return None if value is None else max(1, math.ceil(value))


def _date(wall_seconds: float) -> str:
    return datetime.fromtimestamp(wall_seconds, UTC).date().isoformat()
