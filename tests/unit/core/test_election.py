"""The rules of the Lease: who may take it, when, and that two never act at once, whatever their clocks show."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.core.election import (
    Sight,
    Step,
    Tenure,
    Term,
    Timing,
    decide,
    expires,
    next_term,
    released,
    sighted,
)

TIMING = Timing()
TERM = Term("other", 15, acquired="09:00", renewed="09:00")


def test_the_figures_are_kubernetes_own() -> None:
    assert (TIMING.lease_seconds, TIMING.deadline_seconds, TIMING.retry_seconds) == (15, 10, 2)


@pytest.mark.parametrize(
    ("term", "seen_seconds_ago", "step"),
    [
        pytest.param(None, 0, Step.CREATE, id="no Lease yet"),
        pytest.param(TERM, 0, Step.WAIT, id="held, seen to change just now"),
        pytest.param(TERM, 14.9, Step.WAIT, id="held, unchanged for almost its length"),
        pytest.param(TERM, 15, Step.TAKE, id="held, unchanged for its length"),
        pytest.param(Term("other", 30, "", ""), 20, Step.WAIT, id="the holder's own promise counts, longer than ours"),
        pytest.param(Term("other", 3, "", ""), 4, Step.TAKE, id="or shorter"),
        pytest.param(Term("other", 86_400, "", ""), 60, Step.TAKE, id="but nobody holds a Lease for a day"),
        pytest.param(Term("other", 0, "", ""), 14, Step.WAIT, id="no length given: ours"),
        pytest.param(Term("", 1, "", ""), 0, Step.TAKE, id="given back"),
        pytest.param(Term("me", 15, "", ""), 3, Step.RENEW, id="ours"),
        pytest.param(Term("me", 15, "", ""), 500, Step.RENEW, id="ours, long overdue, and nobody took it"),
    ],
)
def test_the_step_follows_from_what_was_seen(term: Term | None, seen_seconds_ago: float, step: Step) -> None:
    assert decide(Sight(term, "1", since=100), "me", TIMING, 100 + seen_seconds_ago) is step


def test_only_a_change_that_was_seen_proves_a_holder_alive() -> None:
    first = sighted(None, TERM, "1", 100)
    same = sighted(first, TERM, "2", 110)
    assert same.since == 100, "a label changed the version, not the term"
    renewed = sighted(same, next_term(TERM, "other", TIMING, "08:50"), "3", 112)
    assert renewed.since == 112, "renewed, although its clock went back ten minutes"
    assert expires(renewed, TIMING) == 127


def test_terms_count_hand_overs_and_keep_when_they_began() -> None:
    made = next_term(None, "a", TIMING, "1")
    held = next_term(made, "a", TIMING, "2")
    assert (held.acquired, held.renewed, held.transitions) == ("1", "2", 0)
    free = released(held, "3")
    assert (free.holder, free.lease_seconds) == ("", 1), "as client-go leaves it: free in a second for whoever counts"
    taken = next_term(free, "b", TIMING, "4")
    assert (taken.holder, taken.acquired, taken.lease_seconds, taken.transitions) == ("b", "4", 15, 1)


@pytest.mark.parametrize(
    ("age", "leads", "write_seconds"),
    [
        pytest.param(0, True, 13, id="just renewed"),
        pytest.param(9.5, True, 3.5, id="late: a write may still take seconds"),
        pytest.param(10, False, 0, id="the deadline has passed"),
    ],
)
def test_writes_end_before_the_lease_does(age: float, leads: bool, write_seconds: float) -> None:
    tenure = Tenure(TIMING, renewed_seconds=100)
    assert tenure.leads(100 + age) is leads
    assert tenure.write_seconds(100 + age) == pytest.approx(write_seconds)


@dataclass
class Candidate:
    """A process that reads and writes one shared Lease by the rules, with a wall clock of its own."""

    name: str
    wall_offset_seconds: float
    sight: Sight | None = None
    tenure: Tenure = field(default_factory=lambda: Tenure(TIMING))


@dataclass
class World:
    now: float = 0.0
    term: Term | None = None
    version: int = 0

    def turn(self, one: Candidate, before_answer: float, before_write: float) -> None:
        """Read, and write if the rules say so; the process may be slow, or stopped, between any two steps."""
        term, version = self.term, self.version
        self.now += before_answer
        one.sight = sighted(one.sight, term, str(version), self.now)
        read_at = self.now
        if decide(one.sight, one.name, TIMING, read_at) is Step.WAIT:
            one.tenure = Tenure(TIMING)
            return
        wanted = next_term(term, one.name, TIMING, f"{self.now + one.wall_offset_seconds}")
        self.now += before_write
        if version == self.version:
            self.term, self.version = wanted, version + 1
            one.tenure = Tenure(TIMING, read_at)


pauses = st.one_of(st.floats(0, 3), st.floats(0, 3), st.floats(0, 70))
turns = st.lists(st.tuples(st.integers(0, 2), pauses, st.floats(0, 1), pauses), max_size=60)
offsets = st.lists(st.floats(-600, 600), min_size=3, max_size=3)


@settings(max_examples=400, deadline=None)
@given(turns, offsets)
def test_no_two_may_write_at_once(turns: list[tuple[int, float, float, float]], offsets: list[float]) -> None:
    world = World()
    candidates = [Candidate(name, offset) for name, offset in zip("abc", offsets, strict=True)]
    for who, pause, before_answer, before_write in turns:
        world.now += pause
        world.turn(candidates[who], before_answer, before_write)
        ends = [c.tenure.write_seconds(world.now) for c in candidates]
        assert sum(end > 0 for end in ends) <= 1, f"{ends} at {world.now}"


@given(offsets)
def test_a_dead_leader_is_followed_within_its_lease_and_one_look(offsets: list[float]) -> None:
    world = World()
    dead, heir = Candidate("dead", offsets[0]), Candidate("heir", offsets[1])
    world.turn(dead, 0, 0)
    died = world.now
    while not heir.tenure.leads(world.now):
        world.turn(heir, 0, 0)
        world.now += TIMING.retry_seconds
    assert world.now - died <= TIMING.lease_seconds + 2 * TIMING.retry_seconds
