"""Wait for a condition instead of sleeping for a time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

SHORTEST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 0.4
SHARE: Final = 1 / 25
"""A pause is this share of the wait so far: what comes soon is seen soon, who waits long takes little CPU."""


def eventually(
    question: Callable[[], Answer], *, within_seconds: float = 30.0, otherwise: Callable[[], str] | None = None
) -> Answer:
    """The first answer that is true; an AssertionError with the last one, and ``otherwise``, when time is up."""
    began = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - began
        if waited >= within_seconds:
            told = f"; {otherwise()}" if otherwise else ""
            raise AssertionError(f"still {answer!r} after {within_seconds:.0f} s{told}")
        time.sleep(min(LONGEST_SECONDS, SHORTEST_SECONDS + SHARE * waited))
    return answer
