"""Campaigns: one class of faults each, over every scenario. ``make test`` runs a fixed part, ``make faults`` all."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.faults.rig.run import Disturbance, Outcome, Verdict, judge, play, prepared
from tests.faults.rig.scenario import SCENARIOS, Scenario
from tests.faults.rig.snapshot import each_in_a_copy
from tests.faults.world.world import World

SAMPLED: Final = 6
Disturbances = Callable[[Outcome], Iterable[Disturbance]]
"""What is to go wrong with a scenario, given how it goes undisturbed."""


@dataclass(frozen=True)
class Campaign:
    """A class of faults. ``concerns``: the scenarios it is tried on. ``always``: ``make test`` never leaves it out.

    ``whole``: a way to all cases that is shorter than one after the other.
    """

    name: str
    disturbances: Disturbances
    concerns: Callable[[Scenario], bool] = lambda scenario: not scenario.hardship
    always: bool = False
    whole: Callable[[World, Scenario, Outcome, int], list[Verdict]] | None = None

    def cases(self, scenario: Scenario, calm: Outcome) -> list[Disturbance]:
        """All cases of a scenario, in a fixed order."""
        return [*self.disturbances(calm)] if self.concerns(scenario) else []


CAMPAIGNS: Final[dict[str, Campaign]] = {}


def campaign(found: Campaign) -> None:
    """Register a campaign."""
    assert found.name not in CAMPAIGNS
    CAMPAIGNS[found.name] = found


def run(
    scenario: Scenario, chosen: Iterable[Campaign], at_once: int, *, every: int | None = None
) -> Iterator[tuple[str, Verdict]]:
    """Campaign and verdict of each case on one scenario: of every n-th, or of the sample of ``make test``."""
    with prepared(scenario) as world:
        [calm] = each_in_a_copy([lambda: play(world, scenario)])
        assert not calm.wrong, calm.wrong[0]
        for each in chosen:
            for verdict in _verdicts(each, world, scenario, calm, at_once, every):
                yield each.name, verdict


def _verdicts(
    found: Campaign, world: World, scenario: Scenario, calm: Outcome, at_once: int, every: int | None
) -> Iterator[Verdict]:
    if found.whole and every == 1 and found.concerns(scenario):
        for verdicts in each_in_a_copy([partial(found.whole, world, scenario, calm, at_once)]):
            yield from verdicts
    else:
        cases = _chosen(found, scenario, calm, every)
        yield from each_in_a_copy([partial(judge, world, scenario, case, calm) for case in cases], at_once)


def _chosen(found: Campaign, scenario: Scenario, calm: Outcome, every: int | None) -> list[Disturbance]:
    """Every n-th case; or, as the sample, of some campaigns one, each time another."""
    cases = found.cases(scenario, calm)
    row, column = [*SCENARIOS].index(scenario.name), [*CAMPAIGNS].index(found.name)
    if every is not None:
        return cases[(row + column) % every :: every]
    turn = (found.always and not scenario.hardship) or (row + column) % SAMPLED == 0
    return [cases[(31 * row + 7 * column) % len(cases)]] if turn and cases and not scenario.slow else []
