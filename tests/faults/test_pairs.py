"""The tree of pairs of crashes: it finds what one run after the other finds, and leaves out only what is the same."""

from functools import partial

from tests.faults import rig
from tests.faults.rig.crash import Crash, crashing
from tests.faults.rig.pairs import every_pair, pairs
from tests.faults.rig.run import judge, play, prepared
from tests.faults.rig.scenario import SCENARIOS, Scenario
from tests.faults.rig.snapshot import each_in_a_copy
from tests.faults.world.world import World

rig.load()
SCENARIO = SCENARIOS["adoption refused"]
EVERY = 4


def test_the_tree_finds_what_one_run_after_the_other_finds() -> None:
    with prepared(SCENARIO) as world:
        [calm] = each_in_a_copy([partial(play, world, SCENARIO)])
        [found] = each_in_a_copy([partial(every_pair, world, SCENARIO, calm, 2)])
        in_the_tree = {verdict.case: verdict for verdict in found}
        named = {f"{SCENARIO.name}: {pair.name}": pair for pair in pairs(calm)}
        chosen = [name for name in named if name in in_the_tree][::EVERY]
        alone = [*each_in_a_copy([partial(judge, world, SCENARIO, named[name], calm) for name in chosen])]
    assert sum(verdict.cases for verdict in found) > len(found) > len(chosen) > 1
    for verdict in alone:
        known = in_the_tree[verdict.case]
        assert (known.wrong, known.extra_writes) == (verdict.wrong, verdict.extra_writes)


def test_ends_between_which_nothing_is_sent_leave_the_same_world() -> None:
    scenario = SCENARIOS["roll-out"]
    ends: list[Crash] = [(0, "after"), (1, "before"), (1, "after")]
    with prepared(scenario) as world:
        histories = [*each_in_a_copy([partial(_history, world, scenario, end) for end in ends])]
    assert histories[0] == histories[1] != histories[2]


def _history(world: World, scenario: Scenario, end: Crash) -> str:
    play(world, scenario, crashing(end))
    return world.digest()
