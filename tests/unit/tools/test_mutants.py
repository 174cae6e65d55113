"""The runner of mutants: what it changes, and that a test which looks away is found."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tools import mutants as runner

SOURCE = '''
"""A module: 3 < 4 here is text."""
LIMIT = 5

def decide(wanted: int = 3, *, held: int) -> int:
    """Not 1 + 1."""
    assert held >= 0
    grows = wanted > held and not held == LIMIT
    return min(wanted, held + 2) if grows else held
'''


def test_each_operator_is_changed_once_and_nothing_else() -> None:
    assert [mutant.name.removeprefix("decide: ") for mutant in runner.mutants(SOURCE)] == [
        "wanted > held and (not held == LIMIT) -> wanted > held or not held == LIMIT",
        "wanted > held -> wanted >= held",
        "not held == LIMIT -> not not held == LIMIT",
        "held == LIMIT -> held != LIMIT",
        "min(wanted, held + 2) if grows else held -> min(wanted, held + 2) if not grows else held (condition)",
        "min(wanted, held + 2) -> max(wanted, held + 2)",
        "held + 2 -> held - 2",
        "2 -> 3",
    ]


def test_a_mutant_is_the_module_with_one_change() -> None:
    whole = ast.unparse(ast.parse(SOURCE))
    for mutant in runner.mutants(SOURCE):
        changed = ast.unparse(mutant.tree)
        lines = [(a, b) for a, b in zip(whole.splitlines(), changed.splitlines(), strict=True) if a != b]
        assert len(lines) == 1, mutant.name


@pytest.mark.parametrize(
    ("module", "name"), [("plimsoll.core.budget", "test_budget.py"), ("plimsoll.core.limits", "test_limits.py")]
)
def test_the_nearest_tests_come_first(module: str, name: str) -> None:
    assert [path.name for path in next(runner._stages(module))] == [name]


def test_a_module_that_no_test_imports_is_tried_on_what_imports_it() -> None:
    """``latency/step`` is reached through its package: without that every change of it would count as unnoticed."""
    groups = list(runner._stages("plimsoll.core.latency.step"))
    tests = [path for group in groups for path in group]
    assert len(tests) == len(set(tests)), "a file is tried once"
    assert all(groups)
    assert runner.ROOT / "tests/unit/core/test_latency.py" in groups[0]


def test_what_is_listed_as_changing_nothing_is_there() -> None:
    """A line of a mutant that no longer exists would hide the next one of that name."""
    for line in runner.EQUIVALENT.read_text(encoding="utf-8").splitlines():
        module, _, rest = line.partition(": ")
        name, because, why = rest.partition("  # ")
        assert because, line
        assert why, line
        assert name in _names(module), line


@cache
def _names(module: str) -> set[str]:
    source = (runner.PACKAGE / module).with_suffix(".py").read_text(encoding="utf-8")
    return runner.names(source)


COUNTING = """
LIMITS = tuple(limit + 1 for limit in (1, 2))

def doubled(number):
    return [number * 2, 7]

def first():
    return 5

FIRST = first()
"""
LOOKING = """
from counting import FIRST, doubled

def test_doubled():
    assert doubled(3)[0] == 6

def test_first():
    assert FIRST == 5
"""
TRIED = """
import sys
from functools import cache
from pathlib import Path
sys.path.insert(0, ".")
from tools.mutant_trials import in_place, on_import
from tools.mutants import mutants
path = Path("counting.py").resolve()
trees = [(mutant.name, mutant.tree) for mutant in mutants(path.read_text())]
for tried in (in_place, on_import):
    fates = tried([Path("test_counting.py")], "counting", path, [tree for _, tree in trees])
    print(*zip([name for name, _ in trees], fates, strict=True), sep="\\n")
"""


def test_what_no_test_looks_at_lives_and_what_ran_on_import_is_left_to_an_import(tmp_path: Path) -> None:
    for name, text in {"counting.py": COUNTING, "test_counting.py": LOOKING}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", TRIED],
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(runner.ROOT)},
        capture_output=True,
        text=True,
    )
    told = [
        ("doubled: number * 2 -> number / 2", "killed"),
        ("doubled: 2 -> 3", "killed"),
        ("doubled: 7 -> 8", "lives"),
    ]
    slow = [*told, ("first: 5 -> 6", "killed")]
    assert done.stdout.splitlines() == [str(each) for each in [*told, ("first: 5 -> 6", "untold"), *slow]], done.stderr
