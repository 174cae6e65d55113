"""Pictures with two axes: requests at once over their length, GPUs over load."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.cli.report.svg import WIDTH, dot, figure, line, path, short, text, ticks
from plimsoll.core.plan.curves import FleetSize

LEFT: Final = 44
RIGHT: Final = WIDTH - 20
TOP: Final = 28
BOTTOM: Final = 190
HEIGHT: Final = 226
MOST_STEPS: Final = 10
LONG_SPAN: Final = 8
ROOM_BELOW: Final = 0.5

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Mark:
    """A point worth naming on a curve."""

    name: str
    x: float
    y: float


def capacity_plot(curve: Sequence[tuple[int, float]], cap: int | None, marks: Sequence[Mark], key: str) -> str:
    """Requests one engine holds at once over their length; both axes in doublings. ``cap`` is --max-num-seqs."""
    shortest, longest = curve[0][0], curve[-1][0]
    most = max(cap or 1, *(requests for _, requests in curve)) * 1.2
    least = min(1.0, *(requests for _, requests in curve)) * ROOM_BELOW
    across, up = _doublings(shortest, longest, LEFT, RIGHT), _doublings(least, most, BOTTOM, TOP)
    parts = [
        *grid_up([(value, short(value)) for value in _powers(least, most, 4)], up, "requests at once in one engine"),
        *grid_across([(value, short(value)) for value in _powers(shortest, longest, 2)], across, "tokens a request"),
    ]
    if cap:
        parts += _cap(cap, up, curve_starts_above=curve[0][1] > cap)
    parts.append(path([(across(tokens), up(requests)) for tokens, requests in curve], "curve"))
    parts += [part for mark in marks for part in _named(mark, across, up)]
    said = "; ".join(f"{mark.name}: {mark.y:,.1f} at once" for mark in marks)
    return figure("Requests at once against their length", said, HEIGHT, parts, key)


def fleet_plot(size: FleetSize, requests: float | None, planned_gpus: int, most_gpus: int, key: str) -> str:
    """GPUs the service needs over the requests in it, by memory alone; where the load is marked."""
    reach = _reach(size, requests, most_gpus)
    replicas = min(size.replicas_for(reach), most_gpus // size.gpus_per_replica)
    top = max(replicas * size.gpus_per_replica, planned_gpus) * 1.2
    across, up = linear(0, reach, LEFT, RIGHT), linear(0, top, BOTTOM, TOP)
    parts = [
        *grid_up([(value, f"{value:g}") for value in ticks(top, 4) if value % 1 == 0], up, "GPUs"),
        *grid_across([(value, short(value)) for value in ticks(reach, 4)], across, "requests at once in the service"),
    ]
    if most_gpus <= top:
        parts += [line(LEFT, up(most_gpus), RIGHT, up(most_gpus), "limit")]
        parts += [text(LEFT + 4, up(most_gpus) - 5, f"maxGPUs {most_gpus}")]
    parts.append(path(_stairs(size, replicas, reach, across, up), "curve"))
    if requests:
        parts.append(dot(across(requests), up(planned_gpus)))
        parts.append(text(RIGHT, 12, f"● plan: {planned_gpus} GPUs, load {requests:,.0f}", "end", "strong"))
    said = f"One replica holds {size.requests_per_replica:,.1f} requests of {size.request_tokens:,} tokens on "
    said += f"{size.gpus_per_replica} GPUs; the plan has {planned_gpus} GPUs"
    return figure("GPUs against load", said, HEIGHT, parts, key)


def _cap(cap: int, up: Scale, *, curve_starts_above: bool) -> Iterator[str]:
    """The sequence cap, named on the side where the falling curve is not."""
    y, words = up(cap), f"--max-num-seqs {cap}"
    yield line(LEFT, y, RIGHT, y, "limit")
    yield text(LEFT + 4, y + 15, words) if curve_starts_above else text(RIGHT, y - 5, words, "end")


def _reach(size: FleetSize, requests: float | None, most_gpus: int) -> float:
    """How far the load axis goes: past the load, and over a few replicas."""
    replicas = min(MOST_STEPS, max(1, most_gpus // size.gpus_per_replica))
    wanted = max(size.requests_per_replica * min(4, replicas), (requests or 0) * 1.5)
    return min(wanted, max(size.requests_per_replica * (most_gpus // size.gpus_per_replica), (requests or 0) * 1.2))


def _stairs(size: FleetSize, replicas: int, reach: float, across: Scale, up: Scale) -> list[tuple[float, float]]:
    points = []
    for number in range(1, replicas + 1):
        height = up(number * size.gpus_per_replica)
        points.append((across(min(reach, (number - 1) * size.requests_per_replica)), height))
        points.append((across(min(reach, number * size.requests_per_replica)), height))
    return points


def _named(mark: Mark, across: Scale, up: Scale) -> Iterator[str]:
    """A point and its name, on the side where a falling curve is not."""
    x, y = across(mark.x), up(mark.y)
    on_the_right = x > (LEFT + RIGHT) / 2
    beside = (x - 4, y + 18, mark.name, "end") if on_the_right else (x + 8, max(y - 9, 12), mark.name, "start")
    yield dot(x, y)
    yield text(*beside, "strong")


def grid_up(at: Sequence[tuple[float, str]], up: Scale, title: str) -> Iterator[str]:
    """The axis that goes up: its title, and a line across for each (value, words)."""
    yield text(2, 12, title)
    for value, words in at:
        yield line(LEFT, up(value), RIGHT, up(value), "grid")
        yield text(LEFT - 6, up(value) + 4, words, "end")


def grid_across(at: Sequence[tuple[float, str]], across: Scale, title: str) -> Iterator[str]:
    """The axis that goes across: its title, and a tick for each (value, words)."""
    yield line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")
    for value, words in at:
        yield line(across(value), BOTTOM, across(value), BOTTOM + 4, "axis")
        yield text(across(value), BOTTOM + 17, words, "middle")
    yield text(RIGHT, BOTTOM + 32, title, "end")


def _powers(least: float, most: float, base: int) -> list[float]:
    """Powers of ``base`` within the span, few enough to be read."""
    low, high = math.ceil(math.log(least, base)), math.floor(math.log(most, base))
    step = 2 if high - low > LONG_SPAN - 2 else 1
    return [float(base**power) for power in range(low, high + 1, step)]


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Even steps: ``low`` is drawn at ``start``, ``high`` at ``end``."""
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _doublings(low: float, high: float, start: float, end: float) -> Scale:
    span = math.log(high / low) or 1.0
    return lambda value: start + math.log(max(value, low) / low) / span * (end - start)
