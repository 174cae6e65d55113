"""`make e2e-kind`: `python -m e2e.kind [pytest arguments]`. The exit code is the suite's, 1 where it cannot run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from e2e.kind.cluster import NEEDED
from e2e.node.__main__ import PYTEST, SUITE, say
from e2e.node.rig import RIG


def main(arguments: Sequence[str]) -> int:
    obstacle = missing()
    if obstacle:
        bar = "!" * 100
        say(f"{bar}\nthe suite on kind did NOT run: {obstacle}. Without Docker there is `make test-node`.\n{bar}")
        return 1
    return subprocess.run([*PYTEST, str(SUITE), *arguments], check=False, env={**os.environ, RIG: "kind"}).returncode


def missing() -> str | None:
    """What kind needs and this machine has not."""
    absent = [program for program in NEEDED if shutil.which(program) is None]
    if absent:
        return f"not on PATH: {', '.join(absent)}"
    docker = subprocess.run(["docker", "info"], check=False, capture_output=True, text=True)
    return f"`docker info` fails: {docker.stderr.strip()}" if docker.returncode else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
