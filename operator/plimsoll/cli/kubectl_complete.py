"""Completion of ``kubectl vllm …``: kubectl runs ``kubectl_complete-vllm`` with the words typed so far.

Cobra's protocol: one candidate a line, then ``:`` and a directive for the shell.
"""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from typing import Final

from plimsoll.cli.kubectl import app

FILES_TOO: Final = ":0"
NO_FILES: Final = ":4"
_PROGRAM: Final = "kubectl-vllm"
_VARIABLE: Final = "_KUBECTL_VLLM_COMPLETE"
_TAKE_FILES: Final = ("plan", "diff")


def complete() -> None:
    """Print candidates for the last of the words, and whether file names may follow instead."""
    words = sys.argv[1:]
    offered = candidates(words)
    for each in offered:
        print(each)
    print(FILES_TOO if not offered and words[:1] and words[0] in _TAKE_FILES else NO_FILES)


def candidates(words: Sequence[str]) -> list[str]:
    """What the last of the words may become: typer's own answer to a bash that asks."""
    asked = {
        _VARIABLE: "complete_bash",
        "COMP_WORDS": shlex.join([_PROGRAM, *words]),
        "COMP_CWORD": str(max(1, len(words))),
    }
    printed = StringIO()
    os.environ.update(asked)
    try:
        with redirect_stdout(printed), suppress(SystemExit):
            app(args=[], prog_name=_PROGRAM, complete_var=_VARIABLE)
    finally:
        for name in asked:
            del os.environ[name]
    return printed.getvalue().split()
