"""Another autoscaler that sets the replicas of a service's workload: read from HorizontalPodAutoscalers. Pure.

KEDA makes a HorizontalPodAutoscaler for every ScaledObject and owns it, so nothing of KEDA's own kinds has to be read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api import scaling_reasons
from plimsoll.core.conditions import Contest, Problem


@dataclass(frozen=True)
class Autoscaler:
    """Who scales, by kind and name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Scaled:
    """What is scaled."""

    namespace: str
    kind: str
    name: str


def scaled_by(found: Iterable[Mapping[str, Any]]) -> dict[Scaled, Autoscaler]:
    """The autoscaler of each target; of several the first by name."""
    pairs = sorted((_pair(hpa) for hpa in found), key=lambda pair: str(pair[1]), reverse=True)
    return dict(pairs)


def contest(other: Autoscaler, kind: str) -> Contest:
    """What to say while it scales a workload of this kind."""
    text = (
        f"{other} targets the {kind} of this service: its replicas are left to it, and hardware.maxGPUs does not "
        "bound them; let it target the VLLMService instead (scaling.mode External), or delete it"
    )
    return Contest(Problem(scaling_reasons.OTHER_AUTOSCALER.name, text))


def _pair(hpa: Mapping[str, Any]) -> tuple[Scaled, Autoscaler]:
    meta, target = hpa["metadata"], hpa["spec"]["scaleTargetRef"]
    owner = next((o for o in meta.get("ownerReferences") or () if o.get("kind") == "ScaledObject"), None)
    who = Autoscaler("ScaledObject", owner["name"]) if owner else Autoscaler("HorizontalPodAutoscaler", meta["name"])
    return Scaled(meta["namespace"], target["kind"], target["name"]), who
