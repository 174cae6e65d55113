"""What people and GitOps tools read, for the situations a service can be in."""

from dataclasses import replace

import pytest
from hypothesis import given

from plimsoll.core.conditions import Condition, Facts, decide, merge
from plimsoll.core.plan.release import unrecorded
from tests.unit.core.situations import FACTS, OBSERVED, REFUSED, SERVING, by_type


def test_every_condition_is_there_from_the_first_visit_and_has_a_reason() -> None:
    found = decide(Facts())
    assert len(found) == 13
    assert all(c.reason and c.status in ("True", "False", "Unknown") for c in found)
    assert len({c.type for c in found}) == len(found)


def test_what_was_not_observed_is_unknown() -> None:
    found = by_type(Facts(planned="p", fleet=SERVING))
    assert {found[t].status for t in ("MetricsAvailable", "SLOMet", "KVPredictionAccurate")} == {"Unknown"}


@given(FACTS, OBSERVED)
def test_what_engines_show_is_told_and_touches_no_other_condition(
    facts: Facts, observed: tuple[Condition, ...]
) -> None:
    before, after = by_type(replace(facts, observed=())), by_type(replace(facts, observed=observed))
    assert {t: after[t] for t in after} == {**before, **{c.type: c for c in observed}}


def test_the_transition_time_moves_on_a_flip_only() -> None:
    first = merge([], [Condition("Ready", "False", "Progressing", "0 of 2")], 1, "t1")
    second = merge(first, [Condition("Ready", "False", "Failing", "1 of 2")], 2, "t2")
    third = merge(second, [Condition("Ready", "True", "FleetReady", "2 of 2")], 2, "t3")
    assert [c["lastTransitionTime"] for c in (*first, *second, *third)] == ["t1", "t1", "t3"]
    assert second[0]["observedGeneration"] == 2


def test_a_refusal_says_that_the_previous_fleet_serves() -> None:
    assert "previous fleet keeps serving (2 ready)" in by_type(Facts(refusal=REFUSED, fleet=SERVING))["Ready"].message


def test_an_annotation_that_asks_for_nothing_possible_is_answered() -> None:
    found = by_type(Facts(planned="p", fleet=SERVING, ignored="annotation x names no plan"))["PlanUpdateAvailable"]
    assert found.message.endswith("; annotation x names no plan")


@pytest.mark.parametrize(
    ("version", "reason", "words"),
    [
        pytest.param("0.32.1", "Feasible", "", id="a patch of a recorded one"),
        pytest.param("0.41.0", "EngineNotRecorded", "planned as 0.32.0", id="newer than all"),
        pytest.param("0.33.0", "EngineNotRecorded", "planned as 0.32.0", id="the next one"),
        pytest.param("0.9.2", "EngineNotRecorded", "planned as 0.10", id="older than all"),
        pytest.param("nightly", "EngineNotRecorded", "planned as 0.32.0", id="no release at all"),
    ],
)
def test_an_engine_that_nobody_recorded_is_said(version: str, reason: str, words: str) -> None:
    planned = by_type(Facts(planned="p", unrecorded=unrecorded(version), fleet=SERVING))["Planned"]
    assert (planned.status, planned.reason) == ("True", reason)
    assert words in planned.message
