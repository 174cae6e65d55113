"""Who sets a fleet's count, and from where it goes on when that changes hands. Pure.

The count that runs is the truth: neither a restart of the operator nor another mode nor a new plan sets a fleet back to
what was planned once. Who set it last stands in the service's decisions (``core/ledger.py``), so a hand-over is told
apart from a hand-edit also when the operator was away.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.core import ledger
from plimsoll.core.conditions import Contest, Problem
from plimsoll.core.ledger import SCALE, Entry
from plimsoll.core.loan import NOTHING_LENT, Lender, Lent

PLANNED: Final = "Planned"
MORE_DEMAND: Final = "MoreDemand"
LESS_DEMAND: Final = "LessDemand"
LIMITS: Final = "Limits"
TAKEN_OVER: Final = "TakenOver"
WOKEN: Final = "Woken"
IDLE: Final = "Idle"
HANDED_OVER: Final = "HandedOver"
YIELDED: Final = "Yielded"
OURS: Final = frozenset({PLANNED, MORE_DEMAND, LESS_DEMAND, LIMITS, TAKEN_OVER, WOKEN, IDLE})
"""Reasons of decisions after which the count is ours."""


@dataclass(frozen=True)
class Known:
    """What is known of the count before anything is decided. ``None``: not known, or there is no fleet."""

    planned: int
    live: int | None = None
    """The workload's ``spec.replicas``."""
    ours: bool = True
    """Nobody else wrote it last."""
    remembered: int | None = None
    """What this process wanted last."""
    recorded: Mapping[str, Any] | None = None
    """The last decision about the count, from the status."""

    @property
    def reason(self) -> str:
        """Why the count was last what it was; empty when nothing is recorded."""
        return str(self.recorded.get("reason", "")) if self.recorded else ""

    @property
    def recorded_count(self) -> int | None:
        """The count that was decided last."""
        text = str(self.recorded.get("to", "")) if self.recorded else ""
        return int(text) if text.isdecimal() else None


@dataclass(frozen=True)
class Start:
    """The count to go on from. ``until_seconds``: until then it is a floor, by the wall clock."""

    replicas: int
    entry: Entry | None = None
    until_seconds: float | None = None


@dataclass(frozen=True)
class Size:
    """How many replicas are wanted, and what to say about it."""

    replicas: int
    """What is lent left out."""
    floor: int
    """Replicas that must be ready for the service to count as Ready; what load alone asks for is not among them."""
    ours: bool = True
    """Whether the count is written at all: not where another autoscaler sets it."""
    scaling: Mapping[str, Any] | None = None
    """``status.scaling``."""
    limited: Problem | None = None
    contest: Contest | None = None
    refused: Problem | None = None
    """What is asked for and not done; the fleet goes on without it."""
    entries: tuple[Entry, ...] = ()
    """Decisions that are not in the status yet."""
    again_seconds: float | None = None
    lender: Lender | None = None
    """The fleet as one that may be asked for a loan; None: there is no fleet to speak of."""
    lent: Lent = NOTHING_LENT


def start_auto(known: Known) -> Start:
    """Where autoscaling goes on from: the count that runs, or, for a fleet that does not exist yet, the planned one."""
    if known.remembered is not None:
        return Start(known.remembered)
    last = known.recorded_count if known.reason in OURS else None
    if known.live is None:
        return Start(last) if last is not None else Start(known.planned, _planned(known.planned))
    if last is not None:
        return Start(known.live if known.ours else last)
    # Without a trace of who set it, it may be the default of a fleet that was just made.
    found = known.live if known.ours or known.recorded else max(known.live, known.planned)
    text = f"scaling.mode Auto takes over {known.live} running replicas"
    return Start(found, Entry(SCALE, TAKEN_OVER, text, str(known.live), str(found)))


def start_asked(known: Known, asked: int, mode: str, now_seconds: float, window_seconds: float) -> Start:
    """What runs in External and Fixed: ``asked``, and for one window after another owner not less than that one had.

    A 0 that is written in the mode Fixed parks the service at once: nobody means that by leaving a field out.
    """
    last, at = known.recorded_count, ledger.seconds_of(known.recorded) if known.recorded else None
    parked = mode == "Fixed" and asked == 0
    if known.reason == HANDED_OVER and last is not None and at is not None:
        until = at + window_seconds
        if now_seconds >= until or parked:
            return Start(asked)
        return Start(max(asked, last), until_seconds=until)
    if not known.reason:
        return Start(asked)
    had = next((n for n in (known.remembered, known.live, last) if n is not None), asked)
    text = f"scaling.mode is {mode}: spec.replicas ({asked}) counts, and {had} stay for {window_seconds:.0f} s at least"
    entry = Entry(SCALE, HANDED_OVER, text, str(had), str(had))
    if parked:
        return Start(asked, entry)
    return Start(max(asked, had), entry, now_seconds + window_seconds)


def start_yielded(known: Known, whose: str) -> Start:
    """Somebody else's autoscaler sets the workload's count: it stays as it is."""
    live = known.live if known.live is not None else known.planned
    if known.reason == YIELDED:
        return Start(live)
    return Start(live, Entry(SCALE, YIELDED, f"{whose} sets the replicas: left to it", str(live), str(live)))


def _planned(replicas: int) -> Entry:
    return Entry(SCALE, PLANNED, "the planned count, until demand is known", after=str(replicas))
