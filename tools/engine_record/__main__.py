"""`make engine-record`: the release that `e2e/engine/lock` pins, put beside the recorded ones.

Afterwards ``make engine-diff OLD NEW`` knows it. A part that fails is named, and the others are recorded all the same:
what moved inside of an engine may keep its planner from being asked and not its parser.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.engine import install
from e2e.engine.install import VERSION, Engine
from tools.engine_record import asked, store


def _flags(engine: Engine, root: Path) -> str:
    rows = asked.flags(engine)
    store.put_flags(root, VERSION, rows)
    return f"{len(rows)} options of the parser"


def _layouts(engine: Engine, root: Path) -> str:
    before = [row for row in store.read_rows(root, store.LAYOUTS) if row["version"] != VERSION]
    rows = list(asked.layouts(engine, store.models(root), store.newest(before)))
    store.put_layouts(root, rows)
    return f"{sum('error' not in row for row in rows)} pools and {sum('error' in row for row in rows)} refusals"


def _start(engine: Engine, root: Path) -> str:
    start, page = asked.served(engine)
    store.put_page(root, VERSION, page)
    store.put_logs(root, [start])
    return f"a page of metrics, and a start of {len(start['stdout'])} lines"


def _refusals(engine: Engine, root: Path) -> str:
    rows = list(asked.refused(engine))
    store.put_logs(root, rows)
    return f"{len(rows)} refusals"


PARTS: Final[Mapping[str, Callable[[Engine, Path], str]]] = {
    "flags": _flags,
    "layouts": _layouts,
    "start": _start,
    "refusals": _refusals,
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.engine_record", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="record these alone")
    parser.add_argument("--root", type=Path, default=store.ROOT, help="the checkout whose recordings are written")
    chosen = parser.parse_args(arguments)
    try:
        engine = install.ensure(asked.say)
    except install.NoEngineError as error:
        asked.say(f"there is no real engine here: {error}")
        return 3
    missing = [part for part in chosen.parts if not _recorded(part, engine, chosen.root)]
    return int(bool(missing))


def _recorded(part: str, engine: Engine, root: Path) -> bool:
    asked.say(f"vLLM {VERSION}: recording {part}")
    try:
        asked.say(f"vLLM {VERSION}: {PARTS[part](engine, root)}")
    except Exception as error:  # noqa: BLE001 - an engine that nobody has seen may do anything
        asked.say(f"NOT RECORDED: {part}: {type(error).__name__}: {error}")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
