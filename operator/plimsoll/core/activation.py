"""From no replica to one and back: requests that a gateway sees while nobody serves. Pure.

Nothing here turns silence into a zero: a service that the query does not name is one of which nothing is known, and it
neither wakes nor falls asleep.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.core.scale import Decision
from plimsoll.core.signals import FleetView, Signal

IDLE_SECONDS: Final = 600.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_LENGTH: Final = 63
_KEYS: Final = frozenset({"query", "namespaceLabel", "serviceLabel"})


class ActivationError(ValueError):
    """Queries that cannot be used; the message names the entry, its value and what is allowed."""


@dataclass(frozen=True)
class Template:
    """One query of the operator's owner: a series a service, whose value is how many requests there are for it."""

    query: str
    namespace_label: str = "namespace"
    service_label: str = "service"


def read_templates(value: Any) -> dict[str, Template]:  # noqa: ANN401 - whatever the file holds
    """Templates by name. Raises ActivationError."""
    if not isinstance(value or {}, Mapping):
        raise ActivationError("the file must map names to queries")
    return {_name(name): _template(str(name), entry) for name, entry in (value or {}).items()}


def _name(name: object) -> str:
    if not isinstance(name, str) or len(name) > _NAME_LENGTH or not _NAME.fullmatch(name):
        raise ActivationError(f"{name!r} is not a name (a-z, 0-9 and -, at most 63)")
    return name


def _template(name: str, entry: Any) -> Template:  # noqa: ANN401 - whatever the file holds
    found = {"query": entry} if isinstance(entry, str) else entry
    if not isinstance(found, Mapping):
        raise ActivationError(f"{name}: {entry!r} is neither a query nor a mapping with one")
    if unknown := sorted(map(str, set(found) - _KEYS)):
        raise ActivationError(f"{name}.{unknown[0]}: unknown; allowed are {', '.join(sorted(_KEYS))}")
    words = {key: text for key, text in found.items() if isinstance(text, str) and text.strip()}
    if wrong := sorted({"query", *found} - words.keys()):
        raise ActivationError(f"{name}.{wrong[0]}: must be a text that is not empty")
    return Template(words["query"], words.get("namespaceLabel", "namespace"), words.get("serviceLabel", "service"))


def joined(series: Iterable[tuple[Mapping[str, str], float]], template: Template) -> dict[tuple[str, str], float]:
    """Requests by (namespace, service): of several series of one the largest, and nothing of what is no number."""
    found: dict[tuple[str, str], float] = {}
    for labels, value in series:
        namespace, service = labels.get(template.namespace_label), labels.get(template.service_label)
        if namespace and service and value >= 0:  # NaN is not
            found[namespace, service] = max(value, found.get((namespace, service), 0.0))
    return found


def quiet(view: FleetView, requests: float | None) -> bool:
    """Certainly nobody asks: neither at the gateway nor in an engine."""
    idle = view.total(Signal.RUNNING).at_most(0) and view.total(Signal.WAITING).at_most(0)
    return requests == 0 and view.complete and idle


@dataclass
class Idle:
    """Since when it has certainly been quiet; what was not seen for longer than ``gap_seconds`` was not quiet."""

    since_seconds: float | None = None
    seen_seconds: float = -math.inf

    def note(self, now: float, gap_seconds: float, *, is_quiet: bool) -> None:
        """What a look shows."""
        if not is_quiet:
            self.since_seconds = None
        elif self.since_seconds is None or now - self.seen_seconds > gap_seconds:
            self.since_seconds = now
        self.seen_seconds = now

    def lasts(self, now: float, seconds: float) -> bool:
        """Whether it has been quiet for so long."""
        return self.since_seconds is not None and now - self.since_seconds >= seconds


def awake(requests: float | None) -> Decision:
    """A service without replicas, at one moment."""
    if requests:
        return Decision(1, f"{requests:g} requests wait at the gateway", wanted=1)
    return Decision.hold(0, "asleep until a request waits at the gateway", wanted=0)


def asleep(idle: Idle, now: float, seconds: float) -> Decision | None:
    """The end of the last replica, when it has been idle for so long."""
    return Decision(0, f"no request for {seconds:.0f} s", wanted=0) if idle.lasts(now, seconds) else None
