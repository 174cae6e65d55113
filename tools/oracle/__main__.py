"""`make oracle`: have vLLM's own planner make the committed table again, and say what differs.

``CHECK=1`` writes nothing and ends with 1 where anything differs; ``ONLY=gemma`` asks for the rows whose question that
pattern finds. ``python -m tools.oracle --cases FILE`` plans other cases instead, one JSON object a line (``model``: a
name of the catalogue or the path of a config.json; ``device``, ``tp``, ``kv_cache_dtype``, ``extra_args``), rows to
stdout.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.engine import install
from tools.oracle import table
from tools.oracle.cases import Case, cases

_LONGEST: Final = 300


def main(arguments: Sequence[str]) -> int:
    asked = _parser().parse_args(arguments)
    try:
        engine = install.ensure(_say)
        triton = install.ensure_triton(engine, _say)
        if asked.cases:
            return _others(engine, triton, asked.cases)
        return _table(engine, triton, only=asked.only, check=asked.check)
    except (install.NoEngineError, table.OracleError) as error:
        _say(str(error))
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.oracle", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; end with 1 where a row differs")
    parser.add_argument("--only", default="", help="rows whose question this pattern finds")
    parser.add_argument("--cases", type=Path, help="a file of other cases, rows to stdout")
    return parser


def _others(engine: install.Engine, triton: Path, path: Path) -> int:
    asked = [Case(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for _, row in table.plan(engine, triton, asked, _say):
        print(json.dumps(row), flush=True)
    return 0


def _table(engine: install.Engine, triton: Path, *, only: str, check: bool) -> int:
    began = time.monotonic()
    wanted = [case for case in cases() if re.search(only, str(case), re.IGNORECASE)]
    committed = {str(table.case_of(row)): row for row in table.read()}
    planned: dict[str, table.Row] = {}
    different = 0
    for case, row in table.plan(engine, triton, wanted, _say):
        planned[str(case)] = row
        different += _compared(case, committed.get(str(case)), row)
    gone = [] if only else [asked for asked in committed if asked not in planned]
    for asked in gone:
        _say(f"no longer asked: {asked}")
    _say(
        f"{len(planned)} rows of vLLM {install.VERSION}, {different + len(gone)} differ from the committed table; "
        f"{time.monotonic() - began:.0f} s"
    )
    if check:
        return int(bool(different or gone))
    table.write(
        row
        for row in ({**committed, **planned}[str(case)] for case in cases() if str(case) in {**committed, **planned})
    )
    return 0


def _compared(case: Case, committed: table.Row | None, row: table.Row) -> int:
    if committed == row:
        return 0
    said = table.differences(committed, row) if committed else ["not in the table"]
    _say(f"{case}: {'; '.join(said)[:_LONGEST]}")
    return 1


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
