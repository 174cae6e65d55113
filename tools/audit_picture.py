"""``docs/audit.svg``: what ``plimsoll audit examples/audit`` prints, as a picture for the README."""

import os
from collections.abc import Iterator
from html import escape
from pathlib import Path

import click

from plimsoll.cli.audit_result import Options, audit_files
from plimsoll.cli.audit_text import table

EXAMPLE = Path("examples", "audit")
_COLUMNS = 128
_CHARACTER, _LINE, _MARGIN = 7.3, 19, 16
_COLOURS = {"error": "#ff7b72", "warning": "#e3b341", "note": "#79c0ff"}


def picture(root: Path) -> str:
    """The SVG; the same bytes for the same findings."""
    here = Path.cwd()
    os.chdir(root)
    try:
        audited = audit_files([str(EXAMPLE)], Options())
        lines = [f"$ plimsoll audit {EXAMPLE}", *(click.unstyle(line) for line in table(audited))]
    finally:
        os.chdir(here)
    return "\n".join(_svg([_cut(line) for line in lines])) + "\n"


def _cut(line: str) -> str:
    return line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…"


def _svg(lines: list[str]) -> Iterator[str]:
    width, height = round(_COLUMNS * _CHARACTER + 2 * _MARGIN), len(lines) * _LINE + 2 * _MARGIN
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'role="img" aria-label="Findings of plimsoll audit in a terminal">'
    )
    yield f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>'
    yield '<g font-family="ui-monospace,Menlo,Consolas,monospace" font-size="12" fill="#c9d1d9">'
    for at, line in enumerate(lines):
        y = _MARGIN + (at + 1) * _LINE - 6
        yield f'<text x="{_MARGIN}" y="{y}"{_weight(line, at)}>{_kept(_marked(line))}</text>'
    yield "</g></svg>"


def _kept(line: str) -> str:
    """Blanks that stand together stay so: a picture's text is set as a web page's is."""
    return line.replace("  ", "\u00a0 ")


def _weight(line: str, at: int) -> str:
    """The command and names stand out; where and how to fix stand back."""
    if at == 0 or (line and not line.startswith(" ")):
        return ' font-weight="bold" fill="#f0f6fc"'
    return ' fill="#8b949e"' if line.startswith("        ") else ""


def _marked(line: str) -> str:
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    if word in _COLOURS and line.startswith("    "):
        before, _, after = line.partition(word)
        return f'{before}<tspan fill="{_COLOURS[word]}">{word}</tspan>{escape(after)}'
    return escape(line)
