"""``make faults``: every campaign whole, and a table of what came of it. Arguments: names (or parts) of campaigns.

``SCENARIOS='deletion,restart'`` runs some scenarios only, ``EVERY=10`` every tenth case, ``AT_ONCE=1`` one at a time,
``WALKS=0`` no walks of users, faults and time.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from rich.console import Console
from rich.table import Table

from tests.faults import rig
from tests.faults.rig.campaign import CAMPAIGNS, run
from tests.faults.rig.machine import MACHINE, Machine
from tests.faults.rig.run import Verdict
from tests.faults.rig.scenario import SCENARIOS, Scenario
from tests.faults.world.pace import virtual_minutes_per_second

SHOWN = 3
MIXED = "users, faults and time, mixed"


@dataclass
class Row:
    """What came of one class of faults."""

    name: str
    cases: int = 0
    converged: int = 0
    extra_writes: int = 0
    late_seconds: float = 0.0

    def add(self, verdict: Verdict) -> None:
        """Count one run, and the cases that it stands for."""
        self.cases += verdict.cases
        self.converged += 0 if verdict.wrong else verdict.cases
        self.extra_writes = max(self.extra_writes, verdict.extra_writes)
        self.late_seconds = max(self.late_seconds, verdict.late_seconds)


def main(arguments: list[str]) -> int:
    """1 when a case did not converge, 2 for a name that there is not."""
    rig.load()
    console = Console()
    at_once = int(os.environ.get("AT_ONCE", min(2, os.cpu_count() or 1)))
    every = int(os.environ.get("EVERY", "1"))
    console.print(f"{virtual_minutes_per_second():.0f} virtual minutes a second (one service, idle, with Prometheus)")
    chosen = [c for name, c in CAMPAIGNS.items() if not arguments or any(part in name for part in arguments)]
    rows = {campaign.name: Row(campaign.name) for campaign in chosen}
    about = os.environ.get("SCENARIOS", "").split(",")
    if nothing := [*(part for part in arguments if not any(part in name for name in CAMPAIGNS)), *_unknown(about)]:
        console.print(f"no class and no scenario is called so: {', '.join(nothing)}", style="red", markup=False)
        console.print(f"classes: {', '.join(CAMPAIGNS)}\nscenarios: {', '.join(SCENARIOS)}", markup=False)
        return 2
    ended = False
    try:
        for scenario in [s for name, s in SCENARIOS.items() if any(_means(part, name) for part in about)]:
            _try(console, scenario, rows, partial(run, scenario, chosen, at_once, every=every))
    except KeyboardInterrupt:
        console.print("ended early: the table counts what was done")
        ended = True
    if not ended and (walks := int(os.environ.get("WALKS", str(max(1, 200 // every))))):
        rows[MIXED] = _mixed(console, walks)
    console.print(_table(rows.values()))
    return 0 if not ended and all(row.cases == row.converged for row in rows.values()) else 1


def _try(
    console: Console, scenario: Scenario, rows: Mapping[str, Row], cases: Callable[[], Iterator[tuple[str, Verdict]]]
) -> None:
    """All cases of one scenario, and what it took."""
    began, spent, failed = time.monotonic(), _spent_seconds(), []
    for name, verdict in cases():
        rows[name].add(verdict)
        failed += [verdict] if verdict.wrong else []
    took = f"{time.monotonic() - began:.0f} s, {_spent_seconds() - spent:.0f} of them computing"
    console.print(f"{scenario.name}: {len(failed)} failed, {took}")
    for verdict in failed[:SHOWN]:
        console.print(f"  {verdict.case}", *(f"    {line[:500]}" for line in verdict.wrong[:4]), sep="\n", markup=False)


def _unknown(about: Iterable[str]) -> Iterator[str]:
    return (part for part in about if not any(_means(part, name) for name in SCENARIOS))


def _means(part: str, name: str) -> bool:
    """Whether somebody who asks for a part of a name means this one: a whole name means itself only."""
    return part == name or (part not in SCENARIOS and part in name)


def _spent_seconds() -> float:
    """Of the processor, by this process and its copies."""
    return sum(os.times()[:4])


def _mixed(console: Console, walks: int) -> Row:
    """Users, faults and time, mixed: what hypothesis finds ends it, with the steps that led there."""
    row = Row(MIXED, walks)
    try:
        run_state_machine_as_test(Machine, settings=settings(MACHINE, max_examples=walks))
        row.converged = walks
    except AssertionError as error:
        console.print(str(error)[:4000], *getattr(error, "__notes__", ()), sep="\n", markup=False)
    return row


def _table(rows: Iterable[Row]) -> Table:
    table = Table("class", "cases", "converged", "worst extra writes", "worst recovery")
    for row in rows:
        share = f"{row.converged} ({row.converged / row.cases:.1%})" if row.cases else "-"
        table.add_row(row.name, str(row.cases), share, str(row.extra_writes), f"{row.late_seconds:.0f} s")
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
