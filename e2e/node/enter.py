"""Into namespaces of our own and out again with nothing left: the folder, the control groups, the tethers.

Everything of a run is below one process, the first of its own pid namespace: when that one ends, the kernel ends
the rest, and mounts and interfaces go with their namespaces. What the kernel does not take away, a folder and
control groups of one name, the janitor of `Scratch` removes.
"""

import contextlib
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.controlplane import tether
from e2e.controlplane.scratch import Scratch, sweep
from e2e.node import cgroups, packages

PREFIX: Final = "plimsoll-node-"
CHECKOUT: Final = Path(__file__).absolute().parents[2]
INTERRUPTED_SECONDS: Final = 60.0


def unshare() -> list[str]:
    """The beginning of a command line in fresh mount, network and pid namespaces that end with it."""
    flags = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
    return [str(packages.find("unshare")), *flags]


def run(module: str, arguments: Sequence[str], env: Mapping[str, str]) -> int:
    """`python -m module FOLDER arguments` as the first process inside; its exit code. `FOLDER` is gone afterwards."""
    sweep_abandoned()
    name = f"{PREFIX}{secrets.token_hex(4)}"
    path = Path(tempfile.gettempdir(), name)
    with Scratch(path, afterwards=cgroups.command(name)) as scratch:
        command = [*unshare(), sys.executable, "-m", module, str(path), *arguments]
        inside = subprocess.Popen(tether.command(command), cwd=CHECKOUT, env={**env, **scratch.mark()})
        try:
            return inside.wait()
        except KeyboardInterrupt:  # Ctrl-C reached the suite too, which tidies up and ends
            with contextlib.suppress(subprocess.TimeoutExpired):
                inside.wait(INTERRUPTED_SECONDS)
            raise


def sweep_abandoned() -> None:
    """Remove what a run left whose janitor was killed too, or that was cut off with the machine."""
    temporary = Path(tempfile.gettempdir())
    names = {path.name for path in temporary.glob(f"{PREFIX}*")} | cgroups.existing(PREFIX)
    alive = set(_names_in_use())
    for name in names - alive:
        sweep(temporary / name, cgroups.command(name))


def _names_in_use() -> Iterator[str]:
    """Runs whose janitor lives: the folder is among its arguments, from before it exists until it is gone."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for word in (process / "cmdline").read_bytes().split(b"\0"):
                name = Path(word.decode(errors="replace")).name
                if name.startswith(PREFIX):
                    yield name
