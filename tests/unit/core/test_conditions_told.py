"""The sentences of the conditions: which fact speaks, what is counted, and what is left out."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.conditions import Contest, Facts, Fleet, Problem
from plimsoll.core.obstacle import Obstacle
from tests.unit.core.situations import HELD, LASTING, LOADING, PASSING, REFUSED, SERVING, by_type

PARKED = Fleet(wanted=0, floor=0, rolled_out=True)
SURGE = Obstacle("NoSpareGPU", "the new template waits")
CONTEST = Contest(Problem("FieldContested", "argocd keeps changing it"), fleet_differs=True)


def facts(fleet: Fleet | None = SERVING, **more: Any) -> Facts:
    return Facts(planned="p", fleet=fleet, **more)


@pytest.mark.parametrize(
    ("seen", "kind", "told"),
    [
        pytest.param(facts(), "Ready", "True FleetReady: 2 of 2 replicas ready", id="serving"),
        pytest.param(facts(PARKED), "Ready", "True Parked: no replicas are wanted", id="parked"),
        pytest.param(
            facts(replace(SERVING, wanted=1, floor=1, replicas=1, ready=1, updated_ready=1)),
            "Ready",
            "True FleetReady: 1 of 1 replicas ready",
            id="one",
        ),
        pytest.param(facts(None), "Ready", "False Progressing: creating the fleet", id="nothing yet"),
        pytest.param(facts(None, waiting="it leaves"), "Ready", "False Progressing: it leaves", id="one leaves"),
        pytest.param(facts(waiting="it leaves"), "Ready", "False Progressing: it leaves", id="a part of it leaves"),
        pytest.param(
            facts(refusal=REFUSED, fleet=replace(SERVING, ready=1)),
            "Ready",
            f"False KVCacheTooSmall: {REFUSED.message} The previous fleet keeps serving (1 ready).",
            id="refused, one serves",
        ),
        pytest.param(
            facts(refusal=REFUSED, fleet=LOADING), "Ready", f"False KVCacheTooSmall: {REFUSED.message}", id="none is"
        ),
        pytest.param(facts(None, refusal=REFUSED), "Ready", f"False KVCacheTooSmall: {REFUSED.message}", id="no fleet"),
        pytest.param(
            facts(contest=CONTEST), "Ready", "False FieldContested: argocd keeps changing it", id="others change pods"
        ),
        pytest.param(
            facts(contest=replace(CONTEST, fleet_differs=False)),
            "Ready",
            "True FleetReady: 2 of 2 replicas ready",
            id="others change what is not of pods",
        ),
        pytest.param(facts(None, held=HELD), "Ready", f"False OnHold: {HELD}", id="held before there is a fleet"),
        pytest.param(facts(held=HELD), "Ready", "True FleetReady: 2 of 2 replicas ready", id="held, as asked for"),
        pytest.param(
            facts(held=HELD, withheld=True),
            "Ready",
            f"False OnHold: {HELD}; a change waits for that, the previous fleet keeps serving (2 ready)",
            id="held, and something else is asked for",
        ),
        pytest.param(
            facts(replace(SERVING, rolled_out=False, updated_ready=1, pods={"loading": 1, "ready": 1, "pending": 0})),
            "Ready",
            "False Progressing: 1 of 2 replicas ready with the current plan; 1 loading",
            id="what is ready is not counted twice",
        ),
        pytest.param(
            facts(replace(SERVING, rolled_out=False, updated_ready=1), rollout="one by one"),
            "Ready",
            "False Progressing: 1 of 2 replicas ready with the current plan; one by one",
            id="how it rolls out",
        ),
        pytest.param(
            facts(replace(SERVING, rolled_out=False, updated_ready=1), obstacle=PASSING),
            "Ready",
            f"False GPUFault: 1 of 2 replicas ready with the current plan. {PASSING.message}",
            id="what is in the way",
        ),
        pytest.param(
            facts(Fleet(wanted=1, floor=1, replicas=1, rolled_out=True), obstacle=PASSING),
            "Ready",
            f"False GPUFault: 0 of 1 replicas ready with the current plan. {PASSING.message}",
            id="what is in the way of a single one",
        ),
        pytest.param(facts(obstacle=PASSING), "Ready", "True FleetReady: 2 of 2 replicas ready", id="out of the way"),
        pytest.param(
            facts(waits=SURGE),
            "Ready",
            "False NoSpareGPU: 2 of 2 replicas ready with the current plan. the new template waits",
            id="a template waits, all serve",
        ),
        pytest.param(
            facts(PARKED, obstacle=PASSING), "Ready", "True Parked: no replicas are wanted", id="nothing is in the way"
        ),
        pytest.param(
            facts(replace(SERVING, updated_ready=1)),
            "Ready",
            "False Progressing: 1 of 2 replicas ready with the current plan",
            id="below the floor",
        ),
        pytest.param(facts(), "Reconciling", "False UpToDate: the fleet runs the current plan", id="done"),
        pytest.param(facts(None), "Reconciling", "True Applying: creating the fleet", id="creating"),
        pytest.param(facts(waiting="it leaves"), "Reconciling", "True Applying: it leaves", id="waiting"),
        pytest.param(facts(held=HELD), "Reconciling", f"False OnHold: {HELD}", id="held"),
        pytest.param(
            facts(refusal=REFUSED), "Reconciling", "False NotPlanned: waiting for a change: see Stalled", id="refused"
        ),
        pytest.param(
            facts(replace(SERVING, rolled_out=False)),
            "Reconciling",
            "True RollingOut: 2 of 2 replicas ready with the current plan",
            id="the controller has not looked yet",
        ),
        pytest.param(
            facts(LOADING),
            "Reconciling",
            "True WaitingForPods: 0 of 2 replicas ready with the current plan; 2 loading",
            id="pods load",
        ),
        pytest.param(
            facts(LOADING, obstacle=PASSING),
            "Reconciling",
            f"True GPUFault: 0 of 2 replicas ready with the current plan; 2 loading. {PASSING.message}",
            id="what passes",
        ),
        pytest.param(
            facts(LOADING, obstacle=LASTING),
            "Reconciling",
            f"False BadFlag: 0 of 2 replicas ready with the current plan; 2 loading. {LASTING.message}",
            id="what lasts",
        ),
        pytest.param(facts(), "Stalled", "False NotStalled: nothing needs a human", id="well"),
        pytest.param(facts(LOADING, obstacle=LASTING), "Stalled", f"True BadFlag: {LASTING.message}", id="stalled"),
        pytest.param(
            facts(LOADING, obstacle=PASSING), "Stalled", "False NotStalled: nothing needs a human", id="it passes"
        ),
        pytest.param(
            facts(LOADING, obstacle=LASTING, waiting="it leaves"),
            "Stalled",
            "False NotStalled: nothing needs a human",
            id="stalled is who waits for nobody",
        ),
        pytest.param(
            facts(LOADING, obstacle=LASTING, held=HELD),
            "Stalled",
            "False NotStalled: nothing needs a human",
            id="held: nobody tries",
        ),
        pytest.param(
            facts(lacking=Problem("Forbidden", "no budgets")), "Stalled", "True Forbidden: no budgets", id="a right"
        ),
        pytest.param(
            facts(LOADING, lacking=Problem("Forbidden", "no budgets")),
            "Stalled",
            "False NotStalled: nothing needs a human",
            id="a right lacks, and it goes on",
        ),
        pytest.param(facts(None), "Available", "False NoReplicaReady: there is no fleet yet", id="no fleet"),
        pytest.param(
            facts(replace(LOADING, ready=1)),
            "Available",
            "True MinimumReplicasAvailable: at least one replica serves",
            id="one serves",
        ),
        pytest.param(facts(PARKED), "Available", "False Parked: no replicas are wanted", id="none is wanted"),
        pytest.param(
            facts(LOADING),
            "Available",
            "False Loading: 0 of 2 replicas ready with the current plan; 2 loading",
            id="they load",
        ),
        pytest.param(
            facts(replace(LOADING, pods={"pending": 2})),
            "Available",
            "False Pending: 0 of 2 replicas ready with the current plan; 2 pending",
            id="they have no node yet",
        ),
        pytest.param(
            facts(replace(LOADING, pods={"failing": 2})),
            "Available",
            "False NoReplicaReady: 0 of 2 replicas ready with the current plan; 2 failing",
            id="neither",
        ),
        pytest.param(
            facts(LOADING, obstacle=LASTING),
            "Available",
            f"False BadFlag: 0 of 2 replicas ready with the current plan; 2 loading. {LASTING.message}",
            id="why they do not",
        ),
        pytest.param(
            facts(ignored="x"), "PlanUpdateAvailable", "False UpToDate: planning again gives the plan that runs; x",
            id="up to date",
        ),
        pytest.param(
            facts(update_unknown="no config", ignored="x"), "PlanUpdateAvailable", "Unknown CannotPlan: no config; x",
            id="not known",
        ),
        pytest.param(
            facts(update=Problem("NewerPlan", "more"), ignored="x"), "PlanUpdateAvailable", "True NewerPlan: more; x",
            id="newer",
        ),
        pytest.param(
            facts(), "Integrated", "Unknown NoObservation: nothing of the service was written yet", id="not tried"
        ),
        pytest.param(
            facts(integrations=()), "Integrated", "True InUse: what is wanted of optional kinds is in place", id="all"
        ),
        pytest.param(
            facts(integrations=(Problem("A", "one"), Problem("B", "two"))), "Integrated", "False A: one; two",
            id="two in the way",
        ),
    ],
)  # fmt: skip
def test_what_is_told(seen: Facts, kind: str, told: str) -> None:
    found = by_type(seen)[kind]
    assert f"{found.status} {found.reason}: {found.message}" == told
