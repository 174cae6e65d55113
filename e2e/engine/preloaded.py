"""A preloaded engine while somebody wants real servers: a command that takes seconds where `vllm` takes 40."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.controlplane import tether
from e2e.engine.install import Engine

HERE: Final = Path(__file__).absolute().parent
CLIENT: Final = HERE / "vllm_client.py"
SERVER: Final = HERE / "inside" / "preloaded.py"
# One process a server, and no threads that a fork would lose.
ENVIRONMENT: Final = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}


def environment(engine: Engine) -> tuple[str, ...]:
    """What to write before the command where nobody sets the environment of its process."""
    return ("env", *(f"{name}={value}" for name, value in {**engine.environment(), **ENVIRONMENT}.items()))


class NotPreloadedError(RuntimeError):
    """The engine's process ended before it was ready."""


@contextmanager
def preloaded(engine: Engine, models: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """The command to use instead of `vllm`; servers that it started end with the block."""
    path, log = folder / "vllm.sock", folder / "preloaded.log"
    command = tether.command([str(engine.python), str(SERVER), str(path), str(models)])
    env = {**os.environ, **engine.environment(), **ENVIRONMENT}
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=env, text=True)
    assert process.stdout
    try:
        if not any(line == "preloaded\n" for line in process.stdout):
            raise NotPreloadedError(log.read_text()[-2000:])
        yield (sys.executable, "-I", "-S", str(CLIENT), str(path))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
