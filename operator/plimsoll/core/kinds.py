"""Kinds that a cluster may have or not: whether each can be used now, and if not, why. Values only.

Kinds go by the name that manifests carry (``LeaderWorkerSet``); who finds out is ``control/optional.py``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

LEADER_WORKER_SET: Final = "LeaderWorkerSet"
POD_MONITOR: Final = "PodMonitor"
INFERENCE_POOL: Final = "InferencePool"

Access = Literal["usable", "absent", "forbidden", "unreadable", "off"]


@dataclass(frozen=True)
class Availability:
    """Whether a kind can be used. ``why``: what is in the way and what to do, empty when nothing is."""

    access: Access
    why: str = ""


UNKNOWN: Final = Availability("unreadable", "it has not been found out yet whether it is served")


@dataclass(frozen=True)
class Kinds:
    """The optional kinds as found in one namespace."""

    found: Mapping[str, Availability] = field(default_factory=dict)

    def usable(self, kind: str) -> bool:
        """Whether objects of the kind may be made and are watched."""
        return self.of(kind).access == "usable"

    def of(self, kind: str) -> Availability:
        """What is known of the kind."""
        return self.found.get(kind, UNKNOWN)


NOTHING_OPTIONAL: Final = Kinds()
"""Nothing is known to be usable."""
