"""What is said of experiments: the condition Experimenting, and the entries of the ledger. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from plimsoll.api import experiment_reasons, names, reasons
from plimsoll.api.reason import Reason
from plimsoll.core import experiment as core
from plimsoll.core import replay
from plimsoll.core.conditions import Condition
from plimsoll.core.experiment import Experiment, Outcome, Past, Proposal
from plimsoll.core.experiment_record import Record
from plimsoll.core.ledger import Entry
from plimsoll.core.loan import Loan

RETUNE: Final = "Retune"


def condition(
    running: Experiment | None,
    proposal: Proposal | None,
    past: Sequence[Past],
    loan: Loan | None = None,
    *,
    off: bool,
    why_not: str = "",
    no_gate: str = "",
) -> Condition:
    """Experimenting, as it is now. ``off``: the spec wants none; ``no_gate``: nobody would judge the proposal."""
    if running is not None:
        return _say("True", _RUNS[running.phase], _sentence(running) + (f"; {loan}" if loan else ""))
    if loan is not None:
        return _say("False", experiment_reasons.RETURNING, f"{loan}, which is over: they come back{_last(past)}")
    if off:
        return _say("False", reasons.DISABLED, "spec.tuning.mode is Off")
    if proposal and no_gate:
        return _say("False", experiment_reasons.GATE_MISSING, f"{_change(proposal)}: {no_gate}")
    if proposal and why_not:
        return _say("False", experiment_reasons.NOT_NOW, f"{_change(proposal)}: not now, {why_not}")
    if proposal:
        return _say("False", experiment_reasons.PROPOSED, f"{_change(proposal)} is proposed: {proposal.why}")
    return _say("False", reasons.NO_EXPERIMENT, f"no experiment runs{_last(past)}")


def _last(past: Sequence[Past]) -> str:
    return f"; the last one ({past[-1].flag} {past[-1].after}): {past[-1].outcome}, {past[-1].why}" if past else ""


_RUNS: Final[Mapping[str, Reason]] = {
    **dict.fromkeys(core.ON_TRIAL, experiment_reasons.TRYING),
    "Gating": experiment_reasons.GATING,
    "Returning": experiment_reasons.KEEPING,
    "Keeping": experiment_reasons.KEEPING,
    "Watching": experiment_reasons.WATCHING,
    "Reverting": experiment_reasons.REVERTING,
}


def _say(status: str, reason: Reason, message: str) -> Condition:
    return Condition(names.EXPERIMENTING, status, reason.name, message)


def _change(proposal: Proposal) -> str:
    return f"{proposal.flag} {proposal.before} -> {proposal.after}"


def _sentence(running: Experiment) -> str:
    words = {
        "Draining": "the fleet makes room for canary and control",
        "Starting": "canary and control are starting",
        "Gating": "the quality gate compares a candidate with a baseline; neither takes users' requests",
        "Warming": "canary and control warm up",
        "Measuring": "canary and control are compared",
        "Returning": f"kept, and rolled out once the fleet is whole: {running.verdict}",
        "Keeping": f"kept and rolling out: {running.verdict}",
        "Watching": f"kept and watched: {running.verdict}",
        "Reverting": f"taken back: {running.verdict}",
    }
    return f"{_change(running.proposal)}: {words[running.phase]}"


def entries(before: Record, after: Record, grounds: replay.Stepped | replay.Begun | None) -> list[Entry]:
    """What is worth an entry among the decisions: a beginning, a keep, an end; with what it followed from."""
    found = [_entry(past.outcome, past.why, past) for past in after.past[len(before.past) :]]
    now, then = after.experiment, before.experiment
    if now is not None and then is not None and now.gate != then.gate:
        found.append(
            Entry(RETUNE, "GatePassed", now.gate, inputs={"tried": f"{now.proposal.flag} {now.proposal.after}"})
        )
    begins = now is not None and now.on_trial and then is None
    if now is not None and (begins or (now.phase == "Keeping" and (then is None or then.phase != now.phase))):
        tried = now.proposal
        why, word = (tried.why, "Trying") if begins else (now.verdict, "Keeping")
        lent = {"lent": str(after.loan)} if begins and after.loan else {}
        found.append(Entry(RETUNE, word, why, f"{tried.flag} {tried.before}", f"{tried.flag} {tried.after}", lent))
    return [replace(entry, grounds=replay.written(grounds)) for entry in found] if grounds else found


def _entry(outcome: Outcome, why: str, past: Past) -> Entry:
    was, is_now = {"kept": (past.after, past.after), "reverted": (past.after, past.before)}.get(
        outcome, (past.before, past.before)
    )
    return Entry(RETUNE, core.word(outcome), why, f"{past.flag} {was}", f"{past.flag} {is_now}", {"tried": past.after})
