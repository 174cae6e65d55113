"""A scenario: what was there, what somebody does, and when it is done. Adding one is a matter of a few lines.

Every campaign runs all of them: with a crash at every write, over a stale cache, through an API that fails.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.world.world import World

Step = Callable[[World], object]


@dataclass(frozen=True)
class Scenario:
    """``prepare`` leads to a state at rest with one operator that leads; ``act`` is what happens then."""

    name: str
    prepare: Step
    act: Step
    done: Callable[[World], object]
    within_seconds: float = 900.0
    """Longest time to be done, with any fault."""
    make: Callable[[], World] = field(default=World)
    quiet_seconds: float = 45.0
    """So long everything stays as it is before it counts as the end."""
    hardship: bool = False
    """It is a fault itself: by itself, with crashes, and no more."""
    told_more: int = 0
    """So many times more may the status be written: its roll-out is long, and meets ticks at other moments."""
    slow: bool = False
    """Hours of virtual time: ``make test`` only sees that it ends."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(found: Scenario) -> None:
    """Register a scenario."""
    assert found.name not in SCENARIOS
    SCENARIOS[found.name] = found
