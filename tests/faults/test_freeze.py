"""No experiment begins in a freeze window, and one that runs ends in it with nothing changed."""

from typing import Any

from plimsoll.adapters.ports import DEPLOYMENTS, SERVICES
from tests.faults.rig.lifecycle import CAPPED, NAME
from tests.faults.rig.run import prepared
from tests.faults.rig.scenario import SCENARIOS
from tests.faults.world.world import World, service

ALWAYS = [{"timeZone": "Europe/Berlin"}]


def ask(world: World, **tuning: Any) -> None:
    world.apply(service(NAME, **CAPPED, tuning={"mode": "Auto", "allow": ["MaxNumSeqs"], **tuning}))


def experimenting(world: World) -> tuple[str, str]:
    conditions = world.must(SERVICES, NAME)["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "Experimenting")
    return found["reason"], found["message"]


def on_trial(world: World) -> int:
    return sum(world.find(DEPLOYMENTS, f"{NAME}-{track}") is not None for track in ("canary", "control"))


def test_nothing_begins_in_a_freeze_window_and_what_runs_ends_with_nothing_changed() -> None:
    with prepared(SCENARIOS["experiment that is kept"]) as world:
        ask(world, freeze=ALWAYS)
        world.run(300)
        reason, message = experimenting(world)
        assert reason == "NotNow"
        assert "spec.tuning.freeze[0] lasts until" in message
        assert on_trial(world) == 0
        ask(world)
        world.until(lambda: on_trial(world) == 2, what="canary and control")
        before = world.must(DEPLOYMENTS, NAME)["spec"]["template"]
        ask(world, freeze=ALWAYS)
        world.until(lambda: on_trial(world) == 0, what="they are gone")
        past = world.must(SERVICES, NAME)["status"]["tuning"]["past"][-1]
        assert past["outcome"] == "abandoned"
        assert past["why"].startswith("frozen: spec.tuning.freeze[0]")
        assert world.must(DEPLOYMENTS, NAME)["spec"]["template"] == before
        world.run(60)
        quiet = experimenting(world)
        world.run(200)
        assert quiet[0] == "NotNow"
        assert (experimenting(world), on_trial(world)) == (quiet, 0)
