"""What is told of a fleet's size: ``status.scaling``, and the figures as metrics."""

from typing import Any, Final

from plimsoll import metrics
from plimsoll.control.sized_fleet import Fleet
from plimsoll.core import outlook
from plimsoll.core.outlook import Scene
from plimsoll.core.scale import Decision
from plimsoll.core.signals import FleetView
from plimsoll.core.sizing import Start
from plimsoll.core.stable_text import stable

WHY_LIMIT: Final = 400


def told(fleet: Fleet, start: Start, count: int, decision: Decision, scene: Scene) -> dict[str, Any]:
    """``status.scaling``: words that stay the same while nothing changes."""
    capacity, bounds, tuning = scene.capacity, scene.limits, scene.tuning
    found: dict[str, Any] = {"setBy": _set_by(fleet), "why": _why(fleet, start, decision)}
    found["recommendedReplicas"] = decision.replicas
    if fleet.auto:
        found["growsWhen"] = outlook.grows_when(capacity, count, bounds, tuning)
        found["shrinksWhen"] = outlook.shrinks_when(capacity, count, bounds, tuning)
    return found


def show(fleet: Fleet, count: int, decision: Decision, view: FleetView) -> None:
    """The figures as metrics; of a demand that is not known there is no series."""
    labels = (fleet.key.namespace, fleet.key.name)
    metrics.REPLICAS_WANTED.labels(*labels).set(count)
    metrics.REPLICAS_READY.labels(*labels).set(sum(pod.phase == "ready" and pod.serves for pod in fleet.pods))
    metrics.REPLICAS_RECOMMENDED.labels(*labels).set(decision.replicas)
    if decision.demand is not None and view.complete:
        metrics.DEMAND_BLOCKS.labels(*labels).set(decision.demand.blocks)
        metrics.DEMAND_REPLICAS.labels(*labels).set(decision.demand.replicas)
    else:
        metrics.forget_demand(*labels)


def _set_by(fleet: Fleet) -> str:
    if fleet.other is not None:
        return str(fleet.other)
    return "Plimsoll" if fleet.auto else "spec.replicas"


def _why(fleet: Fleet, start: Start, decision: Decision) -> str:
    if fleet.other is not None:
        return "another autoscaler sets it"
    if not fleet.auto:
        floor = "; the count from before stays for a while" if start.until_seconds is not None else ""
        return f"spec.replicas is {fleet.request.spec.replicas}{floor}"
    lent = f"{fleet.lent.loan}; " if fleet.lent.loan and fleet.lent.holds else ""
    return stable(f"{lent}{decision.why}", WHY_LIMIT)
