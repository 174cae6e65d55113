"""The folder ``operator/`` must never hide Python's own ``operator`` module."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROBE = "import operator; assert operator.itemgetter(1)('ab') == 'b'; print(operator.__file__)"


def test_standard_operator_wins_from_the_repository_root() -> None:
    """A fresh interpreter in the root has the root first on ``sys.path``, as every script and pytest there has."""
    found = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not Path(found.stdout.strip()).is_relative_to(ROOT / "operator")


def test_operator_folder_is_no_package() -> None:
    assert (ROOT / "operator" / "plimsoll").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()
