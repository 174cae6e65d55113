"""Pictures made of bars: where the memory goes, and expected latencies against the SLO."""

from collections.abc import Iterator, Sequence
from typing import Final

from plimsoll.cli.report.svg import WIDTH, dot, figure, line, rect, text, ticks
from plimsoll.core.plan.result import MemoryItem, Range
from plimsoll.core.plan.words import milliseconds
from plimsoll.core.quantity import GIB, gib

COLOURS: Final = 5
MEMORY_HEIGHT: Final = 66
BAR_TOP: Final = 4
BAR_HEIGHT: Final = 34
NARROWEST_LABEL: Final = 30
ROW_HEIGHT: Final = 62
STRIPED: Final = ("fitted", "assumed")
LONGEST_SHARE: Final = 0.97


def memory_bar(items: Sequence[MemoryItem], left: Range, total_bytes: int, key: str) -> str:
    """One GPU's memory as a stacked bar; the part of the KV cache that is not sure is striped."""
    parts = [*_taken(items), *_cache(left)]
    used = sum(size for *_, size in parts)
    whole = max(total_bytes, used)
    parts.append(("unused", "kept free: outside --gpu-memory-utilization", whole - used))
    said = "; ".join(f"{name} {gib(size)}" for _, name, size in parts if size)
    return figure(f"Memory of one GPU, {gib(total_bytes)}", said, MEMORY_HEIGHT, _stack(parts, whole), key)


def colour_of(at: int) -> str:
    """The style of the memory item at that place in the list."""
    return f"part-{at % COLOURS}"


def _taken(items: Sequence[MemoryItem]) -> Iterator[tuple[str, str, int]]:
    for at, item in enumerate(items):
        yield f"{colour_of(at)} {item.basis}", item.item, item.bytes


def _cache(left: Range) -> Iterator[tuple[str, str, int]]:
    sure = max(0, int(left.low))
    yield "kv", "KV cache, at least", sure
    yield "kv-likely assumed", "KV cache, up to this much more", max(0, int(left.high) - sure)


def _stack(parts: Sequence[tuple[str, str, int]], whole: int) -> Iterator[str]:
    scale, x = (WIDTH - 2) / whole, 1.0
    for css, name, size in parts:
        width = size * scale
        colour, _, basis = css.partition(" ")
        yield rect(x, BAR_TOP, width, BAR_HEIGHT, f"bar {colour}", f"{name}: {gib(size)}")
        if basis in STRIPED:
            yield rect(x, BAR_TOP, width, BAR_HEIGHT, f"stripes-{basis}", f"{name}: {gib(size)}")
        if width >= NARROWEST_LABEL:
            yield text(x + width / 2, BAR_TOP + 22, f"{size / GIB:.1f}", "middle", f"on-{colour}")
        x += width
    for at in ticks(whole / GIB, 4):
        yield from _tick(at, 1 + at * GIB * scale, BAR_TOP + BAR_HEIGHT, " GiB")


def _tick(at: float, x: float, y: float, unit: str) -> Iterator[str]:
    yield line(x, y + 2, x, y + 7, "axis")
    yield text(x, y + 20, f"{at:g}" + ("" if at else unit), "middle" if at else "start")


def latency_ranges(found: Sequence[tuple[str, Range, float | None]], key: str) -> str:
    """(name, milliseconds, limit of the SLO or None): each range as a bar on a scale of its own."""
    said = "; ".join(f"{name} {_latency_words(span, limit)}" for name, span, limit in found)
    rows = [part for at, row in enumerate(found) for part in _latency_row(*row, at * ROW_HEIGHT)]
    return figure("Expected latency against the SLO", said, ROW_HEIGHT * len(found) + 4, rows, key)


def _latency_words(span: Range, limit: float | None) -> str:
    words = milliseconds({"low": span.low, "mid": span.mid, "high": span.high})
    return words + (f", limit {limit:,.4g} ms" if limit else "")


def _latency_row(name: str, span: Range, limit: float | None, y: float) -> Iterator[str]:
    top = max(span.high, limit or 0) / LONGEST_SHARE
    scale = (WIDTH - 2) / top if top > 0 else 0.0
    late = limit is not None and span.high > limit
    yield text(1, y + 14, f"{name}: {_latency_words(span, None)}", css="strong")
    yield rect(1, y + 22, WIDTH - 2, 12, "track")
    yield rect(1 + span.low * scale, y + 22, max((span.high - span.low) * scale, 2), 12, "late" if late else "span")
    yield dot(1 + span.mid * scale, y + 28)
    if limit:
        x = 1 + limit * scale
        yield line(x, y + 19, x, y + 37, "limit")
        yield text(x, y + 49, f"limit {limit:,.4g} ms", "end" if x > WIDTH / 2 else "start")
