"""ControllerRevisions: what runs, kept where a lost status cannot lose it (decision 9).

A running plan is sticky. The revision holds the choice and the rendered pod template; a newer planner, catalogue or
renderer changes neither until the spec changes or the user accepts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.drift import digest
from plimsoll.core.manifests.identity import Owner

KEEP: Final = 5


@dataclass(frozen=True)
class Revision:
    """One kept plan. ``fingerprint`` identifies the request it answers."""

    name: str
    number: int
    fingerprint: str
    plan: Mapping[str, Any]
    template: Mapping[str, Any]
    load_seconds: int
    learned: Mapping[str, Any] = field(default_factory=dict)
    """What an engine taught that this plan was made with (``core/replan.py``)."""

    def manifest(self, owner: Owner) -> dict[str, Any]:
        """The ControllerRevision; its data is immutable, its number says which one is current."""
        return {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": owner.metadata(self.name),
            "revision": self.number,
            "data": {
                "fingerprint": self.fingerprint,
                "plan": self.plan,
                "template": self.template,
                "loadSeconds": self.load_seconds,
                **({"learned": self.learned} if self.learned else {}),
            },
        }


def new_revision(
    owner: Owner, fingerprint: str, plan: Mapping[str, Any], template: Mapping[str, Any], load_seconds: int, number: int
) -> Revision:
    """A revision named after its content, so that returning to an earlier plan finds the earlier revision."""
    name = f"{owner.name}-{digest([fingerprint, plan['choice'], template])[:10]}"
    return Revision(name, number, fingerprint, plan, template, load_seconds)


def read_revision(obj: Mapping[str, Any]) -> Revision | None:
    """The revision kept in a ControllerRevision, or None when somebody else wrote it."""
    data = obj.get("data")
    if not isinstance(data, Mapping) or not {"fingerprint", "plan", "template", "loadSeconds"} <= data.keys():
        return None
    number = int(obj.get("revision", 0))
    fingerprint, load_seconds, learned = str(data["fingerprint"]), int(data["loadSeconds"]), data.get("learned") or {}
    return Revision(obj["metadata"]["name"], number, fingerprint, data["plan"], data["template"], load_seconds, learned)


def current(revisions: Iterable[Revision]) -> Revision | None:
    """The revision that runs: the highest number."""
    return max(revisions, key=lambda r: (r.number, r.name), default=None)


def restarted(revisions: Iterable[Revision]) -> str:
    """The value of the restart annotation that the running plan's pods were made for; empty when there was none."""
    running = current(revisions)
    annotations = running.template.get("metadata", {}).get("annotations") if running else None
    return str((annotations or {}).get(names.ANNOTATION_RESTART, ""))


def outdated(revisions: Iterable[Revision], running: str = "", keep: int = KEEP) -> tuple[str, ...]:
    """Names of the revisions beyond the last ``keep``; the one whose template still ``running`` pods have stays."""
    newest_first = sorted(revisions, key=lambda r: (r.number, r.name), reverse=True)
    return tuple(r.name for r in newest_first[keep:] if r.name != running)
