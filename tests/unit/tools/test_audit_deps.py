"""What pip-audit's answer means; nobody is asked here."""

import json
from typing import Any

import pytest

from tools.audit_deps import advisories

SOUND = {"name": "aiohttp", "version": "3.13.0", "vulns": []}
HURT = {"name": "pyyaml", "version": "5.3", "vulns": [{"id": "CVE-2020-14343", "fix_versions": ["5.4"]}]}
UNMENDED = {"name": "x", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": []}]}


@pytest.mark.parametrize(
    ("packages", "expect"),
    [
        ([SOUND], []),
        ([SOUND, HURT], ["pyyaml 5.3: CVE-2020-14343, mended in 5.4"]),
        ([UNMENDED], ["x 1: CVE-1, mended in nothing yet"]),
    ],
)
def test_advisories_are_named(packages: list[dict[str, Any]], expect: list[str]) -> None:
    assert advisories(json.dumps({"dependencies": packages})) == expect


@pytest.mark.parametrize(
    "answer",
    ["", "{}", "[]", "null", '{"dependencies": []}', '{"dependencies": [{"name": "x", "skip_reason": "not found"}]}'],
)
def test_no_answer_is_not_taken_for_a_clean_one(answer: str) -> None:
    assert advisories(answer) is None
