"""Wait for a condition instead of sleeping for a time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

PAUSE_SECONDS: Final = 0.1


def eventually(
    question: Callable[[], Answer], *, within_seconds: float = 30.0, otherwise: Callable[[], str] | None = None
) -> Answer:
    """The first answer that is true; an AssertionError with the last one, and ``otherwise``, when time is up."""
    give_up = time.monotonic() + within_seconds
    while not (answer := question()):
        if time.monotonic() >= give_up:
            told = f"; {otherwise()}" if otherwise else ""
            raise AssertionError(f"still {answer!r} after {within_seconds:.0f} s{told}")
        time.sleep(PAUSE_SECONDS)
    return answer
