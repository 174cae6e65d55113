"""The runner of mutants: what it changes, and that a test which looks away is found."""

import ast
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


def test_what_is_listed_as_changing_nothing_is_there() -> None:
    """A line of a mutant that no longer exists would hide the next one of that name."""
    for line in runner.EQUIVALENT.read_text(encoding="utf-8").splitlines():
        module, _, rest = line.partition(": ")
        name, because, why = rest.partition("  # ")
        assert because, line
        assert why, line
        path = (runner.PACKAGE / module).with_suffix(".py")
        assert name in {mutant.name for mutant in runner.mutants(Path(path).read_text(encoding="utf-8"))}, line
