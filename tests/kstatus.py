"""What Flux, Helm 4 and kpt make of an object: the rules of kstatus, as an oracle for tests.

Written after the description and behaviour of ``sigs.k8s.io/cli-utils/pkg/kstatus/status`` (``generic.go`` and the
check of the Ready condition in ``core.go``): deletion first, then generations, then the first of ``Reconciling`` and
``Stalled`` that is True, then ``Ready``; an object that says nothing of all that counts as finished.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["InProgress", "Current", "Failed", "Terminating"]


@dataclass(frozen=True)
class Result:
    """A verdict, and the sentence that a waiting tool prints with it."""

    status: Verdict
    message: str = ""


def compute(obj: Mapping[str, Any]) -> Result:
    """The verdict on one live object."""
    meta, status = obj.get("metadata", {}), obj.get("status") or {}
    if meta.get("deletionTimestamp"):
        return Result("Terminating", "Resource scheduled for deletion")
    generation, observed = meta.get("generation"), status.get("observedGeneration")
    if None not in (generation, observed) and generation != observed:
        return Result("InProgress", f"generation is {generation}, but latest observed generation is {observed}")
    return _by_conditions(status.get("conditions") or ())


def _by_conditions(conditions: Iterable[Mapping[str, Any]]) -> Result:
    verdicts: dict[str, Verdict] = {"Reconciling": "InProgress", "Stalled": "Failed"}
    for condition in conditions:
        if condition["type"] in verdicts and condition["status"] == "True":
            return Result(verdicts[condition["type"]], condition.get("message", ""))
    for condition in conditions:
        if condition["type"] == "Ready":
            done = condition["status"] == "True"
            return Result("Current" if done else "InProgress", condition.get("message", ""))
    return Result("Current", "Resource is current")
