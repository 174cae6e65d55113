"""Memory that is free goes back to the machine: what one listing of a thousand objects takes is not held for ever.

glibc keeps what was freed, in an arena a thread. Its own knobs are set, where the C library is glibc; elsewhere nothing
is done. Figures: docs/adr/0052.
"""

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Numbers of ``mallopt``, from glibc's ``malloc.h``."""
MAPPED_BYTES: Final = 256 * 1024
"""A piece of this size is mapped by itself and given back when it is freed. Set once, it does not grow with use."""
ARENAS: Final = 2
EVERY_SECONDS: Final = 60.0


def bound() -> None:
    """Bound what is kept; before the first thread."""
    if mallopt := _function("mallopt"):
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(_M_ARENA_MAX, ARENAS)


async def keep_small(every_seconds: float = EVERY_SECONDS) -> None:
    """Give back what is free now and then, until cancelled: some milliseconds each time."""
    trim = _function("malloc_trim")
    while True:
        await asyncio.sleep(every_seconds)
        if trim:
            trim(0)


def _function(name: str) -> Callable[..., int] | None:
    found: Callable[..., int] | None = getattr(ctypes.CDLL(None), name, None)
    return found
