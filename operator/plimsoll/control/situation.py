"""One service at one moment, as an experiment needs to know it, and what could be tried then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.control.cache import Key
from plimsoll.control.children import Live
from plimsoll.core import experiment as core
from plimsoll.core import tuned
from plimsoll.core.drift import digest
from plimsoll.core.experiment import Proposal
from plimsoll.core.experiment_record import Record, read_record
from plimsoll.core.judge import Aim
from plimsoll.core.loan import Lender, Lent
from plimsoll.core.manifests.revision import Revision
from plimsoll.core.pods import PodState
from plimsoll.core.proposed import Weighed
from plimsoll.core.request import Request

AIMS: Final[Mapping[str, Aim]] = {"DecodeBound": "token"}


@dataclass(frozen=True)
class Situation:
    """One service at one moment, as the reconciler has gathered it."""

    key: Key
    request: Request
    target: Revision | None
    live: Live
    pods: Sequence[PodState]
    """Of the fleet, made from the target's template."""
    replicas: int
    """What is to run now, without what is lent."""
    at_rest: bool
    """The fleet is as it should be, and all of it ready."""
    changes: bool
    """Another template is to run, or nobody knows which."""
    busy: str
    """Why this is no time for an experiment; empty: nothing speaks against it."""
    advice: Mapping[str, Any] | None
    finding: str
    known: bool
    """Metrics are complete."""
    late: bool
    """A latency target is missed."""
    lent: Lent
    lender: Lender
    given: int
    """The count that the workload has."""
    ready: int
    """Replicas of it that serve."""
    there: int
    """Pods of the fleet that hold a place, those that are leaving too."""
    placed: bool
    """As many as are asked for have one, or are known to find none."""
    targets: tuple[float | None, float | None] = (None, None)
    weighed: Weighed | None = None
    """What the advice was made from."""

    @property
    def proposal(self) -> Proposal | None:
        """The recommendation, as something to try."""
        advice = self.advice
        if not advice or not self.finding:
            return None
        aim = AIMS.get(self.finding, "ttft")
        setting, flag, before, after, why = (str(advice[key]) for key in ("setting", "flag", "from", "to", "why"))
        return Proposal(setting, flag, before, after, aim, self.finding, why, self.basis(self.finding))

    def basis(self, finding: str) -> str:
        """The grounds of a change that this finding asks for."""
        return basis_of(tuned.without_flags(self.request), self.target, finding)


def record_of(service: Mapping[str, Any]) -> Record:
    """What the service's status keeps of experiments."""
    return read_record((service.get("status") or {}).get("tuning") or {})


def basis_of(request: Request, revision: Revision | None, finding: str) -> str:
    """On what grounds a change is tried: what was asked for, the engine, what limits the service, and who judges."""
    version = revision.plan["choice"]["engineVersion"] if revision else ""
    gate = request.spec.tuning.quality_gate
    return digest([request.planned, version, finding, *([gate.model_dump()] if gate else [])])


def failed_changes(
    service: Mapping[str, Any], request: Request, revision: Revision | None, finding: str
) -> frozenset[tuple[str, str]]:
    """Flags and values that were tried on the same grounds and not kept."""
    basis = basis_of(tuned.without_flags(request), revision, finding)
    past = record_of(service).past
    return frozenset((p.flag, p.after) for p in past if p.basis == basis and p.outcome in core.FAILURES)
