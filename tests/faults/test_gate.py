"""A quality gate disturbed on purpose: no request meets fp8 before it has passed, and nothing of it stays behind."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from plimsoll.adapters.ports import DEPLOYMENTS, JOBS, NETWORK_SERVICES, PODS, SERVICES
from plimsoll.api import names
from tests.faults.rig.lifecycle import FULL, NAME, full_pool, gated_world
from tests.faults.world.control_loop import ready as is_ready
from tests.faults.world.world import USER, World, service

AUTO: Final = {"mode": "Auto", "allow": ["KVCacheDtype"]}
GATE: Final = {**AUTO, "qualityGate": {}}


@pytest.fixture
def world() -> Any:
    with gated_world() as found:
        process = found.start_operator()
        found.until(lambda: process.leads)
        yield found
        assert not found.unexpected.found


def _let(world: World, **tuning: Any) -> None:
    world.apply(service(NAME, **FULL, tuning=tuning))


def _past(world: World) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = world.must(SERVICES, NAME)["status"].get("tuning", {}).get("past", [])
    return found


def _said(world: World) -> Mapping[str, Any]:
    return world.condition(NAME, names.EXPERIMENTING)


def _reaches(world: World, reason: str, within_seconds: float = 300.0) -> None:
    world.until(lambda: _said(world).get("reason") == reason, within_seconds, reason)


def _nothing_left(world: World) -> bool:
    alone = all(len([*world.api.store.all(kind)]) == 1 for kind in (DEPLOYMENTS, NETWORK_SERVICES))
    return alone and not [*world.api.store.all(JOBS)]


def _delete_job(world: World) -> None:
    world.until(lambda: [*world.api.store.all(JOBS)], what="a Job")
    world.delete(JOBS, next(world.api.store.all(JOBS))["metadata"]["name"])


def _gate_without_end(world: World) -> None:
    world.ward.gate = lambda _: (1e6, 0, "")


def _never_so(world: World) -> None:
    assert world is not None


@pytest.mark.parametrize(
    ("before", "meanwhile", "outcome", "why"),
    [
        pytest.param(_gate_without_end, _never_so, "rolled back", "timeout", id="it does not end"),
        pytest.param(
            _never_so,
            lambda world: _let(world, **AUTO),
            "abandoned",
            "another one now",
            id="taken out of the spec",
        ),
        pytest.param(
            _never_so,
            lambda world: _let(world, **{**GATE, "qualityGate": {"threshold": 1}}),
            "abandoned",
            "another one now",
            id="another gate",
        ),
        pytest.param(_never_so, lambda world: _let(world, mode="Off"), "abandoned", "Off", id="turned off"),
    ],
)
def test_what_ends_it_before_it_has_passed(
    world: World, before: Callable[[World], None], meanwhile: Callable[[World], None], outcome: str, why: str
) -> None:
    full_pool(world)
    before(world)
    _let(world, **{**GATE, "qualityGate": {"timeout": "2m"}})
    _reaches(world, "Gating")
    meanwhile(world)
    world.until(lambda: _past(world) and _nothing_left(world), 400)
    assert _past(world)[-1]["outcome"] == outcome
    assert why in _past(world)[-1]["why"]
    assert "fp8" not in str(world.must(DEPLOYMENTS, NAME)["spec"])


def test_a_job_that_somebody_deletes_is_made_again(world: World) -> None:
    full_pool(world)
    _let(world, **GATE)
    _reaches(world, "Gating")
    _delete_job(world)
    _reaches(world, "Trying")
    assert world.jobs.passed
    assert not _past(world)


def test_the_word_of_somebody_elses_job_counts_for_nothing(world: World) -> None:
    """A Job of the right name and labels, done before ours was made."""
    full_pool(world)
    _gate_without_end(world)
    _let(world, **GATE)
    _reaches(world, "Gating")
    world.until(lambda: [*world.api.store.all(JOBS)])
    mine = next(world.api.store.all(JOBS))
    kept = {key: mine["metadata"][key] for key in ("name", "namespace", "labels")}
    world.delete(JOBS, kept["name"])
    theirs = world.api.create(JOBS, {"metadata": kept, "spec": mine["spec"]}, USER)
    done = {"startTime": world.agenda.stamp(), "conditions": [{"type": "Complete", "status": "True"}]}
    world.api.replace(JOBS, {**theirs, "status": done}, USER, "status")
    world.run(60)
    assert not [pod for pod in world.pods(NAME) if names.GATE_PASSED in str(pod["status"])]
    world.until(lambda: _past(world))
    assert "exists and is not ours" in _past(world)[-1]["why"]
    assert world.find(JOBS, kept["name"]) is not None


def test_a_candidate_that_somebody_deletes_comes_again_before_anything_is_compared_under_load(world: World) -> None:
    full_pool(world)
    _let(world, **GATE)
    _reaches(world, "Gating")
    on_trial = [pod for pod in world.pods(NAME) if names.GATE_PASSED in str(pod["spec"])]
    world.delete(PODS, on_trial[0]["metadata"]["name"])
    _reaches(world, "Trying")
    world.run(5)
    admitted = [pod for pod in world.pods(NAME) if names.GATE_PASSED in str(pod["status"])]
    assert [is_ready(pod) for pod in admitted] == [True, True]
    assert on_trial[0]["metadata"]["name"] not in [pod["metadata"]["name"] for pod in admitted]


def test_what_failed_is_not_tried_again_until_somebody_changes_the_gate(world: World) -> None:
    world.ward.gate = lambda _: (5.0, 1, '{"score": 0.5, "threshold": 0.9}')
    full_pool(world)
    _let(world, **GATE)
    _reaches(world, "Gating")
    world.until(lambda: _past(world) and _nothing_left(world))
    world.run(3600)
    assert [each["outcome"] for each in _past(world)] == ["rolled back"]
    _let(world, **{**GATE, "qualityGate": {"threshold": 0.4}})
    world.edit(SERVICES, NAME, {"metadata": {"annotations": {names.ANNOTATION_EXPERIMENT: "approve"}}})
    _reaches(world, "Gating")


def test_while_it_is_held_nobody_is_let_in(world: World) -> None:
    full_pool(world)
    _let(world, **GATE)
    _reaches(world, "Gating")
    world.edit(SERVICES, NAME, {"metadata": {"annotations": {names.ANNOTATION_HOLD: "true"}}})
    world.run(120)
    assert not [pod for pod in world.pods(NAME) if names.GATE_PASSED in str(pod["status"])]
    world.edit(SERVICES, NAME, {"metadata": {"annotations": {names.ANNOTATION_HOLD: None}}})
    world.until(lambda: _nothing_left(world))


@pytest.mark.parametrize(
    ("tuning", "said"),
    [
        pytest.param(AUTO, "spec.tuning.qualityGate names nobody", id="no gate"),
        pytest.param(
            {**AUTO, "qualityGate": {"podTemplate": {"spec": {"serviceAccountName": "admin"}}}},
            "spec.tuning.qualityGate.podTemplate.spec.serviceAccountName",
            id="a gate that reaches too far",
        ),
    ],
)
def test_without_a_gate_nothing_is_tried_whoever_asks(world: World, tuning: dict[str, Any], said: str) -> None:
    full_pool(world)
    _let(world, **tuning)
    _reaches(world, "GateMissing")
    world.edit(SERVICES, NAME, {"metadata": {"annotations": {names.ANNOTATION_EXPERIMENT: "approve"}}})
    world.run(300)
    assert said in _said(world)["message"]
    assert _nothing_left(world)
    assert not _past(world)
