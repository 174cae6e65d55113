"""A canary differs from its control in one thing, whatever a new release of the operator would plan."""

import pytest

from plimsoll.adapters.ports import SERVICES
from plimsoll.facts import engines
from tests.faults.rig.lifecycle import CAPPED, NAME
from tests.faults.rig.run import prepared
from tests.faults.rig.scenario import SCENARIOS
from tests.faults.world.world import service


def test_no_canary_runs_another_engine_than_its_control(monkeypatch: pytest.MonkeyPatch) -> None:
    with prepared(SCENARIOS["experiment that is kept"]) as world:
        monkeypatch.setattr(engines, "NEWEST", "0.31.0")
        world.apply(service(NAME, **CAPPED, tuning={"mode": "Auto", "allow": ["MaxNumSeqs"]}))
        world.until(lambda: world.must(SERVICES, NAME)["status"].get("tuning", {}).get("past"), what="it has ended")
        past = world.must(SERVICES, NAME)["status"]["tuning"]["past"][-1]
    assert past["outcome"] == "abandoned"
    assert "it would run vLLM 0.31.0" in past["why"]
    assert "accept the new plan first" in past["why"]
