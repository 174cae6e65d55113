"""What an engine that refused a plan taught about it: corrections that the next plan of the same service starts from.

The engine's own figures replace the estimate where they contradict it; nothing of what the user asks for is changed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll.core.memory import MemoryBudget
from plimsoll.core.plan.result import MemoryItem, Range

ITEM: Final = "found at start"


@dataclass(frozen=True)
class Correction:
    """Bytes are of one GPU. ``because`` is the sentence that goes into the plan's assumptions."""

    because: str = ""
    missing_bytes: int = 0
    """The pool was smaller than the middle of the estimate by so much."""
    outside_bytes: int = 0
    """Needed beside the pool and the share of memory that the engine may use."""
    most_sequences: int | None = None
    most_step_tokens: int | None = None
    kv_cache_dtype: str | None = None

    @property
    def empty(self) -> bool:
        """Whether it changes nothing."""
        return self == Correction(because=self.because)

    def added_to(self, other: "Correction") -> "Correction":
        """Both, where ``other`` was in force when this one was found: what is missing is missing beyond it."""
        return Correction(
            because=self.because,
            missing_bytes=self.missing_bytes + other.missing_bytes,
            outside_bytes=self.outside_bytes + other.outside_bytes,
            most_sequences=_least(self.most_sequences, other.most_sequences),
            most_step_tokens=_least(self.most_step_tokens, other.most_step_tokens),
            kv_cache_dtype=self.kv_cache_dtype or other.kv_cache_dtype,
        )


NOTHING_LEARNED: Final = Correction()


def corrected(memory: MemoryBudget, correction: Correction) -> MemoryBudget:
    """The estimate with what was missing taken off, as an item of its own."""
    missing = correction.missing_bytes
    if not missing:
        return memory
    left = memory.available_kv_bytes
    item = MemoryItem(ITEM, missing, "exact", correction.because)
    return replace(
        memory,
        items=(*memory.items, item),
        available_kv_bytes=Range(left.low - missing, left.mid - missing, left.high - missing),
    )


def to_dict(correction: Correction) -> dict[str, Any]:
    """For a revision's data."""
    return {key: value for key, value in correction.__dict__.items() if value}


def from_dict(data: Mapping[str, Any]) -> Correction:
    """From a revision's data; what a newer version wrote beside is passed over."""
    return Correction(**{key: value for key, value in data.items() if key in Correction.__dataclass_fields__})


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)
