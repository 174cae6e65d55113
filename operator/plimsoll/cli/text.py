"""Sections of words and figures as lines of a terminal."""

from collections.abc import Iterable, Iterator

from plimsoll.core.plan.words import Section

_RIGHT_ALIGNED = ("GiB", "ms")


def text_lines(sections: Iterable[Section], indent: str = "  ") -> Iterator[str]:
    """Each section's title, then its rows with the cells below each other; the last cell takes what it needs."""
    for section in sections:
        yield f"{indent}{section.title}"
        yield from (f"{indent}  {line}" for line in aligned(section.rows))


def aligned(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Rows with columns of one width; figures with a unit stand right."""
    table = list(rows)
    columns = max((len(row) for row in table), default=0)
    widths = [max((len(row[at]) for row in table if at < len(row) - 1), default=0) for at in range(columns)]
    for row in table:
        yield "  ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _padded(cell: str, width: int) -> str:
    return cell.rjust(width) if cell.endswith(_RIGHT_ALIGNED) else cell.ljust(width)
