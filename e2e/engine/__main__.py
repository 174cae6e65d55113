"""`python -m e2e.engine install|test [pytest arguments]`: what `make engine` and `make test-engine` run."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.controlplane import tether
from e2e.controlplane.scratch import MARK, Scratch
from e2e.engine import install

CHECKOUT: Final = Path(__file__).absolute().parents[2]
SUITE: Final = CHECKOUT / "e2e" / "engine" / "suite"
PYTEST: Final = (sys.executable, "-m", "pytest", "-p", "no:xdist")
REQUIRED: Final = "ENGINE_REQUIRED"
WORDS: Final = ("install", "test")


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in WORDS:
        say(f"usage: python -m e2e.engine {'|'.join(WORDS)} [pytest arguments]")
        return 2
    try:
        engine = install.ensure(say)
    except install.NoEngineError as error:
        return skip(str(error))
    if arguments[0] == "install":
        say(f"{engine.vllm} ({install.VERSION})")
        return 0
    return test(arguments[1:])


def test(arguments: Sequence[str]) -> int:
    """The suite, in a folder that takes everything it started with it, in whatever way it ends."""
    with Scratch() as scratch:
        command = tether.command([*PYTEST, str(SUITE), *arguments])
        env = {**os.environ, MARK: str(scratch.path), "TMPDIR": str(scratch.path)}
        suite = subprocess.Popen(command, cwd=CHECKOUT, env=env)
        try:
            return suite.wait()
        except KeyboardInterrupt:  # Ctrl-C reached the suite too, which tidies up and ends
            return suite.wait()


def skip(reason: str) -> int:
    """A line nobody overlooks: what was not tested, and why."""
    bar = "!" * 100
    say(f"{bar}\nSKIPPED: there is no real engine here: {reason}\n{bar}")
    return int(os.environ.get(REQUIRED) == "1")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
