"""Searches whose right end is known, one seed each; many more, with figures: ``python -m tests.benchmarks tuning``."""

import pytest

from tests.benchmarks.tuning_scenarios import SCENARIOS, Scenario, searched


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_search_comes_to_the_right_end(scenario: Scenario) -> None:
    end = searched(scenario, 3)
    assert end.right, end
    assert not end.wrong_keeps
