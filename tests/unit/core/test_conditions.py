"""What people and GitOps tools read, for the situations a service can be in."""

import dataclasses

import pytest

from plimsoll.core.conditions import Condition, Facts, Fleet, Problem, decide, merge
from plimsoll.core.obstacle import Obstacle

SERVING = Fleet(wanted=2, floor=2, replicas=2, ready=2, updated_ready=2, rolled_out=True)
LOADING = Fleet(wanted=2, floor=2, replicas=2, rolled_out=True, pods={"loading": 2})
REFUSED = Problem("KVCacheTooSmall", "131072 tokens need 9 GiB, 6 GiB is left")


def _by_type(facts: Facts) -> dict[str, Condition]:
    return {c.type: c for c in decide(facts)}


def _kstatus(facts: Facts) -> str:
    """Flux's and Argo's reading: Stalled → Failed, Reconciling → InProgress, else by Ready."""
    found = _by_type(facts)
    if found["Stalled"].status == "True":
        return "Failed"
    if found["Reconciling"].status == "True":
        return "InProgress"
    return "Current" if found["Ready"].status == "True" else "InProgress"


@pytest.mark.parametrize(
    ("facts", "kstatus", "ready", "available"),
    [
        pytest.param(Facts(planned="p"), "InProgress", "Progressing", "NoReplicaReady", id="just applied"),
        pytest.param(Facts(planned="p", fleet=LOADING), "InProgress", "Progressing", "Loading", id="pods load"),
        pytest.param(
            Facts(planned="p", fleet=SERVING), "Current", "FleetReady", "MinimumReplicasAvailable", id="serving"
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
            Facts(planned="p", fleet=LOADING, obstacle=Obstacle("GPUFault", "exit code 1")),
            "InProgress",
            "GPUFault",
            "GPUFault",
            id="the engine dies at start of something that may pass",
        ),
        pytest.param(
            Facts(planned="p", fleet=LOADING, obstacle=Obstacle("BadFlag", "exit code 2", lasting=True)),
            "Failed",
            "BadFlag",
            "BadFlag",
            id="the engine dies at start of something that stays",
        ),
        pytest.param(
            Facts(planned="p", fleet=SERVING, obstacle=Obstacle("GPUFault", "one of many")),
            "Current",
            "FleetReady",
            "MinimumReplicasAvailable",
            id="enough serve whatever one pod does",
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
    ],
)
def test_situations(facts: Facts, kstatus: str, ready: str, available: str) -> None:
    found = _by_type(facts)
    assert (_kstatus(facts), found["Ready"].reason, found["Available"].reason) == (kstatus, ready, available)


def test_every_condition_is_there_from_the_first_visit_and_has_a_reason() -> None:
    found = decide(Facts())
    assert len(found) == 11
    assert all(c.reason and c.status in ("True", "False", "Unknown") for c in found)
    assert len({c.type for c in found}) == len(found)


def test_what_was_not_observed_is_unknown() -> None:
    found = _by_type(Facts(planned="p", fleet=SERVING))
    assert {found[t].status for t in ("MetricsAvailable", "SLOMet", "KVPredictionAccurate")} == {"Unknown"}


def test_the_transition_time_moves_on_a_flip_only() -> None:
    first = merge([], [Condition("Ready", "False", "Progressing", "0 of 2")], 1, "t1")
    second = merge(first, [Condition("Ready", "False", "Failing", "1 of 2")], 2, "t2")
    third = merge(second, [Condition("Ready", "True", "FleetReady", "2 of 2")], 2, "t3")
    assert [c["lastTransitionTime"] for c in (*first, *second, *third)] == ["t1", "t1", "t3"]
    assert second[0]["observedGeneration"] == 2


def test_a_refusal_says_that_the_previous_fleet_serves() -> None:
    assert "previous fleet keeps serving (2 ready)" in _by_type(Facts(refusal=REFUSED, fleet=SERVING))["Ready"].message
