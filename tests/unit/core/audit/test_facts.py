"""Manifests written around known facts: the argv comes back, and the findings are those of a careful reader."""

import json
from pathlib import Path

from tests.unit.core.audit.deployments import PLANNER
from tools.audit_facts import argv_differences, scores

FACTS = Path(__file__).parents[3] / "data" / "audit" / "facts.jsonl"
ROWS = [json.loads(line) for line in FACTS.read_text(encoding="utf-8").splitlines()]


def test_the_argv_comes_back() -> None:
    assert list(argv_differences(ROWS)) == []


def test_the_findings_are_those_of_a_careful_reader() -> None:
    counts, disagreements = scores(ROWS, PLANNER)
    assert disagreements == []
    assert sum(each["both"] for each in counts.values()) == sum(len(row["problems"]) for row in ROWS)
