"""What changed for an operator between two recorded vLLM releases: ``python -m tools.engine_diff OLD NEW``.

Reads what is recorded in this repository: flags, defaults and choices of the parser, metric names, log lines, refusals
and KV layouts. Ends with a draft of what ``facts/engines.py`` would say.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from e2e.fleet.recordings import flag_tables
from plimsoll.core.logs import read_log
from plimsoll.facts import engine_flags, engine_metrics

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ROOT / "tests" / "data" / "engines"
LOGS: Final = ROOT / "tests" / "data" / "logs" / "engine-logs.jsonl.gz"
LAYOUTS: Final = ROOT / "tests" / "data" / "kv" / "engine-layouts.jsonl.gz"
_PREFIX: Final = re.compile(r"^\S*\([A-Za-z_0-9]+ pid=\d+\)\S*\s*|\x1b\[[0-9;]*m")
_STAMP: Final = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")
_FIGURE: Final = re.compile(r"\d[\d,.]*(?:e-?\d+)?")
_LONGEST_LINE: Final = 160
_READ: Final = {name for metric in engine_metrics.METRICS.values() for name in metric.names}

Section = tuple[str, list[str]]


def main(arguments: list[str]) -> int:
    """Print the report; 2 for a release that nobody recorded."""
    known = sorted(flag_tables(), key=_release)
    if len(arguments) != 2 or any(version not in known for version in arguments):
        print(f"usage: make engine-diff OLD NEW, two of {', '.join(known)}", file=sys.stderr)
        return 2
    print(report(*arguments))
    return 0


def report(old: str, new: str) -> str:
    """The report as markdown."""
    parts = [f"# vLLM {old} → {new}, as recorded"]
    for title, lines in sections(old, new):
        parts.append(f"## {title}\n\n" + ("\n".join(f"- {line}" for line in lines) or "Nothing."))
    return "\n\n".join([*parts, _draft(old, new)])


def sections(old: str, new: str) -> Iterator[Section]:
    """Each subject with its differences, one a line."""
    before, after = _flags(old), _flags(new)
    yield "Flags that are gone", [_gone(name, after) for name in sorted(before.keys() - after.keys())]
    yield "Flags that are new", [f"`{name}`" for name in sorted(after.keys() - before.keys())]
    both = sorted(before.keys() & after.keys())
    yield "Defaults that moved", [*_moved(both, before, after, "default")]
    yield "Choices that moved", [*_choices(both, before, after)]
    yield "Metrics", [*_metrics(old, new)]
    yield "Lines of a start", [*_lines(old, new)]
    yield "How our reading of logs takes its start and its refusals", [*_readings(old, new)]
    yield "KV layouts of the same start", [*_layouts(old, new)]


def _flags(version: str) -> dict[str, dict[str, Any]]:
    """Rows of the table by each of their names."""
    return {name: row for row in flag_tables()[version] for name in row["flags"] if name.startswith("-")}


def _gone(name: str, after: Mapping[str, Mapping[str, Any]]) -> str:
    flag = engine_flags.find(name)
    other = next((each for each in (flag.names if flag else ()) if each in after), None)
    instead = other or (engine_flags.successor(flag.dest) if flag else None)
    return f"`{name}`; instead: {instead or '?'}"


def _moved(both: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> Iterator[str]:
    for name in both:
        if name.startswith("--no-") or before[name][key] == after[name][key]:
            continue
        yield f"`{name}`: {before[name][key]!r} → {after[name][key]!r}"


def _choices(both: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in both:
        old, new = (set(map(str, table[name]["choices"] or ())) for table in (before, after))
        if old == new or name.startswith("--no-"):
            continue
        if not old or not new:
            yield f"`{name}`: {'any value' if not old else 'a list'} → {'any value' if not new else sorted(new)}"
        else:
            yield f"`{name}`: gained {sorted(new - old)}, lost {sorted(old - new)}"


def _metrics(old: str, new: str) -> Iterator[str]:
    before, after = _series(old), _series(new)
    for name in sorted(before.keys() - after.keys()):
        yield f"`{name}` is gone{' (**we read it**)' if name in _READ else ''}"
    for name in sorted(after.keys() - before.keys()):
        yield f"`{name}` is new: {after[name][0]}, {', '.join(sorted(after[name][1]))}"
    for name in sorted(before.keys() & after.keys()):
        if before[name] != after[name]:
            lost, gained = (sorted(a[1] - b[1]) for a, b in ((before[name], after[name]), (after[name], before[name])))
            yield f"`{name}`: labels gained {gained}, lost {lost}"


def _series(version: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels by name; empty where no page was recorded."""
    path = PAGES / f"metrics-{version}.txt.gz"
    if not path.exists():
        return {}
    types: dict[str, str] = {}
    labels: dict[str, set[str]] = {}
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        elif not line.startswith("#"):
            name = re.sub(r"_(?:bucket|sum|count)(?=\{)", "", line.partition(" ")[0]).partition("{")[0]
            labels.setdefault(name, set()).update(re.findall(r'(\w+)="', line))
    return {name: (types.get(name, "?"), frozenset(found)) for name, found in labels.items()}


def _lines(old: str, new: str) -> Iterator[str]:
    """Lines of the one start that the other has not, figures left out."""
    before, after = (_shapes(version) for version in (old, new))
    yield from (f"gone: `{line}`" for line in before if line not in after)
    yield from (f"new: `{line}`" for line in after if line not in before)


def _shapes(version: str) -> list[str]:
    shapes = (_FIGURE.sub("N", _STAMP.sub("", _PREFIX.sub("", line)))[:_LONGEST_LINE] for line in _start(version))
    return list(dict.fromkeys(line for line in shapes if line.strip()))


def _start(version: str) -> list[str]:
    return [line for row in _recorded(version) if row["case"] == "start" for line in (*row["stdout"], *row["stderr"])]


def _recorded(version: str) -> list[dict[str, Any]]:
    with gzip.open(LOGS, "rt", encoding="utf-8") as lines:
        return [row for row in map(json.loads, lines) if row["version"] == version]


def _readings(old: str, new: str) -> Iterator[str]:
    before, after = ({row["case"]: _reading(row) for row in _recorded(version)} for version in (old, new))
    for case in sorted(before.keys() | after.keys()):
        if before.get(case) != after.get(case):
            yield f"{case}: {before.get(case, 'not recorded')} → {after.get(case, 'not recorded')}"


def _reading(row: Mapping[str, Any]) -> str:
    log = read_log("\n".join([*row["stdout"], *row["stderr"]]))
    if log.failure:
        return f"exit {row['exit_code']}, {log.failure.cause.word}"
    return f"exit {row['exit_code']}, ready with {', '.join(sorted(log.figures))}"


def _layouts(old: str, new: str) -> Iterator[str]:
    before, after = _pools(old), _pools(new)
    for key in sorted(before.keys() & after.keys()):
        if before[key] != after[key]:
            yield f"{key}: {before[key]} → {after[key]}"
    for key in sorted(after.keys() - before.keys()):
        yield f"{key}: not recorded → {after[key]}"


def _pools(version: str) -> dict[str, str]:
    with gzip.open(LAYOUTS, "rt", encoding="utf-8") as lines:
        rows = [row for row in map(json.loads, lines) if row["version"] == version]
    return {f"{row['config']} {json.dumps(row['flags'], sort_keys=True)}": _pool(row) for row in rows}


def _pool(row: Mapping[str, Any]) -> str:
    if "num_blocks" not in row:
        return "refused"
    blocks = f"{row['num_blocks']} blocks, {row['printed_tokens']} tokens, {row['printed_concurrency']}x"
    return f"{blocks} of {row['pool_bytes']} bytes"


def _draft(old: str, new: str) -> str:
    before, after = _flags(old), _flags(new)
    moved = "\n".join(f"#   {line}" for line in _moved(sorted(before.keys() & after.keys()), before, after, "default"))
    return (
        "## Draft for `facts/engines.py`\n\n```python\n"
        f'NEWEST: Final = "{new}"\nRECORDED: Final = (..., "{old}", "{new}")\n'
        f"# Defaults that moved in the parser; each that memory depends on needs a rule here:\n{moved}\n```"
    )


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
