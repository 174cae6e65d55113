"""Searches for settings whose right value is known: how many come to it, and whether anything wrong was ever kept.

`python -m tests.benchmarks tuning`: 25 seeds of each scenario, some ten minutes of one core; `SEEDS=5` for fewer.
"""

import os

from tests.benchmarks.report import figure
from tests.benchmarks.tuning_scenarios import SCENARIOS, Scenario, attained, best_attained, searched

SEEDS = int(os.environ.get("SEEDS", "25"))
FIRST_SEED = 100
"""The suite has those below."""


def main() -> None:
    """A line for each scenario, then all together."""
    searches = wrong = 0
    for scenario in SCENARIOS:
        wrong += _figures(scenario)
        searches += SEEDS
    figure("tuning_wrong_keeps", wrong, "keeps", searches=searches)


def _figures(scenario: Scenario) -> int:
    seeds = range(FIRST_SEED, FIRST_SEED + SEEDS)
    ends = [searched(scenario, seed) for seed in seeds]
    reached = [end.kept_after for end in ends if end.kept_after]
    told = {
        "experiments": round(sum(end.experiments for end in ends) / SEEDS, 2),
        "experiments_to_the_last_keep": round(sum(reached) / len(reached), 2) if reached else None,
        "windows_lost": round(sum(end.lost_windows for end in ends) / SEEDS, 2),
        "attained_before": round(attained(scenario, scenario.start, FIRST_SEED), 3),
        "attained_after": round(attained(scenario, ends[0].flags, FIRST_SEED), 3),
        "attained_at_best": round(best_attained(scenario, FIRST_SEED), 3),
    }
    right = 100 * sum(end.right for end in ends) / SEEDS
    figure("tuning_right_ends", right, "percent", scenario=scenario.name, seeds=SEEDS, **told)
    return sum(end.wrong_keeps for end in ends)


if __name__ == "__main__":
    main()
