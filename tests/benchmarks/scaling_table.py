"""`python -m tests.benchmarks.scaling_table ROWS.jsonl`: the rows of `bench_scaling` as tables in Markdown.

First a summary for each router: our policy against the cheapest other at each level, then every policy in every regime.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_scaling import LEVELS

Row = Mapping[str, Any]
HEAD = (
    "| policy | 95 % | 97 % | 99 % | setting nearest 97 % | within SLO | p99 TTFT | preempted of 1,000 | moves | most "
    "| recovered |\n| --- | --: | --: | --: | --- | --: | --: | --: | --: | --: | --: |"
)


SUMMARY = (
    "| regime | plimsoll | cheapest other autoscaler | best fixed number | clairvoyant |\n"
    "| --- | --- | --- | --- | --- |"
)
NO_AUTOSCALER = ("plimsoll", "best-static", "clairvoyant")


def main(paths: Sequence[str]) -> int:
    found = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    rows = sorted(found, key=lambda row: (row["router"] != "least-outstanding", row["router"], row["regime"]))
    for router, group in groupby(rows, key=lambda row: row["router"]):
        print(f"\n**Router {router}**: GPU-hours at 95 / 97 / 99 %\n\n{SUMMARY}")
        print("\n".join(_summary(regime, [*of]) for regime, of in groupby(group, key=lambda row: row["regime"])))
    for (regime, router), group in groupby(rows, key=lambda row: (row["regime"], row["router"])):
        found = list(group)
        tuned = " (the law's constants were chosen by looking at it)" if found[0]["tuned"] else ""
        print(f"\n**{regime}**, router {router}{tuned}\n\n{HEAD}")
        print("\n".join(map(_line, found)))
    return 0


def _summary(regime: str, rows: Sequence[Row]) -> str:
    by_name = {row["policy"]: row for row in rows}
    others = [row for row in rows if row["policy"] not in NO_AUTOSCALER]
    mark = " (tuned on)" if rows[0]["tuned"] else ""
    ours, static, limit = (_three(by_name.get(name)) for name in NO_AUTOSCALER)
    return (
        f"| {regime}{mark} | {ours} | {' / '.join(_cheapest(others, level) for level in LEVELS)} | {static} | {limit} |"
    )


def _three(row: Row | None) -> str:
    return " / ".join(_number(row[f"gpu_hours_at_{level}"], "-") for level in LEVELS) if row else ""


def _cheapest(rows: Sequence[Row], level: int) -> str:
    costs = [(cost, row["policy"]) for row in rows if (cost := row[f"gpu_hours_at_{level}"]) is not None]
    cost, policy = min(costs, default=(None, ""))
    return "-" if cost is None else f"{_number(cost, '-')} {policy}"


def _line(row: Row) -> str:
    return "| " + " | ".join(_cells(row)) + " |"


def _cells(row: Row) -> Iterator[str]:
    yield row["policy"]
    for level in LEVELS:
        yield _number(row[f"gpu_hours_at_{level}"], "-")
    yield row["setting"]
    yield f"{row['slo_percent']:.1f} %"
    yield _number(row["ttft_p99"], "-", " s")
    yield _number(row["preemptions_per_1000"], "-")
    yield str(row["scale_events"])
    yield str(row["max_replicas"])
    yield _number(row["burst_recovery_seconds"], "", " s")


def _number(value: float | None, missing: str, unit: str = "") -> str:
    return missing if value is None else f"{value:,.1f}{unit}" if value < 100 else f"{value:,.0f}{unit}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
