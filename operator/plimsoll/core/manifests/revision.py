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
OLD_DEADLINE_MARGIN_SECONDS: Final = 120


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
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """Flags that experiments found, with which this plan was made (``core/tuned.py``)."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """What counted instead of the declared load when this plan was made (``core/learned_load.py``)."""
    worker_template: Mapping[str, Any] | None = None
    """Pod template of a replica's further nodes, where it spans several."""

    @property
    def nodes(self) -> int:
        """Nodes that one replica spans."""
        return int((self.plan.get("choice") or {}).get("nodesPerReplica", 1))

    @property
    def deadline_seconds(self) -> int:
        """When a roll-out of it counts as too slow; revisions of the first release kept no such figure."""
        startup = self.plan.get("startup") or {}
        return int(startup.get("deadlineSeconds", 2 * self.load_seconds + OLD_DEADLINE_MARGIN_SECONDS))

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
                **({"tuned": self.tuned} if self.tuned else {}),
                **({"load": self.load} if self.load else {}),
                **({"workerTemplate": self.worker_template} if self.worker_template else {}),
            },
        }


def new_revision(
    owner: Owner,
    fingerprint: str,
    plan: Mapping[str, Any],
    template: Mapping[str, Any],
    load_seconds: int,
    number: int,
    worker_template: Mapping[str, Any] | None = None,
) -> Revision:
    """A revision named after its content, so that returning to an earlier plan finds the earlier revision."""
    content = [fingerprint, plan["choice"], template, *([worker_template] if worker_template else [])]
    name = f"{owner.name}-{digest(content)[:10]}"
    return Revision(name, number, fingerprint, plan, template, load_seconds, worker_template=worker_template)


def read_revision(obj: Mapping[str, Any]) -> Revision | None:
    """The revision kept in a ControllerRevision, or None when somebody else wrote it."""
    data = obj.get("data")
    if not isinstance(data, Mapping) or not {"fingerprint", "plan", "template", "loadSeconds"} <= data.keys():
        return None
    return Revision(
        name=obj["metadata"]["name"],
        number=int(obj.get("revision", 0)),
        fingerprint=str(data["fingerprint"]),
        plan=data["plan"],
        template=data["template"],
        load_seconds=int(data["loadSeconds"]),
        learned=data.get("learned") or {},
        tuned=data.get("tuned") or {},
        load=data.get("load") or {},
        worker_template=data.get("workerTemplate"),
    )


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
