"""Wait for a condition instead of sleeping for a time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

PAUSE_SECONDS: Final = 0.1


def eventually(question: Callable[[], Answer], *, within_seconds: float = 30.0) -> Answer:
    """The first answer that is true; an AssertionError with the last one when time is up."""
    give_up = time.monotonic() + within_seconds
    while not (answer := question()):
        assert time.monotonic() < give_up, f"still {answer!r} after {within_seconds:.0f} s"
        time.sleep(PAUSE_SECONDS)
    return answer
