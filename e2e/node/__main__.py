"""`make test-node`: `python -m e2e.node [pytest arguments]`. Exit code of the suite; 0 with a loud word where it cannot
run, unless `NODE_REQUIRED=1` asks for it.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from e2e.controlplane import binaries
from e2e.controlplane.targets import CONTROL_PLANE, HELM, NODE
from e2e.controlplane.tether import PR_SET_PDEATHSIG
from e2e.node import enter, packages, possible
from e2e.node.images import store
from e2e.node.rig import RIG

OUTSIDE: Final = enter.CHECKOUT / "e2e" / "node" / "outside"
SUITE: Final = enter.CHECKOUT / "e2e" / "node" / "suite"
PYTEST: Final = (sys.executable, "-m", "pytest", "-p", "no:xdist")
REQUIRED: Final = "NODE_REQUIRED"


def main(arguments: Sequence[str]) -> int:
    end_with_make()
    obstacle = install()
    if obstacle:
        return skip(obstacle)
    for group in (CONTROL_PLANE, HELM, NODE):
        binaries.ensure_group(group, say)
    store.ensure(say)
    inside = enter.run("e2e.node.inside", [*PYTEST, str(SUITE), *arguments], {**os.environ, RIG: "node"})
    # What runs leave is looked at where they left it; with words for pytest somebody wants a part of the suite.
    outside = 0 if arguments else subprocess.run([*PYTEST, str(OUTSIDE)], cwd=enter.CHECKOUT, check=False).returncode
    return inside or outside


def install() -> str | None:
    """Have what is needed; why that is not possible."""
    obstacle = possible.obstacle_before_installing()
    if obstacle:
        return obstacle
    try:
        packages.ensure(say)
    except packages.NotInstalledError as error:
        return str(error)
    return possible.obstacle()


def skip(reason: str) -> int:
    """A line nobody overlooks: what was not tested, and why."""
    bar = "!" * 100
    say(f"{bar}\nSKIPPED: the suite on a real kubelet did NOT run: {reason}\n{bar}")
    return int(os.environ.get(REQUIRED) == "1")


def end_with_make() -> None:
    """Die with `make` even when that one is killed outright; started by hand, outlive the shell as usual."""
    if "MAKELEVEL" in os.environ:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
