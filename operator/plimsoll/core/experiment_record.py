"""Experiments as ``status.tuning`` has them, and back. What cannot be read is no experiment: its pods are removed."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast, get_args

from plimsoll.core.experiment import Experiment, Outcome, Past, Phase, Proposal
from plimsoll.core.loan import Loan

MOST_PAST: Final = 8
TEXT_LIMIT: Final = 400
_WORDS: Final = ("setting", "flag", "from", "to", "finding", "basis")


@dataclass(frozen=True)
class Record:
    """All that a status keeps of experiments. ``answered``: the annotation's value that was acted on last."""

    experiment: Experiment | None = None
    past: tuple[Past, ...] = ()
    answered: str = ""
    loan: Loan | None = None
    """Replicas that the fleet lends. It outlives its experiment, until they are back."""

    @property
    def ended_seconds(self) -> float:
        """Since when canary and control are not wanted any more; 0 when nothing tells."""
        return self.experiment.since if self.experiment else max((each.time for each in self.past), default=0.0)

    def written(self) -> dict[str, Any]:
        """As ``status.tuning``; empty when there is nothing to keep."""
        found: dict[str, Any] = {}
        if self.experiment:
            found["experiment"] = _experiment(self.experiment)
        if self.past:
            found["past"] = [_past(each) for each in self.past[-MOST_PAST:]]
        if self.answered:
            found["answered"] = self.answered
        if self.loan:
            found["lent"] = {"replicas": self.loan.replicas, "of": self.loan.of}
        return found


def read_record(stored: Mapping[str, Any]) -> Record:
    """What a status tells."""
    past = tuple(found for each in stored.get("past") or () if (found := _read_past(each)) is not None)
    running, loan = _read_experiment(stored.get("experiment") or {}), _read_loan(stored.get("lent") or {})
    return Record(running, past, str(stored.get("answered") or ""), loan)


def _experiment(experiment: Experiment) -> dict[str, str]:
    tried = experiment.proposal
    told = {
        "phase": experiment.phase,
        "setting": tried.setting,
        "flag": tried.flag,
        "from": tried.before,
        "to": tried.after,
        "aim": tried.aim,
        "finding": tried.finding,
        "why": tried.why[:TEXT_LIMIT],
        "basis": tried.basis,
        "base": experiment.base,
        "startedAt": _stamp(experiment.started),
        "since": _stamp(experiment.since),
        "gate": experiment.gate[:TEXT_LIMIT],
        "verdict": experiment.verdict[:TEXT_LIMIT],
        "lateBefore": "yes" if experiment.late_before else "",
    }
    return {key: value for key, value in told.items() if value}


def _read_experiment(stored: Mapping[str, Any]) -> Experiment | None:
    try:
        setting, flag, before, after, finding, basis = (str(stored[key]) for key in _WORDS)
        phase, aim = stored["phase"], stored["aim"]
        if phase not in get_args(Phase) or aim not in ("ttft", "token"):
            return None
        why = str(stored.get("why", ""))
        proposal = Proposal(setting, flag, before, after, aim, finding, why, basis)
        times = _seconds(stored["startedAt"]), _seconds(stored["since"])
    except (KeyError, ValueError):
        return None
    verdict, gate = str(stored.get("verdict", "")), str(stored.get("gate", ""))
    base, late = str(stored.get("base", "")), stored.get("lateBefore") == "yes"
    return Experiment(proposal, base, phase, *times, verdict=verdict, late_before=late, gate=gate)


def _read_loan(stored: Mapping[str, Any]) -> Loan | None:
    try:
        loan = Loan(int(stored["replicas"]), int(stored["of"]))
    except (KeyError, TypeError, ValueError):
        return None
    return loan if 0 < loan.replicas < loan.of else None


def _past(past: Past) -> dict[str, str]:
    return {
        "time": _stamp(past.time),
        "flag": past.flag,
        "from": past.before,
        "to": past.after,
        "outcome": past.outcome,
        "why": past.why[:TEXT_LIMIT],
        "basis": past.basis,
    }


def _read_past(stored: Mapping[str, Any]) -> Past | None:
    try:
        flag, before, after, why, basis = (str(stored[key]) for key in ("flag", "from", "to", "why", "basis"))
        if stored["outcome"] not in get_args(Outcome):
            return None
        return Past(_seconds(stored["time"]), flag, before, after, cast("Outcome", stored["outcome"]), why, basis)
    except (KeyError, ValueError):
        return None


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _seconds(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()
