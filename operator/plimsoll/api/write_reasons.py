"""Reasons of what becomes of our writes: refused by a policy, impossible on what exists, undone by others."""

from typing import Final

from plimsoll.api.names import CONTESTED, INTEGRATED, READY, STALLED
from plimsoll.api.reason import Reason, table

DENIED_BY_POLICY: Final = Reason(
    "DeniedByPolicy",
    (STALLED, INTEGRATED),
    "An admission webhook or a ValidatingAdmissionPolicy refuses an object of the service.",
    "Correct the spec as the policy's own words in the message say, or exempt the service there.",
)
IMMUTABLE_FIELD: Final = Reason(
    "ImmutableField",
    (STALLED, INTEGRATED),
    "An object of the service exists with a value that cannot be changed any more.",
    "Delete the object that the message names; it is made anew. Deleting a Deployment ends its pods.",
)
FIELD_CONTESTED: Final = Reason(
    "FieldContested",
    (CONTESTED, STALLED, READY),
    "Another field manager sets a field that the operator sets, again and again. Stalled as well when pods "
    "therefore do not run what was planned.",
    "Take the field out of what that manager applies (Argo CD, a script, an autoscaler); children belong in no Git.",
)
CHANGED_BY_ADMISSION: Final = Reason(
    "ChangedByAdmission",
    (CONTESTED,),
    "A mutating webhook or policy changes what the operator writes; its value stays.",
    "Nothing to do if the policy means it; else exempt the object, or ask for another value in the VLLMService.",
)
KEEPS_BEING_REMOVED: Final = Reason(
    "KeepsBeingRemoved",
    (CONTESTED,),
    "Somebody removes an object or a field of the operator's again and again; it is put back ever more seldom.",
    "Find out who: the audit log, or a GitOps tool that prunes by label.",
)
NOT_CONTESTED: Final = Reason("NotContested", (CONTESTED,), "What the operator sets stays as it is.", "Nothing to do.")

REASONS: Final = table(globals())
"""Every reason of this file by its name."""
