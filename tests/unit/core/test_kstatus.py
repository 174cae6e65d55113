"""Flux, Helm and kpt wait for what kstatus says: every status of ours gives the verdict that a user expects."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.schema import resource_schema
from plimsoll.core.conditions import Contest, Facts, Fleet, Problem
from plimsoll.core.obstacle import Obstacle
from tests.kstatus import compute
from tests.unit.core.situations import FACTS, FLEETS, HELD, LASTING, LOADING, PASSING, REFUSED, SERVING, by_type, live

FOUGHT = Problem("FieldContested", "argocd-controller keeps changing it")


@pytest.mark.parametrize(
    ("facts", "kstatus", "ready", "available"),
    [
        pytest.param(Facts(planned="p"), "InProgress", "Progressing", "NoReplicaReady", id="just applied"),
        pytest.param(Facts(planned="p", fleet=LOADING), "InProgress", "Progressing", "Loading", id="pods load"),
        pytest.param(
            Facts(planned="p", fleet=SERVING), "Current", "FleetReady", "MinimumReplicasAvailable", id="serving"
        ),
        pytest.param(
            Facts(planned="p", waiting="an earlier Deployment is still being deleted"),
            "InProgress",
            "Progressing",
            "NoReplicaReady",
            id="made again while the old one leaves",
        ),
        pytest.param(Facts(refusal=REFUSED), "Failed", "KVCacheTooSmall", "NoReplicaReady", id="refused"),
        pytest.param(
            Facts(refusal=REFUSED, fleet=SERVING),
            "Failed",
            "KVCacheTooSmall",
            "MinimumReplicasAvailable",
            id="refused, the previous fleet serves on",
        ),
        pytest.param(
            Facts(planned="p", blocked=Problem("NameConflict", "not ours")),
            "Failed",
            "NameConflict",
            "NoReplicaReady",
            id="a foreign object has our name",
        ),
        pytest.param(
            Facts(planned="p", fleet=dataclasses.replace(SERVING, ready=3, wanted=4, replicas=4)),
            "Current",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="an autoscaler adds a replica: still Ready",
        ),
        pytest.param(
            Facts(planned="p", fleet=dataclasses.replace(SERVING, rolled_out=False)),
            "InProgress",
            "Progressing",
            "MinimumReplicasAvailable",
            id="a new template rolls out",
        ),
        pytest.param(
            Facts(planned="p", fleet=LOADING, obstacle=PASSING),
            "InProgress",
            "GPUFault",
            "GPUFault",
            id="the engine dies at start of something that may pass",
        ),
        pytest.param(
            Facts(planned="p", fleet=LOADING, obstacle=LASTING),
            "Failed",
            "BadFlag",
            "BadFlag",
            id="the engine dies at start of something that stays",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, obstacle=LASTING),
            "Current",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="enough serve, whatever one pod does",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, waits=Obstacle("NoSpareGPU", "the old pod serves")),
            "InProgress",
            "NoSpareGPU",
            "MinimumReplicasAvailable",
            id="a new template waits for a GPU",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, waits=Obstacle("NoSpareGPU", "maxGPUs", lasting=True)),
            "Failed",
            "NoSpareGPU",
            "MinimumReplicasAvailable",
            id="a new template waits for a human",
        ),
        pytest.param(
            Facts(planned="p", fleet=Fleet(wanted=0, floor=0, rolled_out=True)),
            "Current",
            "Parked",
            "Parked",
            id="scaled to 0",
        ),
        pytest.param(
            Facts(planned="p", held=HELD, fleet=SERVING),
            "Current",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="on hold, the fleet serves",
        ),
        pytest.param(
            Facts(planned="p", held=HELD, withheld=True, fleet=SERVING),
            "InProgress",
            "OnHold",
            "MinimumReplicasAvailable",
            id="on hold, and the spec changed: what serves is not what is asked",
        ),
        pytest.param(
            Facts(planned="p", held=HELD), "InProgress", "OnHold", "NoReplicaReady", id="on hold before the first pod"
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, lacking=Problem("Forbidden", "may not patch poddisruptionbudgets")),
            "Failed",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="a right is missing, the fleet serves",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, contest=Contest(FOUGHT, fleet_differs=True)),
            "Failed",
            "FieldContested",
            "MinimumReplicasAvailable",
            id="somebody insists on another image",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, contest=Contest(FOUGHT)),
            "Current",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="somebody insists on another label",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, update=Problem("NewerPlan", "a newer plan")),
            "Current",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="a newer plan is on offer",
        ),
    ],
)
def test_situations(facts: Facts, kstatus: str, ready: str, available: str) -> None:
    found = by_type(facts)
    assert (compute(live(facts)).status, found["Ready"].reason, found["Available"].reason) == (
        kstatus,
        ready,
        available,
    )


@given(FACTS)
def test_a_verdict_has_a_sentence_and_there_is_only_one(facts: Facts) -> None:
    found = by_type(facts)
    assert not (found["Reconciling"].status == found["Stalled"].status == "True")
    result = compute(live(facts))
    assert result.message
    assert (result.status == "Failed") == (found["Stalled"].status == "True")
    if result.status == "Current":
        assert found["Ready"].status == "True"


@given(FLEETS)
def test_autoscaling_neither_drops_ready_nor_sets_reconciling(fleet: Fleet) -> None:
    enough = dataclasses.replace(fleet, rolled_out=True, updated_ready=max(fleet.updated_ready, fleet.floor))
    for wanted in (max(fleet.wanted, 1), fleet.wanted + 3):
        assert compute(live(Facts(planned="p", fleet=dataclasses.replace(enough, wanted=wanted)))).status == "Current"


@pytest.mark.parametrize(
    ("obj", "verdict"),
    [
        pytest.param({"status": resource_schema()["properties"]["status"]["default"]}, "InProgress", id="just made"),
        pytest.param({"status": {"observedGeneration": 2}}, "InProgress", id="an older generation was looked at"),
        pytest.param({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}, "Terminating", id="being deleted"),
    ],
)
def test_before_and_after_its_life(obj: dict[str, Any], verdict: str) -> None:
    """To kstatus an object without any status is finished; ours never is one, thanks to the CRD's default."""
    service = live(Facts(planned="p", fleet=SERVING))
    merged = {
        "metadata": service["metadata"] | obj.get("metadata", {}),
        "status": obj.get("status", service["status"]),
    }
    assert compute(merged).status == verdict
