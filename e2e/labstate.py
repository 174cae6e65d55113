"""What a lab leaves in its checkout while it runs: `.lab/env` for shells, `.lab/state.json`, and a lock.

The lock is on the checkout's folder itself, so it leaves no file and outlives the removal of `.lab`. Supervisor and
janitor hold it together: it is free only when the last of a lab is gone.
"""

import fcntl
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from e2e.labrun import CHECKOUT, Lab

FOLDER: Final = CHECKOUT / ".lab"
ENV: Final = FOLDER / "env"
STATE: Final = FOLDER / "state.json"
LOCK_PAUSE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class State:
    """A running lab as others see it. `processes` are name → process id (none between two runs), restarts, log."""

    supervisor: int
    ready: bool
    nodes: str
    urls: dict[str, str]
    processes: dict[str, dict[str, Any]]

    @classmethod
    def read(cls) -> Self | None:
        """The state of this checkout's lab, or nothing when there is none (yet)."""
        try:
            return cls(**json.loads(STATE.read_text()))
        except FileNotFoundError:
            return None

    @classmethod
    def of(cls, lab: Lab, *, ready: bool) -> Self:
        urls = {"kubernetes": lab.plane.url, "prometheus": lab.plane.prometheus_url} if ready else {}
        if lab.operator:
            urls["operator"] = lab.operator.url
        processes = {
            name: {"pid": process.pid, "restarts": process.restarts, "log": str(process.log)}
            for name, process in lab.processes.items()
        }
        return cls(os.getpid(), ready, lab.options.nodes, urls, processes)

    def write(self) -> None:
        draft = STATE.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self), indent=2))
        draft.replace(STATE)


def write_env(lab: Lab) -> None:
    """`. .lab/env`: kubectl, plimsoll and curl find this lab.

    PATH is written out instead of referring to itself, for readers that are not shells.
    """
    folders = [str(lab.plane.binaries.bin_dir), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    variables = {
        "KUBECONFIG": str(lab.plane.admin_kubeconfig),
        "PROMETHEUS_URL": lab.plane.prometheus_url,
        **({"OPERATOR_URL": lab.operator.url} if lab.operator else {}),
        "KUBECACHEDIR": str(lab.plane.kubectl.cache),
        "PATH": os.pathsep.join(folders),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    # Plain NAME=value lines for readers that are not shells; one line for those that are.
    ENV.write_text("\n".join([*lines, f"export {' '.join(variables)}", ""]))


@contextmanager
def lock(*, patience_seconds: float = 0.0) -> Iterator[int | None]:
    """Hold the checkout's lab lock; yields its file descriptor, or nothing when another lab holds it all the time."""
    descriptor = os.open(CHECKOUT, os.O_RDONLY)
    give_up = time.monotonic() + patience_seconds
    try:
        while not (held := _acquire(descriptor)) and time.monotonic() < give_up:
            time.sleep(LOCK_PAUSE_SECONDS)
        yield descriptor if held else None
    finally:
        os.close(descriptor)


def _acquire(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def taken() -> bool:
    """Whether a lab of this checkout runs, starts or is being cleaned up."""
    with lock() as mine:
        return mine is None
