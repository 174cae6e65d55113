"""What is worth a write: flips at once, figures within a budget, nothing when nothing changed."""

from plimsoll.core.status import (
    ALL_FIGURES_BURST,
    ALL_FIGURES_EVERY_SECONDS,
    FIGURES_BURST,
    FIGURES_EVERY_SECONDS,
    FigureBudget,
    change,
    without_empty_maps,
)

BASE = {
    "observedGeneration": 3,
    "conditions": [{"type": "Ready", "status": "True", "reason": "FleetReady", "message": "2 of 2 replicas ready"}],
    "replicas": 2,
    "readyReplicas": 2,
}


def _with(**fields: object) -> dict[str, object]:
    return {**BASE, **fields}


def test_the_same_status_is_no_write() -> None:
    assert change(BASE, _with()) == "none"


def test_a_ready_count_is_a_figure() -> None:
    assert change(BASE, _with(readyReplicas=1)) == "figures"


def test_a_message_alone_is_a_figure() -> None:
    conditions = [{**BASE["conditions"][0], "message": "1 of 2"}]  # type: ignore[index]
    assert change(BASE, _with(conditions=conditions)) == "figures"


def test_a_condition_that_flips_is_a_flip() -> None:
    conditions = [{**BASE["conditions"][0], "status": "False"}]  # type: ignore[index]
    assert change(BASE, _with(conditions=conditions)) == "flip"


def test_a_new_reason_an_observed_generation_and_a_replica_count_are_flips() -> None:
    conditions = [{**BASE["conditions"][0], "reason": "Other"}]  # type: ignore[index]
    assert change(BASE, _with(conditions=conditions)) == "flip"
    assert change(BASE, _with(observedGeneration=4)) == "flip"
    assert change(BASE, _with(replicas=3)) == "flip"


def test_others_fields_in_the_status_are_not_ours_to_judge() -> None:
    assert change({**BASE, "added-by-newer-operator": 1}, BASE) == "none"


def test_the_budget_allows_a_burst_then_one_a_minute() -> None:
    budget, now = FigureBudget(), 1000.0
    for _ in range(FIGURES_BURST):
        assert budget.wait_seconds(now) == 0
        budget.spend()
    assert 0 < budget.wait_seconds(now) <= FIGURES_EVERY_SECONDS
    assert budget.wait_seconds(now + FIGURES_EVERY_SECONDS) == 0
    budget.spend()
    assert budget.wait_seconds(now + FIGURES_EVERY_SECONDS) > 0


def test_a_flapping_pod_makes_at_most_one_write_a_minute_in_the_long_run() -> None:
    budget, writes = FigureBudget(), 0
    for second in range(3600):
        if budget.wait_seconds(float(second)) == 0:
            budget.spend()
            writes += 1
    assert writes <= FIGURES_BURST + 60


def test_what_limits_the_service_is_a_flip_and_its_figures_are_not() -> None:
    before = _with(observed={"bottleneck": "Healthy", "kvUsePercent": 40})
    assert change(before, _with(observed={"bottleneck": "KVBound", "kvUsePercent": 40})) == "flip"
    assert change(before, _with(observed={"bottleneck": "Healthy", "kvUsePercent": 60})) == "figures"


def test_a_thousand_objects_share_a_budget() -> None:
    everybody = FigureBudget(ALL_FIGURES_BURST, ALL_FIGURES_EVERY_SECONDS)
    own = [FigureBudget() for _ in range(1000)]
    writes = 0
    for second in range(60):
        for budget in own:
            if max(budget.wait_seconds(float(second)), everybody.wait_seconds(float(second))) == 0:
                budget.spend()
                everybody.spend()
                writes += 1
    assert writes <= ALL_FIGURES_BURST + 60 / ALL_FIGURES_EVERY_SECONDS


def test_a_write_waits_for_the_part_of_a_token_that_is_missing() -> None:
    budget = FigureBudget(burst=1, every_seconds=60.0)
    assert budget.wait_seconds(1000.0) == 0, "a whole token is enough"
    budget.spend()
    assert budget.wait_seconds(1000.0) == 60.0
    assert budget.wait_seconds(1045.0) == 15.0
    assert budget.wait_seconds(1060.0) == 0


def test_more_than_a_token_is_no_wait() -> None:
    budget = FigureBudget(burst=2, every_seconds=60.0)
    assert budget.wait_seconds(1000.0) == 0
    budget.spend()
    assert budget.wait_seconds(1030.0) == 0


def test_what_an_experiment_says_is_a_flip() -> None:
    assert change(BASE, _with(tuning={"experiment": {"phase": "Warming"}})) == "flip"
    assert change(_with(tuning={}), BASE) == "none"


def test_no_empty_map_is_told_where_one_with_fields_may_have_been() -> None:
    told = {"load": {"figures": {}, "days": [{"date": "2026-03-01", "more": {}}]}, "plan": {"a": {"b": {}}}, "n": 0}
    assert without_empty_maps(told) == {"load": {"days": [{"date": "2026-03-01"}]}, "n": 0}
