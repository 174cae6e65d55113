"""Replicas lent to an experiment come back however it ends, and in no other order than that GPUs allow."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from plimsoll.adapters.ports import DEPLOYMENTS, SERVICES
from plimsoll.api import names
from tests.faults import rig
from tests.faults.rig.lifecycle import NAME, SLOW, offered
from tests.faults.rig.run import prepared
from tests.faults.rig.scenario import SCENARIOS
from tests.faults.rig.snapshot import each_in_a_copy
from tests.faults.world.world import World, service

rig.load()
TRYING: Final = {"mode": "Auto", "allow": ["MaxNumBatchedTokens"]}
AUTO: Final = {"mode": "Auto", "minReplicas": 2}
LENT: Final = {"replicas": 2, "of": 4}


def ask(world: World, **spec: Any) -> None:
    world.apply(service(NAME, **{**SLOW, "scaling": AUTO, "tuning": TRYING, **spec}))


def annotate(world: World, **annotations: str | None) -> None:
    named = {f"{names.GROUP}/{name}": value for name, value in annotations.items()}
    world.edit(SERVICES, NAME, {"metadata": {"annotations": named}}, by="kubectl-annotate")


def tuning(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.must(SERVICES, NAME)["status"].get("tuning", {})
    return found


def fleet(world: World) -> dict[str, Any]:
    return world.must(DEPLOYMENTS, NAME)


def is_whole(world: World) -> bool:
    """Nothing is lent, canary and control are gone, and as many replicas serve as before."""
    alone = all(world.find(DEPLOYMENTS, f"{NAME}-{track}") is None for track in ("canary", "control"))
    return alone and "lent" not in tuning(world) and fleet(world)["status"].get("readyReplicas") == 4


@pytest.fixture(scope="module")
def measuring() -> Iterator[World]:
    """Two of four replicas are lent on four GPUs, and canary and control are compared."""
    scenario = SCENARIOS["experiment on lent replicas"]
    with prepared(scenario) as world:

        def watch() -> None:
            kinds = (names.READY, names.RECONCILING, names.SCALING_LIMITED)
            said = [world.condition(NAME, kind) for kind in kinds]
            calm = [each["status"] for each in said[:2]] == ["True", "False"] and said[2]["reason"] != "NoRoom"
            if "lent" in tuning(world) and not calm and world.must(SERVICES, NAME)["metadata"]["generation"] == 2:
                world.unexpected.found.append(f"at {world.agenda.now:.0f} s: {said}")

        world.watchers.append(watch)
        scenario.act(world)
        world.until(lambda: tuning(world).get("experiment", {}).get("phase") == "Measuring", what="measuring")
        world.run(100)
        assert world.unexpected.found == []
        assert tuning(world)["lent"] == LENT
        assert fleet(world)["spec"]["replicas"] == 2
        yield world


def ends(world: World, act: Callable[[World], object], why: str) -> tuple[str, list[str]]:
    """What became of it, and all that was wrong on the way."""
    act(world)
    world.until(lambda: is_whole(world), within_seconds=900.0, what="whole again")
    past = tuning(world)["past"][-1]
    assert why in past["why"], past
    world.run(120)
    assert is_whole(world)
    assert world.is_ready(NAME)
    return past["outcome"], list(world.unexpected.found)


def held_for_a_while(world: World) -> None:
    annotate(world, hold="true")
    world.run(300)
    assert fleet(world)["spec"]["replicas"] == 2
    assert tuning(world)["lent"] == LENT
    annotate(world, hold=None)


def another_context(world: World) -> None:
    """A roll-out begins, with a fleet that is whole."""
    before = fleet(world)["spec"]["template"]

    def watch() -> None:
        if fleet(world)["spec"]["template"] != before and "lent" in tuning(world):
            world.unexpected.found.append("rolled while replicas were lent")

    world.watchers.append(watch)
    ask(world, contextTokens=4096)
    world.until(lambda: fleet(world)["spec"]["template"] != before, what="a roll-out")
    world.until(lambda: world.is_ready(NAME), within_seconds=900.0, what="rolled out")


def without_a_plan(world: World) -> None:
    """The fleet is kept as it is until there is a plan again."""
    ask(world, engine={"extraArgs": ["--gpu-memory-utilization=0.1"]})
    world.until(lambda: is_whole(world), within_seconds=900.0, what="whole without a plan")
    assert world.condition(NAME, names.STALLED)["status"] == "True"
    ask(world)


ENDS: Final[dict[str, tuple[Callable[[World], object], str, str]]] = {
    "rejected": (lambda world: annotate(world, experiment="reject"), "rejected", "a person"),
    "turned off": (lambda world: ask(world, tuning={"mode": "Off"}), "abandoned", "mode is Off"),
    "held": (held_for_a_while, "abandoned", "hold"),
    "more demand": (offered(30.0), "abandoned", "demand needs 4 by now"),
    "a higher minimum": (
        lambda world: ask(world, scaling={"mode": "Auto", "minReplicas": 3}),
        "abandoned",
        "minReplicas is 3",
    ),
    "another mode": (
        lambda world: ask(world, scaling={"mode": "Fixed"}, replicas=4),
        "abandoned",
        "spec.scaling.mode is Fixed",
    ),
    "a canary that is deleted": (lambda world: world.delete(DEPLOYMENTS, f"{NAME}-canary"), "rolled back", "is gone"),
    "another spec": (another_context, "abandoned", "runs no more"),
    "no plan": (without_a_plan, "abandoned", "runs no more"),
}


def test_the_fleet_is_whole_again_however_it_ends(measuring: World) -> None:
    cases = [partial(ends, measuring, act, why) for act, _, why in ENDS.values()]
    found = dict(zip(ENDS, each_in_a_copy(cases), strict=True))
    assert found == {name: (outcome, []) for name, (_, outcome, _) in ENDS.items()}


def test_what_demand_needs_is_not_lent() -> None:
    scenario = SCENARIOS["experiment on lent replicas"]
    with prepared(scenario) as world:
        offered(20.0)(world)
        world.run(90)
        scenario.act(world)
        world.run(120)
        said = world.condition(NAME, names.EXPERIMENTING)
        assert said["reason"] == "NotNow"
        assert "2 would be left, and demand needs 3" in said["message"]
        assert (fleet(world)["spec"]["replicas"], len(world.pods())) == (4, 4)
