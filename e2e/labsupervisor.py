"""The background process of `make lab`: it owns all the others and `.lab`, and takes both with it."""

import contextlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from e2e import labstate
from e2e.controlplane.scratch import Scratch, sweep
from e2e.labrun import Lab, LabOptions
from e2e.labstate import State

LOOK_SECONDS: Final = 1.0
# Others take the lock for a moment to see whether a lab runs.
LOCK_PATIENCE_SECONDS: Final = 2.0


def run(options: LabOptions, report_to: int) -> int:
    """Run a lab until SIGTERM or Ctrl-C; progress and errors go to `report_to` until it is ready. The exit code.

    When nobody reads the report any more before that (the starter was killed), the lab ends as well.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with labstate.lock(patience_seconds=LOCK_PATIENCE_SECONDS) as mine:
        if mine is None:
            _tell(report_to, "another lab is being started or stopped in this checkout")
            return 1
        sweep(labstate.FOLDER)  # left by a machine that went down: nobody holds the lock
        with Scratch(labstate.FOLDER, inherited=[mine]) as scratch:
            report = _take_over(report_to)
            _redirect_output(scratch.path / "logs" / "lab.log")
            return _supervise(Lab(options, scratch=scratch, log=lambda line: _tell(report, line)), report)


def _supervise(lab: Lab, report: int) -> int:
    State.of(lab, ready=False).write()  # so that `down` knows whom to ask
    try:
        with lab:
            labstate.write_env(lab)
            state = State.of(lab, ready=True)
            state.write()
            os.close(report)
            _keep_current(lab, state)
    except Exception as error:  # noqa: BLE001 - the last stop: whoever started us has to hear of it
        # What a user can do something about speaks for itself; anything else is our bug and shows where.
        expected = isinstance(error, RuntimeError | OSError | ValueError)
        with contextlib.suppress(OSError):
            _tell(report, str(error) if expected else traceback.format_exc())
    return 1


def _keep_current(lab: Lab, state: State) -> NoReturn:
    """Rewrite the state file when a process has come back as another; ends by the signal that stops the lab."""
    while True:
        time.sleep(LOOK_SECONDS)
        now = State.of(lab, ready=True)
        if now != state:
            now.write()
        state = now


def _take_over(descriptor: int) -> int:
    """The same pipe under a number of its own, so that closing that one ends it for the reader."""
    copy = os.dup(descriptor)
    if descriptor > sys.stderr.fileno():
        os.close(descriptor)
    return copy


def _redirect_output(log: Path) -> None:
    """Our own output, and that of the fleet's threads, to a file."""
    log.parent.mkdir()
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())


def _tell(report: int, line: str) -> None:
    os.write(report, f"{line}\n".encode())


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)  # one is enough; a second would interrupt the cleaning up
    sys.exit(128 + number)
