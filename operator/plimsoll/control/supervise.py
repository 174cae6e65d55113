"""Parts of the operator: one that ends is started again and the rest lives on (decision 1); some end one another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

log = logging.getLogger("plimsoll.supervise")

BACKOFF_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
STEADY_SECONDS: Final = 120.0
"""After so long a run the next fault starts the back-off anew."""


async def keep_running(
    part: str, run: Callable[[], Awaitable[None]], restarted: Callable[[], None], monotonic: Callable[[], float]
) -> None:
    """Run the part for ever; ends only when cancelled, or when the part ends by itself without a fault."""
    failures = 0
    while True:
        started = monotonic()
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - whatever ends the part must not end the operator
            failures = 0 if monotonic() - started > STEADY_SECONDS else failures
            wait = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
            failures += 1
            log.warning("%s ended (%s: %s), starting it again in %.0f s", part, type(error).__name__, error, wait)
            restarted()
            await asyncio.sleep(wait)
        else:
            return


async def first_of(*parts: Coroutine[None, None, object]) -> None:
    """Run the parts side by side until one ends; the others are cancelled and waited for.

    Raises:
        Exception: the first fault of a part.

    """
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for fault in results:
        if isinstance(fault, Exception):
            raise fault
