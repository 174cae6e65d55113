"""The ledger hears of load and step times when another figure counts, and of nothing else about them."""

from typing import Any

import pytest

from plimsoll.core.chronicle import noted


def status(**figures: dict[str, float]) -> dict[str, Any]:
    return {"load": {"figures": figures}} if figures else {}


DECLARED: dict[str, float] = {"declared": 8, "observed": 30, "counts": 8}


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(status(), status(concurrency=DECLARED), None, id="first seen"),
        pytest.param(
            status(concurrency=DECLARED), status(concurrency={**DECLARED, "observed": 40}), None, id="another day"
        ),
        pytest.param(
            status(concurrency=DECLARED), status(concurrency={**DECLARED, "counts": 30}), ("8", "30"), id="more"
        ),
        pytest.param(status(), status(promptTokens={"observed": 90, "counts": 80}), (None, "80"), id="never declared"),
        pytest.param(status(concurrency={**DECLARED, "counts": 30}), status(), ("30", "8"), id="too long ago"),
        pytest.param(status(concurrency=DECLARED), status(), None, id="too long ago, and never counted"),
    ],
)
def test_what_counts_is_news(
    before: dict[str, Any], after: dict[str, Any], told: tuple[str | None, str] | None
) -> None:
    found = noted(before, after, {})
    assert [(entry.before, entry.after) for entry in found] == ([told] if told else [])
    assert all(entry.reason == "LoadObserved" for entry in found)


def test_step_times_are_news_when_they_are_others() -> None:
    def taught(factor: float) -> dict[str, Any]:
        return {"observed": {"stepTimes": {"key": "k", "factor": factor}}}

    assert [(e.reason, e.before, e.after) for e in noted({}, taught(1.2), {})] == [("StepTimesObserved", "1", "1.2")]
    assert [(e.before, e.after) for e in noted(taught(1.2), taught(0.9), {})] == [("1.2", "0.9")]
    assert noted(taught(1.2), taught(1.2), {}) == ()
