"""When to put back what somebody else keeps changing, and what to say about it. Pure.

A field of ours that somebody edits is put back at once. When the same fields of an object need it again and again,
somebody means it: another applier, a webhook, a script. Two who both insist would write for ever (one field report
counts 41 resets in 14 minutes), so each further repair waits longer, up to the time of a full sweep. A change of our
own intent, and an edit of another field, are never held up. Times are monotonic seconds.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.api import write_reasons
from plimsoll.core.conditions import Contest, Problem
from plimsoll.core.drift import Path, written
from plimsoll.core.managers import Setter

BURST: Final = 5
"""Repairs of one object that are only a second apart: a person trying things out is no contest."""
SHORTEST_WAIT_SECONDS: Final = 1.0
FIRST_WAIT_SECONDS: Final = 5.0
LONGEST_WAIT_SECONDS: Final = 600.0
FORGET_SECONDS: Final = 900.0
"""Longer than the longest wait: a slow opponent is still the same one."""
QUIET_SECONDS: Final = 300.0
"""So long after the last difference a contest is over."""

WHOLE: Final[Path] = ()
"""The path of an object that is missing altogether."""


@dataclass(frozen=True)
class History:
    """What we wrote into one object: the hash of the intent, when last, how often only to put something back."""

    intent: str
    written_seconds: float
    repairs: int = 0
    paths: frozenset[Path] = frozenset()
    """All that was ever put back."""
    differed_seconds: float = 0.0
    """When somebody's change was last seen."""


def wrote(history: History | None, intent: str, changed: Collection[Path], now: float) -> History:
    """After a write: of a new intent, or of the same one because ``changed`` was not as it should be."""
    if history is None or history.intent != intent:
        return History(intent, now)
    if now - history.written_seconds > FORGET_SECONDS:
        return History(intent, now, 1, frozenset(changed), now)
    return History(intent, now, history.repairs + 1, history.paths | frozenset(changed), now)


def overruled(history: History, changed: Collection[Path], now: float) -> History:
    """The answer to our own write already said something else: whoever does that does it every time."""
    return replace(
        history,
        repairs=max(history.repairs, BURST),
        paths=history.paths | frozenset(changed),
        differed_seconds=now,
    )


def differs(history: History, now: float) -> History:
    """Somebody's change is there and stays for now."""
    return replace(history, differed_seconds=now)


def won(history: History) -> History:
    """Nobody claims any longer what was contested."""
    return replace(history, repairs=0)


def wait_seconds(history: History | None, intent: str, changed: Collection[Path], now: float) -> float:
    """0 when the object may be written now, else the seconds until then."""
    if history is None or history.intent != intent:
        return 0.0
    since = now - history.written_seconds
    known = history.paths.issuperset(changed)
    pause = _pause(history.repairs) if known else SHORTEST_WAIT_SECONDS
    return 0.0 if since > FORGET_SECONDS else max(0.0, pause - since)


def contested(history: History | None, now: float) -> bool:
    """Whether somebody insists on something else, now or a moment ago."""
    return history is not None and history.repairs >= BURST and now - history.differed_seconds <= QUIET_SECONDS


def contest(what: str, path: Path, others: int, by: Setter) -> Contest:
    """What to say. ``what``: the object, as people write it; ``others``: further fields that differ."""
    where = written(path) + (f" and {others} more" if others else "")
    if by.cause == "manager":
        who = ", ".join(by.names)
        text = (
            f"{what}: {who} keeps changing {where}, and it is put back less and less often; "
            f"take the field out of what {who} applies"
        )
        runs = what.startswith(("Deployment ", "LeaderWorkerSet ")) and path[:1] == ("spec",)
        return Contest(Problem(write_reasons.FIELD_CONTESTED.name, text), fleet_differs=runs)
    if by.cause == "nobody":
        gone = f"{where} of {what}" if where else what
        text = f"somebody keeps removing {gone}, and it is put back less and less often; find out who, and stop it"
        return Contest(Problem(write_reasons.KEEPS_BEING_REMOVED.name, text))
    text = (
        f"{what}: an admission webhook or policy gives {where} another value whenever it is written; "
        "that value stays unless the object is exempted there"
    )
    return Contest(Problem(write_reasons.CHANGED_BY_ADMISSION.name, text))


def _pause(repairs: int) -> float:
    if repairs < BURST:
        return SHORTEST_WAIT_SECONDS
    return min(FIRST_WAIT_SECONDS * float(1 << min(repairs - BURST, 16)), LONGEST_WAIT_SECONDS)
