"""Reasons of Experimenting: what is being tried out, what would be, and why it is not."""

from typing import Final

from plimsoll.api.names import EXPERIMENTING
from plimsoll.api.reason import Reason, table

_TRIES: Final = (EXPERIMENTING,)
_REVERT: Final = "`plimsoll revert NAME` takes it back; `plimsoll explain NAME` says how far it is."

PROPOSED: Final = Reason(
    "Proposed",
    _TRIES,
    "A change of one flag is recommended and waits for a person.",
    "`plimsoll approve NAME` tries it on a canary, `plimsoll reject NAME` drops it; or put status.recommendation.patch "
    "into Git.",
)
NOT_NOW: Final = Reason(
    "NotNow",
    _TRIES,
    "A change may be tried, but not at this moment; the message says why.",
    "Wait, or mend what the message names: GPUs for two more replicas or a fleet that can lend them, metrics, a fleet "
    "at rest, two replicas.",
)
GATE_MISSING: Final = Reason(
    "GateMissing",
    _TRIES,
    "A change of answers is recommended and nothing may judge it: no quality gate is named, or it may not run.",
    "Name one in spec.tuning.qualityGate ({}: the built-in comparison), or compare answers yourself and put "
    "status.recommendation.patch into Git. What the message quotes of the pod policy is the owner's to change.",
)
GATING: Final = Reason(
    "Gating",
    _TRIES,
    "A quality gate compares a candidate with a baseline; neither takes users' requests until it has passed.",
    "Nothing to do; `kubectl logs -l plimsoll.dev/service=NAME,plimsoll.dev/track=gate` shows what it does, "
    "`plimsoll reject NAME` ends it.",
)
TRYING: Final = Reason(
    "Trying",
    _TRIES,
    "A canary with one flag changed runs beside a control; both take requests.",
    "Nothing to do; `plimsoll reject NAME` ends it and changes nothing.",
)
RETURNING: Final = Reason(
    "Returning",
    _TRIES,
    "An experiment is over, and the replicas that the fleet lent to it come back as soon as its pods are gone.",
    "Nothing to do. If it stays, look for a pod of the tracks canary or control that does not end.",
)
KEEPING: Final = Reason(
    "Keeping", _TRIES, "The change was better and is being rolled out to the fleet.", f"Nothing to do. {_REVERT}"
)
WATCHING: Final = Reason(
    "Watching", _TRIES, "The change is rolled out and still watched; it goes if the fleet gets worse.", _REVERT
)
REVERTING: Final = Reason(
    "Reverting", _TRIES, "A change is being taken back: the pods roll to the flags from before.", "Nothing to do."
)

REASONS: Final = table(globals())
