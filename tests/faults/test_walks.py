"""The way to a spec leaves no trace: there and back is nowhere, and twenty edits end as a fresh object of the last."""

import random
from typing import Any

import pytest

from tests.faults.rig.endstate import differences
from tests.faults.rig.walks import VALUES, edits, first, fresh, walk

THERE_AND_BACK = [(field, value) for field, values in VALUES.items() for value in values[1:]]


@pytest.fixture(scope="module")
def at_first() -> Any:
    return fresh(first())


@pytest.mark.parametrize(("field", "value"), THERE_AND_BACK[::3], ids=lambda each: str(each)[:40])
def test_there_and_back_is_where_it_began(field: str, value: Any, at_first: Any) -> None:
    found = walk([first(), {**first(), field: value}, first()], [120.0, 90.0, 0.0])
    assert differences(at_first, found) == []


@pytest.mark.parametrize("seed", range(1))
def test_twenty_edits_end_as_a_fresh_object_of_the_last(seed: int) -> None:
    specs, chosen = edits(20, seed), random.Random(seed)
    found = walk(specs, [chosen.choice((0.0, 0.5, 10.0, 60.0)) for _ in specs])
    assert differences(fresh(specs[-1]), found) == []
