"""The fault rig: scenarios, what can go wrong with them, and the judgement."""

from importlib import import_module
from typing import Final

_PARTS: Final = ("lifecycle", "hardship", "crash", "pairs", "api_faults", "views", "hands", "moods")


def load() -> None:
    """Register every scenario and campaign."""
    for part in _PARTS:
        import_module(f"tests.faults.rig.{part}")
