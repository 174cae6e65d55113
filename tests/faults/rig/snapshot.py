"""Runs many cases from one prepared world: each in a copy of the process, which the system makes in a millisecond."""

import gc
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Result = TypeVar("Result")


def each_in_a_copy(cases: Sequence[Callable[[], Result]], at_once: int = 1) -> Iterator[Result]:
    """What each case returns, in order; so many run side by side."""
    running: list[tuple[int, int]] = []
    for case in cases:
        if len(running) == at_once:
            yield _result(*running.pop(0))
        running.append(_start(case))
    while running:
        yield _result(*running.pop(0))


def _start(case: Callable[[], object]) -> tuple[int, int]:
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads (a test runner's) that the copy does not have; it uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    gc.freeze()
    status = 1
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(case(), pipe)
        status = 0
    except BaseException:  # noqa: BLE001 - a copy must end here whatever happens, and say why
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _result(pid: int, reading: int) -> Result:  # type: ignore[type-var]
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError("a case ended without a result: its output is above")
    found: Result = pickle.loads(text)
    return found
