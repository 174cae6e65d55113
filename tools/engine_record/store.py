"""Where recordings of all releases are kept, and how one more is put beside them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools import read_flags
from tools.fleet_data import compact_flags

ROOT: Final = Path(__file__).parents[2]
FLAGS: Final = Path("e2e/fleet/data/flags.json.gz")
PACKED_FLAGS: Final = Path("operator/plimsoll/facts/engine_flags.json")
PAGES: Final = Path("tests/data/engines")
LOGS: Final = Path("tests/data/logs/engine-logs.jsonl.gz")
LAYOUTS: Final = Path("tests/data/kv/engine-layouts.jsonl.gz")
MODELS: Final = Path("tests/data/kv/engine-models.json.gz")

Row = dict[str, Any]


def release(version: str) -> tuple[int, ...]:
    """Sort key."""
    return tuple(int(part) for part in version.split("."))


def beside(rows: Iterable[Row], added: Sequence[Row], *, by: Sequence[str] = ("version",)) -> list[Row]:
    """All rows with the added ones in place of those that agree with one of them in `by`; releases in order."""
    replaced = {tuple(row[key] for key in by) for row in added}
    kept = [row for row in rows if tuple(row[key] for key in by) not in replaced]
    return sorted([*kept, *added], key=lambda row: release(row["version"]))


def of_ours(page: str) -> str:
    """A page without what is not vLLM's own."""
    ours = (line for line in page.splitlines() if line.startswith(("vllm:", "# TYPE vllm:")))
    return "".join(f"{line}\n" for line in ours if "_created" not in line.partition("{")[0])


def newest(rows: Iterable[Row]) -> list[Row]:
    """Rows of the newest release among them."""
    found = list(rows)
    last = max((row["version"] for row in found), key=release)
    return [row for row in found if row["version"] == last]


def read_rows(root: Path, path: Path) -> list[Row]:
    return [json.loads(line) for line in _read(root / path).splitlines()]


def models(root: Path) -> Mapping[str, Row]:
    found: Mapping[str, Row] = json.loads(_read(root / MODELS))
    return found


def put_flags(root: Path, version: str, rows: Sequence[Row]) -> None:
    """The table of this release, and the packed one of all of them."""
    tables = {**json.loads(_read(root / FLAGS)), version: compact_flags(rows)}
    ordered = {name: tables[name] for name in sorted(tables, key=release)}
    _write(root / FLAGS, json.dumps(ordered, separators=(",", ":")))
    (root / PACKED_FLAGS).write_text(read_flags.packed(ordered), encoding="utf-8")


def put_page(root: Path, version: str, page: str) -> None:
    _write(root / PAGES / f"metrics-{version}.txt.gz", of_ours(page))


def put_layouts(root: Path, added: Sequence[Row]) -> None:
    _write_rows(root / LAYOUTS, beside(read_rows(root, LAYOUTS), added))


def put_logs(root: Path, added: Sequence[Row]) -> None:
    """Case by case: a start and the refusals are recorded apart."""
    _write_rows(root / LOGS, beside(read_rows(root, LOGS), added, by=("version", "case")))


def _write_rows(path: Path, rows: Iterable[Row]) -> None:
    _write(path, "".join(json.dumps(row) + "\n" for row in rows))


def _read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def _write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
