"""What a rule is, and what it finds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.workloads.server import Server


class Severity(StrEnum):
    """How bad it is; the words are those of SARIF."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """The worse the larger."""
        return (Severity.NOTE, Severity.WARNING, Severity.ERROR).index(self)


class Group(StrEnum):
    """What a fault leads to."""

    START = "will not start"
    LOAD = "breaks under load or during a rollout"
    WASTE = "wastes GPUs or money"
    INSECURE = "insecure"
    UPGRADE = "fragile on the next engine upgrade"


class Hit(NamedTuple):
    """One find: what will happen, and the field it is about; the rest where it is not the rule's."""

    message: str
    path: str
    severity: Severity | None = None
    fix: str | None = None
    group: Group | None = None


Check = Callable[[Server, Evidence], Iterator[Hit]]


@dataclass(frozen=True)
class Rule:
    """A kind of fault: ``id`` never changes, so that baselines and dashboards may use it."""

    id: str
    group: Group
    severity: Severity
    title: str
    why: str
    fix: str
    check: Check


@dataclass(frozen=True)
class Finding:
    """A fault of one server."""

    rule: Rule
    severity: Severity
    group: Group
    message: str
    fix: str
    path: str


RULES: Final[dict[str, Rule]] = {}
"""Every rule by its id, in the order in which they are written."""


def rule(name: str, group: Group, severity: Severity, *, title: str, why: str, fix: str) -> Callable[[Check], Check]:
    """Register a check as a rule."""

    def registered(check: Check) -> Check:
        assert name not in RULES, name  # noqa: S101 - ids are ours
        RULES[name] = Rule(name, group, severity, title, why, fix, check)
        return check

    return registered
