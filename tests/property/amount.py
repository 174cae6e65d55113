"""How many examples the hostile tests try: a few in every run, `FUZZ` times as many with `make fuzz`."""

import os
from typing import Final

TIMES: Final = int(os.environ.get("FUZZ", "1"))


def examples(count: int) -> int:
    """`count`, or as many times more as somebody asked for."""
    return count * TIMES
