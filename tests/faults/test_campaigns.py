"""A fixed part of every campaign (``make faults`` runs them whole): whatever goes wrong, the end is the same."""

from typing import Final

import pytest

from tests.faults import rig
from tests.faults.rig.campaign import CAMPAIGNS, run
from tests.faults.rig.run import prepared
from tests.faults.rig.scenario import SCENARIOS

rig.load()

LONGEST_WINDOW_SECONDS: Final = 900
"""A recommendation may still change once ten minutes without demand are seen whole."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_goes_wrong_the_end_is_the_same(name: str) -> None:
    verdicts = [verdict for _, verdict in run(SCENARIOS[name], CAMPAIGNS.values(), 1)]
    failed = [f"{verdict.case}\n" + "\n".join(verdict.wrong) for verdict in verdicts if verdict.wrong]
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("name", ["create", "scale up with demand", "adoption refused"])
def test_an_end_is_reached_and_nothing_is_written_any_more(name: str) -> None:
    scenario = SCENARIOS[name]
    with prepared(scenario) as world:
        scenario.act(world)
        world.until(lambda: scenario.done(world), scenario.within_seconds)
        world.run(LONGEST_WINDOW_SECONDS)
        before = [len(process.connection.calls) for process in world.alive]
        world.run(300)
        assert [len(process.connection.calls) for process in world.alive] == before
        assert not world.unexpected.found
