"""The few SVG shapes that the charts are drawn with. Colours and fonts come from the page's style sheet."""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

WIDTH: Final = 360
_NEARLY: Final = 1e-9


def figure(title: str, description: str, height: float, parts: Iterable[str], key: str) -> str:
    """A picture with a name and a description for who cannot see it; ``key`` is unique within the page."""
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def rect(x: float, y: float, width: float, height: float, css: str, hint: str = "") -> str:
    """A filled box; ``hint`` shows on hover."""
    title = f"<title>{escape(hint)}</title>" if hint else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{height:.2f}" class="{css}">{title}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{css}"/>'


def path(points: Sequence[tuple[float, float]], css: str) -> str:
    """A line through the points."""
    steps = " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
    return f'<polyline points="{steps}" class="{css}"/>'


def dot(x: float, y: float, css: str = "dot") -> str:
    """A point."""
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" class="{css}"/>'


def text(x: float, y: float, words: str, anchor: str = "start", css: str = "label") -> str:
    """A label; ``anchor`` is start, middle or end."""
    return f'<text x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}" class="{css}">{escape(words)}</text>'


def ticks(top: float, most: int = 5) -> list[float]:
    """Round figures from 0 to about ``top``, at most ``most`` steps."""
    if top <= 0:
        return [0.0]
    raw = top / most
    scale = 10 ** math.floor(math.log10(raw))
    step = next(s * scale for s in (1, 2, 5, 10) if s * scale >= raw - _NEARLY)
    return [step * n for n in range(int(top / step + _NEARLY) + 1)]


def short(value: float) -> str:
    """A figure for an axis: 1.5k, 64k, 2M."""
    for size, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if value >= size and value % (size / 4) == 0:
            return f"{value / size:g}{letter}"
    return f"{value:,.4g}" if value < 10_000 else f"{value / 1000:,.0f}k"  # noqa: PLR2004
