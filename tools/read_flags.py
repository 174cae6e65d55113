"""Pack the flags that real engines' parsers hold into ``facts/engine_flags.json``: ``python -m tools.read_flags``.

The recordings are the tables of ``e2e/fleet/data/flags.json.gz``. Only what checking a flag needs is kept: names,
whether it takes a value, of which type, among which choices, and in which releases it was seen. A name that came later
than its flag, or left before it, has releases of its own (``spelt``).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.fleet.recordings import flag_tables

TARGET = Path(__file__).parents[1] / "operator" / "plimsoll" / "facts" / "engine_flags.json"

# Later releases rewrite it before their parser sees it: no table of theirs has it, and they take it.
REWRITTEN = ("-O",)


def release(name: str) -> tuple[int, ...]:
    """Sort key of a release's name."""
    return tuple(int(part) for part in name.split("."))


def main() -> None:
    """Read every release and write the table."""
    TARGET.write_text(packed(flag_tables()), encoding="utf-8")


def packed(tables: Mapping[str, list[dict[str, Any]]]) -> str:
    """The table of all these releases, as the file has it."""
    releases = sorted(tables, key=release)
    found: dict[str, dict[str, Any]] = {}
    for index, version in enumerate(releases):
        for flag in tables[version]:
            if flag["kind"] != "positional":
                _add(found, flag, index)
    rows = [_row(dest, found[dest]) for dest in sorted(found)]
    lines = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in rows)
    return f'{{"releases": {json.dumps(releases)},\n "flags": [\n  {lines}\n ]}}\n'


def _add(packed: dict[str, dict[str, Any]], flag: dict[str, Any], index: int) -> None:
    entry = packed.setdefault(
        flag["dest"], {"names": {}, "switch": flag["nargs"] == 0, "type": None, "seen": [], "choices": []}
    )
    entry["seen"].append(index)
    for name in flag["flags"]:
        seen = entry["names"].setdefault(name, [])
        if index not in seen:
            seen.append(index)
    entry["type"] = flag["type"] or entry["type"]
    choices = flag["choices"] or []  # an empty list: from here on anything is allowed
    if choices != (entry["choices"][-1][1] if entry["choices"] else []):
        entry["choices"].append([index, choices])


def _row(dest: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Names in the order of use: words before letters, the plain form before its negative, the oldest first."""
    names: dict[str, list[int]] = entry["names"]
    ordered = sorted(names, key=lambda name: (not name.startswith("--"), name.startswith("--no-"), names[name][0]))
    spelt = {name: names[name] for name in ordered if names[name] != entry["seen"] and name not in REWRITTEN}
    return {"dest": dest, **entry, "names": ordered, **({"spelt": spelt} if spelt else {})}


if __name__ == "__main__":
    main()
