"""Replicas that a fleet lends to an experiment for which no GPUs are spare: how many, and for how long. Pure.

A loan is a ceiling on the fleet's count and nothing else: whoever sets the count goes on doing so, and less is written
while the ceiling holds. It is stored before the count moves and forgotten after it is back, so that a count of
``rest`` always has an explanation (ADR 0050).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

TRIAL_PODS: Final = 2
LEAST_REPLICAS: Final = 2
"""So many must serve beside canary and control: with one alone, a third of the users would meet a bad canary."""
LASTING_SECONDS: Final = 60.0
"""For so long demand asks for more than is left before a loan is called back."""


@dataclass(frozen=True)
class Loan:
    """So many replicas the fleet does without while canary and control are there."""

    replicas: int
    of: int
    """The count that is to be again."""

    @property
    def rest(self) -> int:
        """What is left meanwhile."""
        return self.of - self.replicas

    def whole(self, count: int) -> int:
        """What a workload's count means: what is left stands for the whole fleet, any other is somebody's word."""
        return self.of if count == self.rest else count

    def __str__(self) -> str:
        return f"{self.replicas} of {self.of} replicas {'is' if self.replicas == 1 else 'are'} lent to an experiment"


@dataclass(frozen=True)
class Lent:
    """How a loan stands at one moment."""

    loan: Loan | None = None
    holds: bool = False
    """The fleet is to do without what is lent; else that comes back."""
    trying: bool = False
    """An experiment's pods take a part of the traffic, or have a moment ago."""
    beside: bool = False
    """Canary or control holds GPUs that count: those that end are left out."""
    measuring: bool = False
    """They have done so for longer than any figure looks back."""

    def whole(self, given: int) -> int:
        """The fleet's count, of what its workload was given."""
        return self.loan.whole(given) if self.loan else given

    def runs(self, count: int) -> int:
        """What is to run of a fleet with this count."""
        return min(count, self.loan.rest) if self.loan and self.holds else count

    def must_serve(self, count: int) -> int:
        """Of so many, those without which the service is not ready: what has just come back still loads."""
        return min(count, self.loan.rest) if self.loan else count


NOTHING_LENT: Final = Lent()


@dataclass(frozen=True)
class Lender:
    """A fleet, as one that may be asked for a loan."""

    replicas: int
    """What it is to have, with what is lent."""
    least: int = 1
    """``scaling.minReplicas``."""
    needed: int | None = None
    """Replicas that demand asks for, head-room included, were they alone; None: not known."""
    needed_lately: int | None = None
    """The least that it has asked for within a minute of looks; None: for so long it was not watched."""
    theirs: str = ""
    """Why the count is not ours to lend from; empty: it is."""


def lend(lender: Lender, lacking: int) -> Loan | str:
    """So many replicas of the fleet, or why it keeps them."""
    loan = Loan(lacking, lender.replicas)
    if lender.theirs:
        return lender.theirs
    if loan.rest < LEAST_REPLICAS:
        return f"with {_lent(lacking)} lent {max(loan.rest, 0)} would serve beside them, at least {LEAST_REPLICAS} must"
    if loan.rest < lender.least:
        return f"with {_lent(lacking)} lent {loan.rest} would be left, scaling.minReplicas is {lender.least}"
    if lender.needed is None:
        return "how many replicas demand needs is not known, so none is lent"
    if lender.needed > loan.rest:
        return f"with {_lent(lacking)} lent {loan.rest} would be left, and demand needs {lender.needed}"
    return loan


def why_over(loan: Loan, lender: Lender) -> str:
    """Why a loan may not last: who sets the count, or demand, wants more than is left. Empty: it may.

    A demand that is not known ends nothing: as many pods as before serve, and the judge wants to know more anyway.
    """
    if lender.theirs:
        return f"replicas are lent, and {lender.theirs}"
    if lender.replicas != loan.of:
        return f"{loan}, and it is to have {lender.replicas} now"
    if lender.least > loan.rest:
        return f"{loan}, and scaling.minReplicas is {lender.least}"
    if lender.needed_lately is not None and lender.needed_lately > loan.rest:
        return f"{loan}, and demand needs {lender.needed_lately} by now"
    return ""


def _lent(count: int) -> str:
    return f"{count} replica{'s' if count > 1 else ''}"


@dataclass
class Lately:
    """What demand has asked for a while. One look above what is left may be noise; a minute of them is not."""

    seen: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, now: float, needed: int | None, seconds: float = LASTING_SECONDS) -> int | None:
        """Another look at this moment; the least within so many seconds, once they were watched."""
        if needed is None:
            self.seen.clear()
            return None
        if not self.seen or self.seen[-1][0] < now:
            self.seen.append((now, needed))
        watched = now - self.seen[0][0] >= seconds
        while len(self.seen) > 1 and self.seen[1][0] <= now - seconds:
            self.seen.popleft()
        return min(needs for _, needs in self.seen) if watched else None
