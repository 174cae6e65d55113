"""The first process in the namespaces: prepares them, runs the suite, reaps what is left to it. `inside FOLDER …`."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from e2e.node import cgroups
from e2e.node.packages import run

NODE_ADDRESS: Final = "10.243.0.1"
RESOLV_CONF: Final = Path("/etc/resolv.conf")
# The kubelet writes these for the whole machine unless it reads what it wants.
TUNABLES: Final = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}


def main(folder: Path, command: Sequence[str]) -> int:
    """The command's exit code."""
    signal.signal(signal.SIGINT, lambda *_: None)  # for the command to answer; ignored, the command would ignore it too
    mount(folder)
    connect()
    cgroups.create(folder.name)
    temporary = folder / "tmp"
    temporary.mkdir()
    child = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)})
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def mount(folder: Path) -> None:
    """Give the run its own /run and /var, and show the kubelet the tunables it wants to see."""
    own = folder / "own"
    own.mkdir()
    run("mount", "-t", "tmpfs", "-o", "mode=755", "plimsoll-own", str(own))
    for name in ("upper", "work"):
        (own / name).mkdir()
    # Over /var and not over single folders in it: those may not exist, and would stay on the machine when made.
    run(
        "mount", "-t", "overlay", "-o", f"lowerdir=/var,upperdir={own}/upper,workdir={own}/work", "plimsoll-var", "/var"
    )
    run("mount", "-t", "tmpfs", "-o", "mode=755", "plimsoll-run", "/run")
    for name, value in TUNABLES.items():
        file = own / name.replace("/", "-")
        file.write_text(f"{value}\n")
        run("mount", "--bind", str(file), f"/proc/sys/{name}")
    # No packet leaves: with the machine's name servers every pull of an image would wait for their answer.
    if RESOLV_CONF.exists():
        nobody = own / "resolv.conf"
        nobody.touch()
        run("mount", "--bind", str(nobody), str(RESOLV_CONF.resolve()))
    # containerd expects to see its pods' mounts from here: share among ourselves, still private to the machine.
    run("mount", "--make-rshared", "/")


def connect() -> None:
    """An address for the node and a default route, so that a Service's address is routed before it is translated."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "add", f"{NODE_ADDRESS}/32", "dev", "lo")
    run("ip", "route", "add", "default", "dev", "lo", "src", NODE_ADDRESS)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
