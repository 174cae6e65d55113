"""What the API server's refusal means, and what to do about it. Pure: its sentence in, a problem out.

Refusals share status codes (403 is a missing right, a used-up quota, a policy or a namespace in deletion), so the
sentence decides; the patterns are those of Kubernetes 1.30 to 1.36.
"""

import re
from collections.abc import Callable
from typing import Final

from plimsoll.api import reasons, rollout_reasons, write_reasons
from plimsoll.api.reasons import Reason
from plimsoll.core.conditions import Problem
from plimsoll.core.stable_text import stable

_Match = re.Match[str]

MESSAGE_LIMIT: Final = 1000

_RIGHT: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_CREATE: Final = re.compile(r'(?P<resource>[\w.]+) "[^"]*" is forbidden:\s*$')
"""All that Kubernetes 1.30 says when an apply would create what the user may not create."""
_QUOTA: Final = re.compile(
    r"exceeded quota: (?P<quota>\S+), (?P<wish>requested: .*?), used: .*?, (?P<limit>limited: .*)", re.DOTALL
)
_QUOTA_FIELDS: Final = re.compile(r"failed quota: (?P<quota>\S+): (?P<wish>must specify .*)")
_WEBHOOK: Final = re.compile(r'admission webhook "(?P<name>[^"]*)" denied the request(?:: (?P<why>.*))?', re.DOTALL)
_POLICY: Final = re.compile(
    r"ValidatingAdmissionPolicy '(?P<name>[^']*)' with binding '(?P<binding>[^']*)' denied request: (?P<why>.*)",
    re.DOTALL,
)
_IMMUTABLE: Final = re.compile(r"(?P<field>[\w.\[\]]+): (?:Invalid value|Forbidden).*immutable", re.DOTALL)
_UNTYPED: Final = re.compile(
    r"failed to create typed patch object \([^)]*\): "
    r"\.spec\.(?:leaderWorkerTemplate\.leaderT|t)emplate(?P<field>\S*): (?P<why>.*)",
    re.DOTALL,
)
"""What no pod template of Kubernetes may hold; only the user's parts of it are not checked before."""
_UNREACHABLE: Final = re.compile(r'failed calling webhook "(?P<name>[^"]*)"')


def leaving(message: str) -> bool:
    """Whether it is the namespace's deletion that is in the way."""
    return "being terminated" in message


def webhook_away(message: str) -> str | None:
    """The admission webhook that does not answer, if that is what stopped the request: it passes by itself."""
    found = _UNREACHABLE.search(message)
    return found["name"] if found else None


def refusal(what: str, message: str, *, forbidden: bool) -> Problem:
    """The problem behind a refused request about ``what`` (the object, as people write it).

    The sentence is the same for the same cause: what others use up of a quota, ids and times are left out.
    """
    for pattern, reason, say in _KINDS:
        if found := pattern.search(message):
            return Problem(reason.name, stable(say(what, found), MESSAGE_LIMIT))
    reason = reasons.FORBIDDEN if forbidden else reasons.REFUSED
    return Problem(reason.name, stable(f"the API server refuses {what}: {message}", MESSAGE_LIMIT))


def _right(what: str, found: _Match) -> str:
    resource = f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    where = f" in namespace {found['namespace']}" if found["namespace"] else ""
    return (
        f"{what}: the operator ({found['user']}) may not {found['verb']} {resource}{where}; "
        f"add the verb {found['verb']} for {found['resource']} to its role"
    )


def _create(what: str, found: _Match) -> str:
    plural = found["resource"].partition(".")[0]
    return f"{what}: the operator may not create {found['resource']}; add the verb create for {plural} to its role"


def _quota(what: str, found: _Match) -> str:
    return f"{what}: ResourceQuota {found['quota']} is used up ({found['wish']}, {found['limit']}); raise or free it"


def _quota_fields(what: str, found: _Match) -> str:
    return f"{what}: ResourceQuota {found['quota']} {found['wish']}; set it, or let a LimitRange set it"


def _webhook(what: str, found: _Match) -> str:
    return f"{what}: admission webhook {found['name']} refuses it: {found['why'] or 'without a reason'}"


def _policy(what: str, found: _Match) -> str:
    return f"{what}: ValidatingAdmissionPolicy {found['name']} (binding {found['binding']}) refuses it: {found['why']}"


def _immutable(what: str, found: _Match) -> str:
    return f"{what}: {found['field']} cannot be changed on an existing object; delete the object, and it is made anew"


def _untyped(what: str, found: _Match) -> str:
    return f"{what}: spec.podTemplate{found['field']} is no part of a pod of Kubernetes: {found['why']}; correct it"


_KINDS: Final[tuple[tuple[re.Pattern[str], Reason, Callable[[str, _Match], str]], ...]] = (
    (_WEBHOOK, write_reasons.DENIED_BY_POLICY, _webhook),
    (_POLICY, write_reasons.DENIED_BY_POLICY, _policy),
    (_RIGHT, reasons.FORBIDDEN, _right),
    (_CREATE, reasons.FORBIDDEN, _create),
    (_QUOTA, rollout_reasons.QUOTA_EXCEEDED, _quota),
    (_QUOTA_FIELDS, rollout_reasons.QUOTA_EXCEEDED, _quota_fields),
    (_IMMUTABLE, write_reasons.IMMUTABLE_FIELD, _immutable),
    (_UNTYPED, reasons.REFUSED, _untyped),
)
