"""How fast the world turns: a figure for people, not a test."""

import time

from tests.faults.world.world import World, service

MINUTES = 30.0


def virtual_minutes_per_second() -> float:
    """Virtual minutes of a ready, idle service a second of this machine."""
    with World() as world:
        world.start_operator()
        world.apply(service())
        world.until(lambda: world.is_ready("qwen"))
        began = time.perf_counter()
        world.run(60 * MINUTES)
        return MINUTES / (time.perf_counter() - began)
