"""What was decided, kept in the service's status: the last ten, with inputs, alternatives and reason. Pure.

Kept there and not in memory, so a restart of the operator forgets nothing. Only what changes something is written
(decision 11): that nothing was done is no entry. The log has all entries, with what they can be decided from again
(``core/replay.py``); plans and corrections stand in the status and the ControllerRevisions anyway, so only there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from plimsoll.api.status import MAX_DECISIONS

SCALE: Final = "Scale"
PLAN: Final = "Plan"
CORRECTION: Final = "Correction"
EVENT: Final = "ledger"
"""The field ``event`` of log lines that hold an entry."""
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
    grounds: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All that it was decided from (``core/replay.py``): for the log, too much for a status."""

    @property
    def changes(self) -> bool:
        """Whether something is another value now: that is worth an event."""
        return self.before is not None and self.before != self.after

    @property
    def sentence(self) -> str:
        """The entry in one line."""
        step = f" {self.before or 'none'} -> {self.after}" if self.after is not None else ""
        return f"{self.kind}{step}: {self.message}"


def added(kept: Sequence[Mapping[str, Any]], entries: Iterable[Entry], now: str) -> list[dict[str, Any]]:
    """The kept decisions with the new ones after them, oldest first; those beyond the last ten go.

    The newest of each kind stays whatever came after it: who set the count last is read from it (``core/sizing.py``).
    """
    found = [*(dict(old) for old in kept), *(_written(entry, now) for entry in entries)]
    newest = {entry.get("kind"): at for at, entry in enumerate(found)}
    passing = [at for at, entry in enumerate(found) if newest[entry.get("kind")] != at]
    gone = set(passing[: max(0, len(found) - MAX_DECISIONS)])
    return [entry for at, entry in enumerate(found) if at not in gone]


def logged(entry: Entry, now: str) -> dict[str, Any]:
    """The entry as a log line has it: as in the status, and its grounds."""
    return {**_written(entry, now), **({"grounds": dict(entry.grounds)} if entry.grounds else {})}


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
