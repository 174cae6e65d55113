"""Two rows of the committed layout table, drawn anew each time, are what the installed engine's planner says."""

import random
from typing import Final

import pytest

from e2e.engine import install
from e2e.engine.install import Engine
from e2e.engine.tally import Tally
from tools.oracle import table

pytestmark = pytest.mark.timeout(300)
ROWS: Final = 2


def test_rows_of_the_table_are_what_the_planner_says(engine: Engine, tally: Tally) -> None:
    rows = table.read()
    device = random.choice(rows)["device"]  # one pretended GPU is one import of vLLM
    drawn = random.sample([row for row in rows if row["device"] == device], ROWS)
    asked = [table.case_of(row) for row in drawn]
    planned = [row for _, row in table.plan(engine, install.ensure_triton(engine, print), asked, print)]
    assert planned == drawn
    tally.count("oracle", amount=len(drawn))
