"""Runs many cases from one prepared world: each in a copy of the process, which the system makes in a millisecond.

A copy can be copied again, in the midst of what it does: whatever led there is then done once for all that follows.
"""

import asyncio
import gc
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NoReturn, TypeVar

Result = TypeVar("Result")
_OUT: Final[list[int]] = []
"""Pipes into which this copy, last, and those that it was copied in give what they return."""


def each_in_a_copy(cases: Sequence[Callable[[], Result]], at_once: int = 1) -> Iterator[Result]:
    """What each case returns, in order; so many run side by side."""
    running: list[tuple[int, int]] = []
    for case in cases:
        if len(running) == at_once:
            yield _result(*running.pop(0))
        pid, reading = _copy()
        if not pid:
            _give(case)
        running.append((pid, reading))
    while running:
        yield _result(*running.pop(0))


@dataclass
class Branches(Generic[Result]):
    """Copies that are made in the midst of a case, by itself: each goes on from there, and returns as the case does."""

    at_once: int = 1
    """So many run side by side, the one that makes them among them."""
    _done: list[Result] = field(default_factory=list)
    _running: list[tuple[int, int]] = field(default_factory=list)

    def here(self) -> bool:
        """True in a new copy, which goes on from here; False in the original."""
        loop = asyncio._get_running_loop()
        pid, reading = _copy()
        if not pid:
            asyncio._set_running_loop(loop)  # asyncio forgets it in a copy
            return True
        self._running.append((pid, reading))
        if len(self._running) == self.at_once:
            self._wait()
        return False

    def results(self) -> list[Result]:
        """What the copies have returned, in the order in which they were made."""
        while self._running:
            self._wait()
        return self._done

    def _wait(self) -> None:
        self._done.append(_result(*self._running.pop(0)))


def _copy() -> tuple[int, int]:
    """In the original the copy's process and where to read what it returns; in the copy zeros."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads (a test runner's) that the copy does not have; it uses none.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    os.close(reading)
    _OUT.append(writing)
    gc.freeze()
    return 0, 0


def _give(case: Callable[[], object]) -> NoReturn:
    """The whole of a copy, and of the copies of it: run the case, hand over what it returns, end."""
    status = 1
    try:
        returned = case()
        with os.fdopen(_OUT[-1], "wb") as pipe:
            pickle.dump(returned, pipe)
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
