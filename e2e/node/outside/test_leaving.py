"""Into the namespaces and out again: what is left of a run, however it ends. As root, before the suite inside."""

import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from e2e.controlplane.scratch import marked_processes
from e2e.eventually import eventually
from e2e.node import cgroups, enter

# What a run does, short of a cluster: a process in a control group, one in the background, a file, an interface.
STAND_IN: Final = """
name=$(basename "$PLIMSOLL_SCRATCH")
ip link add pair0 type veth peer name pair1 && touch "$TMPDIR/file" /var/lib/file /run/file
sleep 1000 &
for group in /sys/fs/cgroup/"$name" /sys/fs/cgroup/*/"$name"; do
    [ ! -d "$group" ] || { mkdir "$group/pod" && echo $! > "$group/pod/cgroup.procs"; } || true
done
touch "$PLIMSOLL_SCRATCH/ready"
wait
"""
RUN: Final = """
import os, sys
from e2e.node import __main__, enter
__main__.end_with_make()
sys.exit(enter.run("e2e.node.inside", ["/bin/sh", "-c", sys.argv[1], "stand-in", *sys.argv[2:]], dict(os.environ)))
"""
COMMAND: Final = [sys.executable, "-c", RUN, STAND_IN]


@contextmanager
def running(argv: list[str], **env: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The launcher and the folder of its run, once all of it is there."""
    before = folders()
    with subprocess.Popen(argv, cwd=enter.CHECKOUT, env={**os.environ, **env}, start_new_session=True) as launcher:
        try:
            folder = eventually(lambda: next((f for f in folders() - before if (f / "ready").exists()), None))
            assert folder is not None
            yield launcher, folder
        finally:
            launcher.kill()


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob(f"{enter.PREFIX}*"))


def groups(name: str) -> list[Path]:
    return [root / name for root in cgroups.hierarchies() if (root / name).exists()]


def on_the_machine() -> list[str]:
    """What a run makes in its own namespaces and must not be seen outside."""
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if "plimsoll" in line]
    others = (Path("/var/lib/file"), Path("/run/file"), Path("/sys/class/net/pair0"))
    return [*mounts, *(str(path) for path in others if path.exists())]


def assert_nothing_is_left(folder: Path) -> None:
    eventually(lambda: not folder.exists() and not groups(folder.name) and not list(marked_processes(folder)))


def test_a_killed_launcher_leaves_nothing() -> None:
    with running(COMMAND) as (launcher, folder):
        assert groups(folder.name)
        assert on_the_machine() == []
        launcher.send_signal(signal.SIGKILL)
        assert_nothing_is_left(folder)
    assert on_the_machine() == []


def test_a_killed_make_takes_everything_with_it(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f'exec "{sys.executable}" -c "$RUN" "$STAND_IN"\n')
    makefile = tmp_path / "Makefile"
    makefile.write_text(f"all:\n\t@sh {script}\n")
    with running(["make", "-f", str(makefile)], RUN=RUN, STAND_IN=STAND_IN) as (make, folder):
        make.send_signal(signal.SIGKILL)
        assert_nothing_is_left(folder)


def test_the_exit_code_is_that_of_what_ran() -> None:
    argv = [sys.executable, "-c", RUN, "exit 7"]
    assert subprocess.run(argv, cwd=enter.CHECKOUT, check=False).returncode == 7


def test_two_at_once_do_not_see_each_other() -> None:
    with running(COMMAND) as (_, first), running(COMMAND) as (_, second):  # both make an interface called pair0
        assert groups(first.name)
        assert groups(second.name)
    assert_nothing_is_left(first)
    assert_nothing_is_left(second)


def test_the_next_run_removes_what_an_aborted_one_left_and_only_that() -> None:
    abandoned = Path(tempfile.gettempdir(), f"{enter.PREFIX}{secrets.token_hex(4)}")
    abandoned.mkdir()
    cgroups.create(abandoned.name)
    with running(COMMAND) as (_, living):
        assert not abandoned.exists()
        assert not groups(abandoned.name)
        enter.sweep_abandoned()
        assert (living / "ready").exists()
        assert groups(living.name)
    assert_nothing_is_left(living)
