"""A folder that does not outlive its owner, nor do the processes that carry its mark.

A small detached process (the janitor, this file run as a script) waits for a pipe to close. The kernel closes it
when the owner is gone in whatever way: then the janitor kills what is left and removes the folder.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

MARK: Final = "PLIMSOLL_SCRATCH"
SWEEP_PATIENCE_SECONDS: Final = 20.0
SWEEP_PAUSE_SECONDS: Final = 0.02


class Place(Protocol):
    """A folder to work in, and the environment entry by which a process belongs to it."""

    @property
    def path(self) -> Path: ...
    def mark(self) -> dict[str, str]: ...


class Scratch:
    """Makes `path` (a fresh folder in the system's temporary one by default) and answers for its end.

    `inherited` file descriptors are held open by the janitor too: a lock taken on one is held until all is clean.
    `afterwards` is a command that removes what is neither a process nor in the folder; it runs last, at every end.
    """

    def __init__(
        self, path: Path | None = None, *, inherited: Sequence[int] = (), afterwards: Sequence[str] = ()
    ) -> None:
        self.path: Path = path or Path(tempfile.gettempdir(), f"plimsoll-{os.urandom(6).hex()}")
        if self.path.exists():
            raise FileExistsError(
                f"{self.path} exists already; a scratch folder is removed at the end, so it has to be new"
            )
        self._afterwards = afterwards
        # The janitor comes first: there is no moment in which the folder exists and nobody would remove it.
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(self.path), *afterwards],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
            pass_fds=inherited,
            cwd="/",
        )
        try:
            self.path.mkdir(mode=0o700, parents=True)
        except BaseException:
            self._janitor.kill()
            self._dismiss()
            raise

    def mark(self) -> dict[str, str]:
        """The environment entry by which a process belongs to this folder."""
        return {MARK: str(self.path)}

    def close(self) -> None:
        """Kill every marked process, remove the folder, send the janitor home. Safe to call again."""
        sweep(self.path, self._afterwards)
        self._dismiss()

    def _dismiss(self) -> None:
        if self._janitor.stdin:
            self._janitor.stdin.close()
        self._janitor.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sweep(path: Path, afterwards: Sequence[str] = ()) -> None:
    """Kill the processes marked with `path`, remove it, run `afterwards`."""
    _remove(path)
    if afterwards:
        subprocess.run(afterwards, check=False, stdin=subprocess.DEVNULL)


def _remove(path: Path) -> None:
    """Gives up after a while (a file system that refuses)."""
    give_up = time.monotonic() + SWEEP_PATIENCE_SECONDS
    while True:
        marked = list(marked_processes(path))
        for pid in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(path, ignore_errors=True)
        if (not marked and not path.exists()) or time.monotonic() > give_up:
            return
        time.sleep(SWEEP_PAUSE_SECONDS)


def marked_processes(path: Path) -> Iterator[int]:
    """Ids of the living processes that were started with the mark of `path`, other than this one."""
    entry = f"{MARK}={path}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or another user's
            if entry in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                yield int(folder.name)


def _main(path: Path, afterwards: list[str]) -> None:
    while os.read(0, 4096):
        pass
    sweep(path, afterwards)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
