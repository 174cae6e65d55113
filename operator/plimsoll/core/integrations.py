"""What stands beside a fleet where the cluster has the kinds for it: PodMonitor, InferencePool. Pure.

None of it keeps a fleet from running: what is in the way is said in a condition of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import reasons
from plimsoll.core.conditions import Problem
from plimsoll.core.kinds import INFERENCE_POOL, POD_MONITOR, Availability, Kinds
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.inferencepool import inference_pool
from plimsoll.core.manifests.podmonitor import pod_monitor
from plimsoll.core.request import Request


@dataclass(frozen=True)
class Integrations:
    """Manifests to apply, kinds of which the service wants none any more, and what is wanted and cannot be."""

    manifests: tuple[dict[str, Any], ...] = ()
    unwanted: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = field(default=())


def integrations(request: Request, owner: Owner, kinds: Kinds, monitor_labels: Mapping[str, str]) -> Integrations:
    """For one service. ``monitor_labels``: what the operator's owner wants on every PodMonitor."""
    monitors, pools = kinds.of(POD_MONITOR), kinds.of(INFERENCE_POOL)
    picker = request.spec.routing.endpoint_picker if request.spec.routing else None
    manifests, unwanted, problems = [], [], []
    if monitors.access == "usable":
        manifests.append(pod_monitor(owner, monitor_labels))
    elif monitors.access in ("forbidden", "unreadable"):
        problems.append(_problem(monitors))  # a cluster without the kind, or an owner who wants none, is no problem
    if picker and pools.access == "usable":
        manifests.append(inference_pool(owner, picker))
    elif picker:
        problems.append(_problem(pools, "spec.routing.endpointPicker: "))
    elif pools.access == "usable":
        unwanted.append(INFERENCE_POOL)
    return Integrations(tuple(manifests), tuple(unwanted), tuple(problems))


def _problem(found: Availability, field_path: str = "") -> Problem:
    missing = found.access in ("absent", "off")
    reason = reasons.KIND_MISSING if missing else reasons.KIND_UNUSABLE
    return Problem(reason.name, f"{field_path}{found.why}")
