"""A supervised child process: logs to a file, comes back with back-off when it ends unasked, dies with us."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.controlplane import failures, tether

FIRST_BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 30.0
# A run this long counts as healthy: the next back-off starts from the beginning.
STEADY_SECONDS: Final = 60.0
PROBE_PAUSE_SECONDS: Final = 0.05
TAIL_LINES: Final = 12


class ProcessError(RuntimeError):
    """A process did not become ready. The message names it, its last log lines and the log file."""


class Process:
    """One child and the thread that starts it, waits for it and starts it again.

    Until `await_ready` has seen it ready, an exit is final: the caller is told instead of a restart loop.
    The thread lives as long as the child, which the tether needs (see `tether.py`).
    """

    def __init__(
        self, name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._argv = list(argv)
        self._env = dict(env)
        self._cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._comes_back = False

    @property
    def pid(self) -> int | None:
        """The id of the running child; nothing between two runs."""
        child = self._child
        return child.pid if child and child.returncode is None else None

    @property
    def supervised(self) -> bool:
        """Whether the child runs or is about to come back."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        assert not self.supervised, f"{self.name} runs already"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._stopping.clear()
        self._comes_back = False
        self._thread = threading.Thread(target=self._supervise, name=f"supervise-{self.name}", daemon=True)
        self._thread.start()

    def await_ready(self, probe: Callable[[], bool], *, within_seconds: float) -> None:
        """Return once `probe` says yes; raise `ProcessError` when the child ends first or time is up."""
        give_up = time.monotonic() + within_seconds
        while not probe():
            if not self.supervised:
                raise ProcessError(self.failure(f"ended {self._how_it_ended()} before it was ready"))
            if time.monotonic() > give_up:
                raise ProcessError(self.failure(f"was not ready after {within_seconds:.0f} s"))
            time.sleep(PROBE_PAUSE_SECONDS)
        self._comes_back = True

    def stop(self, *, grace_seconds: float = 10.0) -> None:
        """SIGTERM, after the grace SIGKILL; it does not come back."""
        self._stopping.set()
        if self._thread is None:
            return
        self._signal(signal.SIGTERM)
        self._thread.join(grace_seconds)
        self._signal(signal.SIGKILL)
        self._thread.join()

    def kill(self, *, comes_back: bool = True) -> None:
        """SIGKILL, as a crash: the supervision starts it again after a back-off unless told otherwise."""
        if not comes_back:
            self._stopping.set()
        self._signal(signal.SIGKILL)
        if self._thread and not comes_back:
            self._thread.join()

    def failure(self, what: str) -> str:
        """A message for people: what happened to which process, the end of its log, where the rest is."""
        return f"{self.name} {what}; last lines of {failures.keep(self.log)}:\n{self.log_tail()}"

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:]) or "  (the log is empty)"

    def _supervise(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            self._run_once()
            if not self._comes_back:
                return
            backoff = FIRST_BACKOFF_SECONDS if time.monotonic() - began > STEADY_SECONDS else backoff
            if self._stopping.wait(backoff):
                return
            backoff = min(2 * backoff, MAX_BACKOFF_SECONDS)
            self.restarts += 1

    def _run_once(self) -> None:
        with self.log.open("ab") as log:
            # Its own session: Ctrl-C in a terminal reaches us alone, and we stop the children in order.
            child = subprocess.Popen(
                tether.command(self._argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        self._child = child
        if self._stopping.is_set():  # asked to stop while it was being started
            child.kill()
        child.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To the child's whole session group: what it started goes with it."""
        child = self._child
        if child and child.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # ended just now
                os.killpg(child.pid, number)

    def _how_it_ended(self) -> str:
        code = self._child.returncode if self._child else None
        if code is None:
            return "without having been started"
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
