"""A simulated history as pictures: replicas, KV use and queue over time. One file with everything in it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from plimsoll.cli.report.page import whole
from plimsoll.cli.report.plots import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, grid_across, grid_up, linear
from plimsoll.cli.report.svg import figure, path, text, ticks
from plimsoll.sim.fleet import Moment

MOST_POINTS: Final = 720
"""More could not be told apart in the width of a picture."""
_UNITS: Final = ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes"))
_ABOUT: Final = (
    "Each point is the highest of its stretch of time. Made by plimsoll simulate --html; the same rows: --timeline."
)


def timeline_page(result: Mapping[str, Any], moments: Sequence[Moment]) -> str:
    """The whole page: what it cost and what users saw, then how it went."""
    title = f"{result['policy']} on {result['trace']}"
    rows = "".join(f"<tr><td>{escape(key)}</td><td>{escape(_words(value))}</td></tr>" for key, value in result.items())
    table = f'<div class="wide"><table>{rows}</table></div>'
    pictures = "".join(f"<figure>{picture}</figure>" for picture in _pictures(moments))
    body = f'<section><div class="pictures">{pictures}</div>{table}</section>'
    return whole(title, "plimsoll simulate --html", "", "", body, _ABOUT)


def _words(value: object) -> str:
    if value is None:
        return "not known"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value}"


def _pictures(moments: Sequence[Moment]) -> Iterator[str]:
    replicas = {"limit": lambda m: float(m.wanted), "curve": lambda m: float(m.ready)}
    yield "<h3>Replicas</h3>" + _plot(moments, replicas, "ready; dashed: wanted", "replicas", key="replicas")
    usage: dict[str, Callable[[Moment], float]] = {"curve": lambda m: 100 * m.usage}
    yield "<h3>KV use</h3>" + _plot(moments, usage, "mean of the ready replicas, %", "usage", top=100, key="usage")
    queue = {"limit": lambda m: float(m.running), "curve": lambda m: float(m.waiting)}
    yield "<h3>Requests</h3>" + _plot(moments, queue, "waiting; dashed: running", "requests", key="queue")


def _plot(
    moments: Sequence[Moment],
    curves: Mapping[str, Callable[[Moment], float]],
    title: str,
    of: str,
    *,
    key: str,
    top: float = 0.0,
) -> str:
    """Curves by their style, over the time of the moments."""
    last = max((moment.seconds for moment in moments), default=0.0)
    size, unit = next(((size, unit) for size, unit in _UNITS if last >= 2 * size), (1.0, "seconds"))
    end = last / size or 1.0
    found = {css: _points(moments, read, size) for css, read in curves.items()}
    highest = max([top, *(y for points in found.values() for _, y in points)]) or 1.0
    across, up = linear(0, end, LEFT, RIGHT), linear(0, highest, BOTTOM, TOP)
    parts = [
        *grid_up([(value, f"{value:,g}") for value in ticks(highest, 4)], up, title),
        *grid_across([(value, f"{value:g}") for value in ticks(end, 6)], across, unit),
        *(path([(across(x), up(y)) for x, y in points], f"{css} plain") for css, points in found.items()),
    ]
    if not moments:
        parts.append(text((LEFT + RIGHT) / 2, (TOP + BOTTOM) / 2, "no scrape happened", "middle"))
    said = f"highest {highest:,.4g} over {end:,.3g} {unit}"
    return figure(f"{of} over time", said, HEIGHT, parts, key)


def _points(
    moments: Sequence[Moment], read: Callable[[Moment], float], unit_seconds: float
) -> list[tuple[float, float]]:
    """At most MOST_POINTS of them: the highest of each stretch, so that no peak is lost."""
    width = -(-len(moments) // MOST_POINTS) or 1
    stretches = (moments[at : at + width] for at in range(0, len(moments), width))
    return [(stretch[0].seconds / unit_seconds, max(map(read, stretch))) for stretch in stretches]
