"""A canary that fails while no operator runs has failed, even if it serves again when the next one looks."""

from typing import Any

from plimsoll.adapters.ports import PODS, SERVICES
from tests.faults.rig.lifecycle import NAME
from tests.faults.rig.run import prepared
from tests.faults.rig.scenario import SCENARIOS
from tests.faults.world.kubelet import Crash
from tests.faults.world.store import Object
from tests.faults.world.world import World

KEPT = SCENARIOS["experiment that is kept"]
ENDS = Crash(137, "OOMKilled", after_ready_seconds=30.0)


def tuning(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.must(SERVICES, NAME)["status"].get("tuning") or {}
    return found


def canary(world: World) -> Object | None:
    return next((pod for pod in world.pods(NAME) if "canary" in pod["metadata"]["name"]), None)


def crash_once(pod: Object) -> Crash | None:
    """The canary, and no other: the first time it is ready."""
    first = not (pod["status"].get("containerStatuses") or [{}])[0].get("restartCount")
    return ENDS if first and "canary" in pod["metadata"]["name"] else None


def test_a_canary_that_has_restarted_meanwhile_is_not_measured_any_further() -> None:
    with prepared(KEPT) as world:
        world.ward.crash = crash_once
        KEPT.act(world)
        world.until(lambda: tuning(world).get("experiment", {}).get("phase") == "Warming", what="both serve")
        for process in world.alive:
            process.kill()
        world.run(120)
        pod = canary(world)
        assert pod is not None
        status = world.must(PODS, pod["metadata"]["name"])["status"]["containerStatuses"][0]
        assert (status["restartCount"], status["ready"]) == (1, True)
        world.start_operator()
        world.until(lambda: tuning(world).get("past"), what="it is over")
        past = tuning(world)["past"][-1]
        assert (past["outcome"], past["why"]) == (
            "rolled back",
            "the canary failed: its container ended, and runs again",
        )
        world.until(lambda: canary(world) is None, what="it is gone")
