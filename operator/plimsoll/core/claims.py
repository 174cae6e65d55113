"""Which install acts on a service, when several could. Pure: class and claim of the service, ours, the rival's life.

Installs of one class and scope share a Lease. Others may overlap (cluster-wide beside a list of namespaces, or two
namespaces of operators): they meet at the service, whose ``status.servedBy`` names the Lease of the install that acts.
First come, first served; the second yields until the first is gone.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from plimsoll.core.election import Term

GONE_SECONDS: Final = 30.0
"""An install whose Lease nobody held for so long is gone: longer than a hand-over or a restart takes."""
UNANSWERED_SECONDS: Final = 60.0
"""Who answers no change of a spec for so long does not act on it, whatever became of it."""


class Standing(Enum):
    """What we are to a service."""

    SERVE = "serve"
    CLAIM = "claim"
    """Serve it, after having said so: the one who did is gone."""
    YIELD = "yield"
    RELEASE = "release"
    """It has another class now: let go, so that the next may begin."""
    IGNORE = "ignore"


def lease_name(operator_class: str, namespaces: Sequence[str]) -> str:
    """The Lease of a class and scope: ``plimsoll``, ``-CLASS`` for a class, a hash for a list of namespaces."""
    parts = ["plimsoll", *([operator_class] if operator_class else [])]
    if namespaces:
        listed = ",".join(sorted(set(namespaces)))
        parts.append(hashlib.sha256(listed.encode()).hexdigest()[:8])
    return "-".join(parts)


def class_of(service: Mapping[str, Any]) -> str:
    """The operator class that a service asks for; empty: the one without a name."""
    return str((service.get("spec") or {}).get("className") or "")


def claim_of(service: Mapping[str, Any]) -> str:
    """The Lease (namespace/name) of the install that says it acts on the service, or empty."""
    return str((service.get("status") or {}).get("servedBy") or "")


def standing(service: Mapping[str, Any], operator_class: str, me: str, rival_gone: bool) -> Standing:
    """What to do with a service; ``rival_gone`` counts only when another install claims it."""
    claim = claim_of(service)
    if class_of(service) != operator_class:
        return Standing.RELEASE if claim == me else Standing.IGNORE
    if claim in ("", me):
        return Standing.SERVE
    return Standing.CLAIM if rival_gone else Standing.YIELD


@dataclass(frozen=True)
class Life:
    """What is known of another install's Lease; ``alive_seconds`` (our clock) is when it last showed life."""

    term: Term | None
    alive_seconds: float

    def gone(self, now: float) -> bool:
        """Whether it has been silent for too long."""
        return now - self.alive_seconds >= GONE_SECONDS


def looked_at(before: Life | None, term: Term | None, now: float) -> Life:
    """What is known after another look. The first look proves nothing, so it counts as life."""
    if before is None:
        return Life(term, now)
    renewed = term is not None and term.holder != "" and term != before.term
    return Life(term, now if renewed else before.alive_seconds)


@dataclass(frozen=True)
class Unanswered:
    """A generation of a service that its install has not reported on, and since when (our clock) we know."""

    generation: int
    since_seconds: float

    def given_up(self, now: float) -> bool:
        """Whether nobody can be acting on the service."""
        return now - self.since_seconds >= UNANSWERED_SECONDS


def unanswered(before: Unanswered | None, service: Mapping[str, Any], now: float) -> Unanswered | None:
    """The change that waits for an answer, or None: every install reports each generation within seconds."""
    generation = int(service["metadata"].get("generation", 0))
    observed = int((service.get("status") or {}).get("observedGeneration", 0))
    if observed >= generation:
        return None
    # A newer change starts no new wait: the one before it was not answered either.
    return before or Unanswered(generation, now)
