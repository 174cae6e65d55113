"""The runner of many modules' mutants: each is tried on the tests that call the changed function, and on no others."""

import re
import subprocess
import sys

import pytest

from tools.mutants import ROOT


@pytest.mark.parametrize(
    ("tests", "killed"),
    [
        pytest.param("tests/unit/core/test_limits.py", True, id="tests that call it"),
        pytest.param("tests/unit/core/test_managers.py", False, id="tests of another module"),
    ],
)
def test_a_change_is_noticed_by_those_who_call_it(tests: str, killed: bool) -> None:
    command = [sys.executable, "-m", "tools.mutant_uses", "--sample", "3", "--tests", tests, "--", "core/limits"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    told = re.search(r"^plimsoll\.core\.limits +(\d+) +(\d+)", done.stdout, re.MULTILINE)
    assert told, done.stderr
    assert (int(told[1]), int(told[2])) == (3, 3 if killed else 0)
    assert done.stdout.count("lives: ") == (0 if killed else 3)
