"""Run a program that dies with the process that started it, even when that one is killed with SIGKILL.

Used as a script between `fork` and the program: a `preexec_fn` would run Python in a forked, threaded process.
The kernel ties the child to the *thread* that forked it, so that thread has to live as long (see `process.py`).
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


def command(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` tethered to the calling process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *argv]


def _main(parent: int, argv: list[str]) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel knew
        sys.exit(1)
    os.execv(argv[0], argv)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
