"""Who leads? The rules of one Lease. Pure: what is seen of it and our own monotonic clock in, a step out.

Clocks of two machines may differ by minutes, so no time that another process wrote is ever compared with ours: a
holder counts as alive for as long as the Lease is seen to change. Source of the idea: Kubernetes' own client-go
``leaderelection``; its figures (15 s, 10 s, 2 s) are kept.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

LONGEST_LEASE_SECONDS: Final = 60


@dataclass(frozen=True)
class Timing:
    """How long things take; all follow from the length of the lease."""

    lease_seconds: int = 15
    """A Lease that nobody renewed for so long is free."""

    @property
    def deadline_seconds(self) -> float:
        """A leader that could not renew for so long stops: well before anybody else may start."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        """Pause between two looks at the Lease, and between two renewals."""
        return self.lease_seconds * 2 / 15


@dataclass(frozen=True)
class Term:
    """What a Lease says. The times are text: written for people, compared only for being the same."""

    holder: str
    lease_seconds: int
    acquired: str
    renewed: str
    transitions: int = 0


@dataclass(frozen=True)
class Sight:
    """A Lease as last read. ``since`` (our clock, seconds) is when it was first read with just this content."""

    term: Term | None
    version: str
    since: float


class Step(Enum):
    """What to do with the Lease now."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def sighted(before: Sight | None, term: Term | None, version: str, now: float) -> Sight:
    """What is known after reading the Lease at ``now`` (the time of the answer: a renewal is never younger)."""
    unchanged = before is not None and before.term == term
    return Sight(term, version, before.since if before and unchanged else now)


def expires(sight: Sight, timing: Timing) -> float:
    """When (our clock) the Lease is free unless it is seen to change before; the holder's own promise counts."""
    if sight.term is None or not sight.term.holder:
        return sight.since
    promised = sight.term.lease_seconds or timing.lease_seconds
    return sight.since + min(promised, LONGEST_LEASE_SECONDS)


def decide(sight: Sight, me: str, timing: Timing, now: float) -> Step:
    """The step to take. A Lease that still names us is ours to renew, however late: nobody else has taken it."""
    if sight.term is None:
        return Step.CREATE
    if sight.term.holder == me:
        return Step.RENEW
    return Step.TAKE if now >= expires(sight, timing) else Step.WAIT


def next_term(before: Term | None, me: str, timing: Timing, wall: str) -> Term:
    """What the Lease says once we hold it, or hold it on."""
    if before is None:
        return Term(me, timing.lease_seconds, acquired=wall, renewed=wall)
    if before.holder == me:
        return replace(before, lease_seconds=timing.lease_seconds, renewed=wall)
    return Term(me, timing.lease_seconds, acquired=wall, renewed=wall, transitions=before.transitions + 1)


def released(before: Term, wall: str) -> Term:
    """What the Lease says once its holder has stopped: the next may start at once."""
    return replace(before, holder="", lease_seconds=1, renewed=wall)


@dataclass(frozen=True)
class Tenure:
    """Our hold of the Lease. ``renewed_seconds`` is our clock just before the last renewal that succeeded was sent.

    Whoever waits counts from later (when it read that renewal), so our time is up before theirs begins.
    """

    timing: Timing
    renewed_seconds: float | None = None

    def leads(self, now: float) -> bool:
        """Whether to act as the leader."""
        return self.renewed_seconds is not None and now < self.renewed_seconds + self.timing.deadline_seconds

    def write_seconds(self, now: float) -> float:
        """How long a write that starts now may take; 0: do not start one.

        A retry's length is kept back, so that no request of ours is under way when the Lease may change hands.
        """
        if self.renewed_seconds is None or not self.leads(now):
            return 0.0
        return self.renewed_seconds + self.timing.lease_seconds - self.timing.retry_seconds - now
