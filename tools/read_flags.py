"""Pack the flags that real engines' parsers hold into ``facts/engine_flags.json``: ``python tools/read_flags.py DIR``.

DIR holds one folder a release with its ``flags.json`` (names, kind, type, choices as the parser has them). Only what
checking a flag needs is kept: names, whether it takes a value, of which type, among which choices, and in which
releases it was seen. A name that came later than its flag, or left before it, has releases of its own (``spelt``).
"""

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "operator" / "plimsoll" / "facts" / "engine_flags.json"

# Later releases rewrite it before their parser sees it: no table of theirs has it, and they take it.
REWRITTEN = ("-O",)


def release(name: str) -> tuple[int, ...]:
    """Sort key of a folder's name."""
    return tuple(int(part) for part in name.split("."))


def main() -> None:
    """Read every release and write the table."""
    folders = sorted((path for path in Path(sys.argv[1]).iterdir() if (path / "flags.json").exists()), key=_by_release)
    packed: dict[str, dict[str, Any]] = {}
    for index, folder in enumerate(folders):
        for flag in json.loads((folder / "flags.json").read_text(encoding="utf-8"))["flags"]:
            if flag["kind"] != "positional":
                _add(packed, flag, index)
    rows = [_row(dest, packed[dest]) for dest in sorted(packed)]
    lines = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in rows)
    releases = json.dumps([folder.name for folder in folders])
    TARGET.write_text(f'{{"releases": {releases},\n "flags": [\n  {lines}\n ]}}\n', encoding="utf-8")


def _by_release(path: Path) -> tuple[int, ...]:
    return release(path.name)


def _add(packed: dict[str, dict[str, Any]], flag: dict[str, Any], index: int) -> None:
    entry = packed.setdefault(
        flag["dest"], {"names": {}, "switch": flag["nargs"] == 0, "type": None, "seen": [], "choices": []}
    )
    entry["seen"].append(index)
    for name in (*flag["flags"], *_negative(flag)):
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


def _negative(flag: dict[str, Any]) -> list[str]:
    found = flag["negative"]
    return [] if not found else found if isinstance(found, list) else [found]


if __name__ == "__main__":
    main()
