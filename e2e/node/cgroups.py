"""The control groups of one run: made before its kubelet, gone after it in whatever way it ended.

Run as a script (`cgroups.py NAME`) by the run's janitor, so it imports nothing of ours.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
CONTROLLERS: Final = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")
NEEDED: Final = frozenset({"cpuset", "cpu", "memory", "pids", "hugetlb"})
# Pods ask for little, and all of them together would get no more of a busy machine than one process outside.
WEIGHT: Final = {"cpu.shares": "16384", "cpu.weight": "1600"}
PATIENCE_SECONDS: Final = 20.0
PAUSE_SECONDS: Final = 0.05


def command(name: str) -> list[str]:
    """The command line that removes the groups of this name."""
    return [sys.executable, "-I", "-S", __file__, name]


def unified() -> bool:
    """Whether all controllers are in one hierarchy (cgroup v2)."""
    return (ROOT / "cgroup.controllers").exists()


def hierarchies() -> Iterator[Path]:
    """The root of each hierarchy: one on cgroup v2, one a controller on v1."""
    if unified():
        yield ROOT
        return
    for folder in sorted(ROOT.iterdir()):
        if (folder / "cgroup.procs").exists() and not folder.is_symlink():
            yield folder


def create(name: str) -> None:
    """A group of this name in every hierarchy, ready to hold the kubelet's pods."""
    for root in hierarchies():
        group = root / name
        group.mkdir(exist_ok=True)
        if unified():
            _delegate(root)
            _delegate(group)
        for inherited in ("cpuset.cpus", "cpuset.mems"):  # empty in a new v1 group, and then nothing may run in it
            if not unified() and (group / inherited).exists():
                (group / inherited).write_text((root / inherited).read_text())
        for file, weight in WEIGHT.items():
            if (group / file).exists():
                (group / file).write_text(weight)


def withheld(name: str) -> list[str]:
    """Controllers that the machine has and our group has not: a kubelet does not start without them.

    On cgroup v2 a group with processes in it hands none down, and in a container the root group often has some.
    """
    if not unified():
        return []
    has, got = ((group / "cgroup.controllers").read_text().split() for group in (ROOT, ROOT / name))
    return sorted(set(has) & NEEDED - set(got))


def existing(prefix: str) -> set[str]:
    """Names of the groups that begin so."""
    return {group.name for root in hierarchies() for group in root.glob(f"{prefix}*") if group.is_dir()}


def remove(name: str) -> None:
    """Kill what runs in the groups of this name and remove them; gives up after a while."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    groups = [root / name for root in hierarchies()]
    while any(group.exists() for group in groups) and time.monotonic() < give_up:
        for group in groups:
            _kill_and_remove(group)
        time.sleep(PAUSE_SECONDS)


def _kill_and_remove(group: Path) -> None:
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):  # ended meanwhile, or still busy: the next round
            for pid in Path(folder, "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            Path(folder).rmdir()


def _delegate(group: Path) -> None:
    """Let the group's children have each controller that the group has."""
    for controller in CONTROLLERS:
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


if __name__ == "__main__":
    remove(sys.argv[1])
