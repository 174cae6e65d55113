"""What was freed goes back to the machine; tried in a process of its own, whose heap nobody else uses."""

import ctypes
import subprocess
import sys

import pytest

HELD = """
import asyncio, psutil
from plimsoll.adapters import heap

def resident_mib():
    return psutil.Process().memory_info().rss / 2**20

async def tried():
    pieces = [bytes(2000) for _ in range(100_000)]
    last = bytes(2000)  # what lies at the end keeps glibc from giving back what is before it
    full = resident_mib()
    del pieces
    freed = resident_mib()
    small = asyncio.create_task(heap.keep_small(every_seconds=0.01))
    async with asyncio.timeout(60):
        while resident_mib() > full - 150:
            await asyncio.sleep(0.01)
    small.cancel()
    print("given back", "by itself" if freed < full - 150 else "when asked", len(last))

heap.bound()
asyncio.run(tried())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc")
def test_what_is_free_is_given_back_while_something_is_kept() -> None:
    done = subprocess.run([sys.executable, "-c", HELD], check=False, capture_output=True, text=True)
    assert done.stdout == "given back when asked 2000\n", done.stderr
