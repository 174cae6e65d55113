"""What is in the way of a fleet: a condition reason, a sentence, and whether it passes by itself."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Obstacle:
    """``lasting``: it stays until somebody changes something."""

    reason: str
    message: str
    lasting: bool = False
