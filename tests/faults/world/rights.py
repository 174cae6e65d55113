"""Whether the chart lets the operator do what it asks for: where it does not, a user's cluster would refuse it."""

from functools import cache
from typing import Final

from e2e import verbs
from tests.faults.world.connection import Call
from tests.faults.world.kinds import UnfaithfulError

_VERBS: Final = {"apply": "patch", "replace": "update", "log": "get"}


def allowed(call: Call) -> None:
    """UnfaithfulError when the operator's role does not allow the call. What is served may be asked by anybody."""
    door = "log" if call.verb == "log" else call.subresource if call.subresource == "status" else ""
    resource = "/".join(part for part in (call.kind.group, call.kind.plural, door) if part)
    asked = _VERBS.get(call.verb, call.verb)
    if call.name and (resource, asked) not in _granted():
        raise UnfaithfulError(f"{verbs.RULES}: {asked} on {resource} is not granted, and the operator asks for it")


@cache
def _granted() -> frozenset[tuple[str, str]]:
    return frozenset((use.resource, use.verb) for use in verbs.granted())
