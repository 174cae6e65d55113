"""GPUs that several services share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.budget import Claim, share


@pytest.mark.parametrize(
    ("budget", "claims", "expect"),
    [
        pytest.param(8, [Claim("a", 1, held=2, wanted=2)], {"a": 8}, id="alone, all is left to it"),
        pytest.param(
            4,
            [Claim("a", 1, held=2, wanted=4, priority=1), Claim("b", 1, held=2, wanted=2, floor=1)],
            {"a": 3, "b": 1},
            id="the important one grows into what the other need not have",
        ),
        pytest.param(
            4,
            [Claim("a", 1, held=1, wanted=4, floor=1), Claim("b", 1, held=3, wanted=4, floor=1)],
            {"a": 1, "b": 3},
            id="between equals whoever holds keeps",
        ),
        pytest.param(
            6,
            [Claim("a", 1, held=0, wanted=6), Claim("b", 2, held=2, fixed=True)],
            {"a": 2},
            id="fixed ones count as they are",
        ),
        pytest.param(
            7,
            [Claim("a", 2, held=0, wanted=4, priority=1), Claim("b", 2, held=0, wanted=1)],
            {"a": 3, "b": 0},
            id="nobody goes below none, whatever is asked before",
        ),
        pytest.param(5, [Claim("a", 2, held=1, wanted=1)], {"a": 2}, id="what is left counts in whole replicas"),
        pytest.param(5, [Claim("a", 1, held=2, wanted=2)], {"b": 3}, id="a service that is not there yet"),
        pytest.param(
            4,
            [Claim("a", 1, held=0, wanted=1), Claim("b", 2, held=3, fixed=True)],
            {"a": 0},
            id="fixed ones hold more than all",
        ),
        pytest.param(
            4,
            [Claim("a", 4, held=0, priority=1), Claim("b", 1, held=0)],
            {"a": 1, "b": 4},
            id="in replicas of its own size",
        ),
        pytest.param(1, [Claim("a", 2, held=1, wanted=1, floor=1)], {"a": 0}, id="half a replica is none"),
    ],
)
def test_shares(budget: int, claims: list[Claim], expect: dict[str, int]) -> None:
    assert {service: share(budget, claims, service) for service in expect} == expect


claims = st.lists(
    st.builds(
        Claim,
        service=st.uuids().map(str),
        gpus_per_replica=st.sampled_from([1, 2, 4, 8]),
        held=st.integers(0, 6),
        wanted=st.integers(0, 12),
        floor=st.integers(0, 3),
        priority=st.integers(-2, 2),
    ),
    min_size=1,
    max_size=6,
)


@given(st.integers(0, 64), claims)
def test_what_all_want_together_never_exceeds_the_budget(budget: int, found: list[Claim]) -> None:
    taken = sum(
        min(share(budget, found, c.service), max(c.wanted, c.held, c.floor)) * c.gpus_per_replica for c in found
    )
    assert taken <= budget
    assert all(share(budget, [claim], claim.service) == budget // claim.gpus_per_replica for claim in found)
