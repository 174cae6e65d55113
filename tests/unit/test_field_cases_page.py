"""docs/field-cases.md: every case is there once, and every test it names exists."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "field-cases.md"
# The cases we were given, by section; from the project's field-cases list of 2026, whose rows name the public threads.
CASES: Final = {
    "A": "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 30 31 33 34 36 37 39 40 42 43 45 46 48 49",
    "B": "01 03 04 06 07 09 10 12 13 15 16 18 19 21 22 24 25",
    "C": "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 29 31 32 34 35 37 38 40",
    "D": "01 03 04 06 07 09 10 12 13 15 16 18 19 21 22 24 25",
    "E": "02 03 05 06",
    "F": "02 03 05 06 08 09 11 12 14 15 17 18 20 21 23 24 26 27",
    "G": "02 03 05",
}
_ROW: Final = re.compile(r"^\| (?P<cases>[A-G]\d\d(?:, [A-G]\d\d)*) \|.*\| (?P<tests>[^|]*) \|$")
_TEST: Final = re.compile(r"`(?P<file>[\w/]*\.py)?(?:::)?(?P<name>test_\w+)?…?`")
SECTION_A_FILE: Final = "tests/unit/core/plan/test_field_cases.py"


def _rows() -> Iterator[tuple[list[str], str]]:
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if found := _ROW.match(line):
            yield found["cases"].split(", "), found["tests"]


@pytest.mark.parametrize("section", CASES)
def test_every_case_has_one_row(section: str) -> None:
    listed = Counter(case for cases, _ in _rows() for case in cases if case[0] == section)
    assert listed == {f"{section}{number}": 1 for number in CASES[section].split()}


@pytest.mark.parametrize(("cases", "tests"), list(_rows()), ids=lambda value: "+".join(value)[:40])
def test_every_test_that_is_named_exists(cases: list[str], tests: str) -> None:
    named = list(_TEST.finditer(tests))
    assert named or tests.startswith("open: "), f"{cases} names no test and does not say that it is open"
    file = SECTION_A_FILE
    for each in named:
        file = each["file"] or file
        files = [path for path in _test_files() if str(path).endswith(f"/{file}") or str(path) == file]
        assert files, f"{file} does not exist"
        name = each["name"] or ""
        assert any(test.startswith(name) for path in files for test in _tests(path)), f"{file} has no {name}"


@cache
def _test_files() -> tuple[Path, ...]:
    return tuple(path.relative_to(ROOT) for top in ("tests", "e2e") for path in (ROOT / top).rglob("test_*.py"))


@cache
def _tests(path: Path) -> tuple[str, ...]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return tuple(node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_"))
