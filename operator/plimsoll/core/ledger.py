"""What was decided, kept in the service's status: the last ten, with inputs, alternatives and reason. Pure.

Kept there and not in memory, so a restart of the operator forgets nothing. Only what changes something is written
(decision 11): that nothing was done is no entry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from plimsoll.api.status import MAX_DECISIONS

SCALE: Final = "Scale"
MESSAGE_LIMIT: Final = 480
"""Ten decisions must stay a small part of an object."""


@dataclass(frozen=True)
class Entry:
    """One decision. ``before`` and ``after`` are values as people write them."""

    kind: str
    reason: str
    message: str
    before: str | None = None
    after: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    alternatives: tuple[str, ...] = ()
    """What else could have been done, and why it was not."""

    @property
    def changes(self) -> bool:
        """Whether something is another value now: that is worth an event."""
        return self.before is not None and self.before != self.after


def added(kept: Sequence[Mapping[str, Any]], entries: Iterable[Entry], now: str) -> list[dict[str, Any]]:
    """The kept decisions with the new ones after them, oldest first; those beyond the last ten go."""
    fresh = [_written(entry, now) for entry in entries]
    return [*(dict(old) for old in kept), *fresh][-MAX_DECISIONS:]


def last(kept: Iterable[Mapping[str, Any]], kind: str) -> Mapping[str, Any] | None:
    """The newest decision of a kind."""
    found = [entry for entry in kept if isinstance(entry, Mapping) and entry.get("kind") == kind]
    return found[-1] if found else None


def seconds_of(entry: Mapping[str, Any]) -> float | None:
    """When it was decided, seconds since 1970; None when it does not say."""
    try:
        return datetime.fromisoformat(str(entry.get("time"))).timestamp()
    except ValueError:
        return None


def _written(entry: Entry, now: str) -> dict[str, Any]:
    found: dict[str, Any] = {"time": now, "kind": entry.kind, "from": entry.before, "to": entry.after}
    found |= {"reason": entry.reason, "message": entry.message[:MESSAGE_LIMIT]}
    if entry.inputs:
        found["inputs"] = dict(entry.inputs)
    if entry.alternatives:
        found["alternatives"] = [text[:MESSAGE_LIMIT] for text in entry.alternatives]
    return {key: value for key, value in found.items() if value is not None}
