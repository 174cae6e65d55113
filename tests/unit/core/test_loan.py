"""Replicas lent to an experiment: when, how many, until when, and what is stored of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.experiment import Experiment, Scene, Timing, begin, step
from plimsoll.core.experiment_record import Record, read_record
from plimsoll.core.loan import LEAST_REPLICAS, Lately, Lender, Lent, Loan, lend, why_over
from tests.unit.core.test_experiment import QUICK, TRIED, at, scene, windows

TIMING = Timing()


def lender(**more: Any) -> Lender:
    return Lender(**{"replicas": 4, "least": 1, "needed": 2, "needed_lately": 2, **more})


@pytest.mark.parametrize(
    ("found", "lacking", "expect"),
    [
        pytest.param(lender(), 1, Loan(1, 4), id="one is lacking"),
        pytest.param(lender(), 2, Loan(2, 4), id="two are lacking, and two carry the load"),
        pytest.param(lender(needed=0), 2, Loan(2, 4), id="nobody asks for anything"),
        pytest.param(lender(needed=3), 1, Loan(1, 4), id="three are needed, and left"),
        pytest.param(lender(needed=3), 2, "2 would be left, and demand needs 3", id="three are needed, two left"),
        pytest.param(lender(needed=9), 1, "demand needs 9", id="more is needed than runs"),
        pytest.param(lender(needed=None), 1, "not known", id="metrics are missing"),
        pytest.param(lender(least=3), 2, "scaling.minReplicas is 3", id="below minReplicas"),
        pytest.param(lender(replicas=3), 2, "1 would serve beside them", id="too few to meet a bad canary"),
        pytest.param(lender(replicas=2), 2, "0 would serve beside them", id="none left"),
        pytest.param(lender(theirs="an HPA sets the count"), 1, "an HPA sets", id="the count is somebody else's"),
    ],
)
def test_what_is_lent(found: Lender, lacking: int, expect: Loan | str) -> None:
    loan = lend(found, lacking)
    if isinstance(expect, Loan):
        assert loan == expect
    else:
        assert isinstance(loan, str)
        assert expect in loan


@given(
    st.builds(
        Lender,
        replicas=st.integers(0, 9),
        least=st.integers(0, 9),
        needed=st.none() | st.integers(0, 12),
        theirs=st.sampled_from(["", "an HPA"]),
    ),
    st.integers(1, 2),
)
def test_a_loan_never_leaves_too_little_and_is_not_called_back_at_once(found: Lender, lacking: int) -> None:
    loan = lend(found, lacking)
    if isinstance(loan, str):
        return
    assert found.needed is not None
    assert loan.rest >= max(LEAST_REPLICAS, found.least, found.needed)
    assert (loan.of, loan.replicas) == (found.replicas, lacking)
    assert why_over(loan, found) == ""


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(lender(), "", id="all as it was"),
        pytest.param(lender(needed=3), "", id="one look above what is left"),
        pytest.param(lender(needed=3, needed_lately=3), "demand needs 3 by now", id="a minute above it"),
        pytest.param(lender(needed=None, needed_lately=None), "", id="not known: as many pods as before serve"),
        pytest.param(lender(replicas=6), "it is to have 6 now", id="demand grows at once"),
        pytest.param(lender(replicas=3), "it is to have 3 now", id="somebody lowers maxReplicas"),
        pytest.param(lender(least=3), "scaling.minReplicas is 3", id="somebody raises minReplicas"),
        pytest.param(lender(theirs="spec.scaling.mode is Fixed"), "mode is Fixed", id="another mode"),
    ],
)
def test_what_calls_a_loan_back(found: Lender, why: str) -> None:
    said = why_over(Loan(2, 4), found)
    assert why in said
    assert bool(why) == bool(said)


def test_what_a_count_means() -> None:
    out, back, none = Lent(Loan(1, 4), holds=True), Lent(Loan(1, 4)), Lent()
    assert [each.whole(3) for each in (out, back, none)] == [4, 4, 3]
    assert [each.whole(4) for each in (out, back, none)] == [4, 4, 4]
    assert out.whole(2) == 2, "a count that nobody lent from is somebody's word"
    assert [each.runs(4) for each in (out, back, none)] == [3, 4, 4]
    assert out.runs(6) == 3, "what demand adds waits until canary and control are gone"
    assert out.runs(2) == 2
    assert [each.must_serve(4) for each in (out, back, none)] == [3, 3, 4]


def test_demand_counts_once_it_has_lasted() -> None:
    lately = Lately()
    looks = [(0.0, 2), (15.0, 4), (30.0, 5), (45.0, 4), (60.0, 4), (75.0, 4), (90.0, 1)]
    assert [lately.note(now, needed) for now, needed in looks] == [None, None, None, None, 2, 4, 1]
    assert lately.note(105.0, None) is None
    assert lately.note(120.0, 9) is None, "what was not seen was not much"


def test_the_same_look_twice_is_one() -> None:
    lately = Lately()
    assert [lately.note(now, 4) for now in (0.0, 0.0, 60.0, 60.0)] == [None, None, 4, 4]
    assert len(lately.seen) == 2


# Of an experiment.


def phase_after(experiment: Experiment, seen: Scene) -> str:
    following = step(experiment, seen, TIMING)
    return following.experiment.phase if following.experiment else following.past.outcome if following.past else ""


@pytest.mark.parametrize(
    ("experiment", "seen", "phase"),
    [
        pytest.param(at("Draining"), scene(lent=True, draining=True, canary=None, control=None), "Draining", id="full"),
        pytest.param(at("Draining"), scene(lent=True, canary=None, control=None), "Starting", id="the GPUs are free"),
        pytest.param(
            at("Draining"), scene(601, lent=True, draining=True, canary=None, control=None), "abandoned", id="for ever"
        ),
        pytest.param(at("Draining"), scene(lent=True, draining=True, wish="reject"), "rejected", id="a person"),
        pytest.param(at("Draining"), scene(lent=True, stop="demand"), "abandoned", id="demand has grown"),
        pytest.param(at("Measuring"), scene(lent=True, pairs=windows(QUICK)), "Returning", id="better, on loan"),
        pytest.param(at("Measuring"), scene(pairs=windows(QUICK)), "Keeping", id="better, on spare GPUs"),
        pytest.param(at("Returning"), scene(lent=True, canary=None, control=None), "Returning", id="not back yet"),
        pytest.param(at("Returning"), scene(canary=None, control=None), "Keeping", id="the fleet is whole"),
        pytest.param(at("Returning"), scene(lent=True, stop="frozen"), "Returning", id="it was judged before"),
        pytest.param(at("Returning"), scene(lent=True, wish="revert"), "rejected", id="a person, before it rolled"),
    ],
)
def test_how_an_experiment_on_lent_replicas_goes(experiment: Experiment, seen: Scene, phase: str) -> None:
    assert phase_after(experiment, seen) == phase


def test_it_begins_with_making_room() -> None:
    assert begin(TRIED, "svc-a", 5.0, lent=True) == at("Draining", 5.0, started=5.0)
    assert at("Draining").on_trial
    assert not at("Returning").on_trial


# As it is stored.


@pytest.mark.parametrize("running", [at("Draining"), at("Returning", verdict="better"), None])
def test_a_loan_is_stored_and_outlives_its_experiment(running: Experiment | None) -> None:
    record = Record(running, loan=Loan(2, 5))
    assert record.written()["lent"] == {"replicas": 2, "of": 5}
    assert read_record(record.written()) == record


@pytest.mark.parametrize("lent", [None, {}, {"replicas": 1}, {"replicas": 0, "of": 4}, {"replicas": "x", "of": 4}, 7])
def test_what_is_no_loan(lent: Any) -> None:
    assert read_record({"lent": lent, "answered": "approve 1"}) == Record(answered="approve 1")


def test_since_when_the_lent_replicas_are_awaited() -> None:
    ended = step(at("Warming"), scene(70.0, stop="held"), TIMING).past
    assert ended is not None
    assert Record(past=(ended,)).ended_seconds == 70.0
    assert Record(at("Returning", 90.0), (ended,)).ended_seconds == 90.0
    assert Record().ended_seconds == 0.0
