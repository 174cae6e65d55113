"""When an observed load counts: a declared one is a floor until days have said otherwise."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.v1alpha1 import LoadSpec, VLLMServiceSpec
from plimsoll.core.learned_load import FIGURES, decide, side_by_side
from plimsoll.core.plan.demand import DEFAULT_PROMPT_TOKENS, NOTHING_LEARNED, LearnedLoad, read_demand
from plimsoll.core.traffic import Day

TODAY = date(2026, 11, 30)
DECLARED = LoadSpec(concurrency=24, prompt_tokens=6000, output_tokens=500, shared_prefix_tokens=2000)


def days(values: Sequence[float | None], figure: str = "concurrency", *, hours: int = 18, last: int = 1) -> list[Day]:
    """One day each, oldest first; the newest is ``last`` days ago."""
    first = TODAY - timedelta(days=len(values) - 1 + last)
    return [
        Day((first + timedelta(days=n)).isoformat(), 1000, hours, **{figure: value})  # type: ignore[arg-type]
        for n, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("seen", "counts"),
    [
        pytest.param([], None, id="nothing seen"),
        pytest.param([200], None, id="one day is an accident"),
        pytest.param([200, 20], None, id="one day among others is an accident"),
        pytest.param([40, 60], 40, id="two days: what both have shown"),
        pytest.param([20, 60, 20, 50, 20], 50, id="two days of a week"),
        pytest.param([26, 26], None, id="within a tenth"),
        pytest.param([10, 10, 10, 10], None, id="less, for four days"),
        pytest.param([10, 12, 9, 11, 10], 12, id="less, for five: the most of them"),
        pytest.param([10, 12, 9, 11, 23], None, id="less, but for one day"),
        pytest.param([30, 1, 1, 1, 1, 1, 1, 1], 1, id="that day is over a week ago"),
        pytest.param([None, None, 40, None, 50], 40, id="days that do not say are no days"),
    ],
)
def test_a_declared_figure_is_a_floor(seen: list[float | None], counts: int | None) -> None:
    assert decide(days(seen), DECLARED, TODAY).concurrency == counts


def test_a_floor_falls_on_whole_days_only() -> None:
    assert decide(days([10] * 7, hours=12), DECLARED, TODAY).concurrency is None
    assert decide(days([10] * 5, last=0), DECLARED, TODAY).concurrency is None, "today is not over"
    assert decide(days([10] * 6, last=0), DECLARED, TODAY).concurrency == 10


def test_evidence_of_long_ago_is_none() -> None:
    old = days([100] * 7)
    assert decide(old, DECLARED, TODAY).concurrency == 100
    assert decide(old, DECLARED, TODAY + timedelta(days=7)) == NOTHING_LEARNED


@pytest.mark.parametrize(
    ("load", "learned"),
    [
        pytest.param(LoadSpec(concurrency=4), ("concurrency",), id="declared at once: no rate beside it"),
        pytest.param(LoadSpec(requests_per_second=0.1), ("requests_per_second",), id="declared a second"),
        pytest.param(
            LoadSpec(concurrency=4, requests_per_second=0.1), ("concurrency", "requests_per_second"), id="both"
        ),
        pytest.param(None, ("requests_per_second",), id="neither: the rate"),
    ],
)
def test_the_amount_is_learned_as_it_was_declared(load: LoadSpec | None, learned: tuple[str, ...]) -> None:
    seen = [replace(day, requests_per_second=3.0) for day in days([40, 50])]
    assert tuple(decide(seen, load, TODAY).to_dict()) == learned


@pytest.mark.parametrize(
    ("percents", "shared", "hits"),
    [
        pytest.param([10], None, None, id="one day"),
        pytest.param([10, 40], None, None, id="one bad day"),
        pytest.param([10, 15], 900, None, id="two days share less than declared"),
        pytest.param([70] * 4, None, None, id="more, for four days"),
        pytest.param([70, 80, 60, 75, 70], None, 3600, id="more, for five: the fewest of them, for computing only"),
        pytest.param([32, 33], None, None, id="as declared"),
    ],
)
def test_prefix_hits_are_believed_the_other_way_round(
    percents: list[float | None], shared: int | None, hits: int | None
) -> None:
    found = decide(days(percents, "hit_percent"), DECLARED, TODAY)
    assert (found.shared_prefix_tokens, found.prefix_hit_tokens) == (shared, hits)


def test_declared_and_observed_stand_side_by_side() -> None:
    seen = [replace(day, prompt_tokens=3000, requests_per_second=2.5, hit_percent=50) for day in days([30, 40])]
    learned = decide(seen, DECLARED, TODAY)
    assert side_by_side(seen, DECLARED, learned, TODAY) == {
        "concurrency": {"declared": 24, "observed": 40, "counts": 30},
        "requestsPerSecond": {"observed": 2.5},
        "promptTokens": {"declared": 6000, "observed": 3000, "counts": 6000},
        "outputTokens": {"declared": 500, "counts": 500},
        "prefixHitTokens": {"declared": 2000, "observed": 3000, "counts": 2000},
    }
    assert side_by_side([], DECLARED, NOTHING_LEARNED, TODAY) == {}


@pytest.mark.parametrize(
    ("declared", "seen", "counts"),
    [
        pytest.param(5.0, [5.5] * 2, None, id="a tenth more is no contradiction"),
        pytest.param(5.0, [5.51] * 2, 5.51, id="more than that is"),
        pytest.param(10.0, [9.0] * 5, None, id="nor is a tenth less"),
        pytest.param(10.0, [8.9] * 5, 8.9, id="less than that is"),
    ],
)
def test_a_tenth_is_no_contradiction(declared: float, seen: list[float | None], counts: float | None) -> None:
    load = LoadSpec(requests_per_second=declared)
    assert decide(days(seen, "requests_per_second"), load, TODAY).requests_per_second == counts


@pytest.mark.parametrize(
    ("shared", "percents", "found"),
    [
        pytest.param(2000, [36] * 5, (None, None), id="a tenth fewer hits"),
        pytest.param(2000, [35] * 5, (1750, None), id="fewer than that"),
        pytest.param(2000, [44] * 5, (None, None), id="a tenth more"),
        pytest.param(2000, [45] * 5, (None, 2250), id="more than that"),
        pytest.param(None, [0] * 5, (None, None), id="nothing was declared, and nothing is hit"),
        pytest.param(None, [1] * 5, (None, 50), id="nothing was declared, and something is"),
    ],
)
def test_a_tenth_of_the_prefix_is_no_contradiction_either(
    shared: int | None, percents: list[float | None], found: tuple[int | None, int | None]
) -> None:
    learned = decide(days(percents, "hit_percent"), LoadSpec(prompt_tokens=5000, shared_prefix_tokens=shared), TODAY)
    assert (learned.shared_prefix_tokens, learned.prefix_hit_tokens) == found


def test_what_nobody_says_is_no_row() -> None:
    seen = [replace(day, requests_per_second=2.5) for day in days([30, 40])]
    found = side_by_side(seen, None, decide(seen, None, TODAY), TODAY)
    assert found == {"concurrency": {"observed": 40}, "requestsPerSecond": {"observed": 2.5, "counts": 2.5}}


def test_hits_are_of_the_prompt_that_counts() -> None:
    """Half of 3,000 tokens that were learned, not of the 1,000 that were declared; else of the planner's default."""
    seen = [replace(day, prompt_tokens=3000, hit_percent=50) for day in days([1] * 5)]
    load = LoadSpec(prompt_tokens=1000)
    learned = decide(seen, load, TODAY)
    assert learned.prefix_hit_tokens == 1500
    assert side_by_side(seen, load, learned, TODAY)["prefixHitTokens"] == {"observed": 1500, "counts": 1500}
    hits = [replace(day, prompt_tokens=None) for day in seen]
    assert decide(hits, None, TODAY).prefix_hit_tokens == DEFAULT_PROMPT_TOKENS // 2


def test_a_week_and_today_are_looked_at() -> None:
    eight = days([100] + [None] * 6 + [50], last=0)
    assert decide(eight, DECLARED, TODAY).concurrency == 50
    assert decide([replace(day, date="2026-12-01") for day in days([50, 60])], DECLARED, TODAY) == NOTHING_LEARNED


FIGURE = st.one_of(st.none(), st.integers(1, 10_000))


@st.composite
def some_days(draw: st.DrawFn) -> list[Day]:
    """Up to eight days in a row that end today or before."""
    first = TODAY - timedelta(days=draw(st.integers(7, 9)))
    return [
        Day(
            (first + timedelta(days=n)).isoformat(),
            draw(st.sampled_from([100, 1000])),
            draw(st.sampled_from([0, 6, 12, 18, 24])),
            draw(FIGURE),
            draw(st.one_of(st.none(), st.floats(0.001, 100))),
            draw(FIGURE),
            draw(FIGURE),
            draw(st.one_of(st.none(), st.integers(0, 100))),
        )
        for n in range(draw(st.integers(0, 8)))
    ]


@given(some_days(), st.integers(1, 10_000))
def test_what_counts_was_seen_or_declared(seen: list[Day], declared: int) -> None:
    load = LoadSpec(concurrency=declared, prompt_tokens=declared, output_tokens=declared)
    found = decide(seen, load, TODAY)
    for name in ("concurrency", "prompt_tokens", "output_tokens"):
        counts, values = getattr(found, name), [getattr(day, name) for day in seen]
        if counts is None:
            continue
        assert counts in values
        whole = [day for day in seen if day.hours >= 18 and day.date != TODAY.isoformat()]
        assert counts > declared or len(whole) >= 5, "less than declared needs whole days"
        assert counts < declared or sum(v is not None and v >= counts for v in values) >= 2, "more needs two days"


@given(some_days(), st.integers(0, 7))
def test_a_further_day_of_more_never_lowers_what_counts(seen: list[Day], at: int) -> None:
    if not seen:
        return
    more = [replace(day, concurrency=20_000) if n == at % len(seen) else day for n, day in enumerate(seen)]
    counts = decide(seen, DECLARED, TODAY).concurrency or DECLARED.concurrency
    assert counts is not None
    assert (decide(more, DECLARED, TODAY).concurrency or 24) >= min(counts, 24)


def spec(**load: Any) -> VLLMServiceSpec:
    return VLLMServiceSpec.model_validate(
        {
            "model": {"id": "Qwen/Qwen3-8B"},
            "hardware": {"gpu": "NVIDIA-L40S"},
            "contextTokens": 16384,
            **({"load": load} if load else {}),
        }
    )


@pytest.mark.parametrize(
    ("load", "learned", "expect"),
    [
        pytest.param({}, LearnedLoad(prompt_tokens=3000), {"prompt_tokens": 3000, "output_tokens": 256}, id="no load"),
        pytest.param({}, LearnedLoad(requests_per_second=2.5), {"rate": 2.5, "concurrency": None}, id="a rate"),
        pytest.param(
            {"promptTokens": 100, "outputTokens": 50, "promptTokensP95": 200, "concurrency": 3},
            LearnedLoad(prompt_tokens=400),
            {"prompt_tokens": 400, "output_tokens": 50, "long_prompt_tokens": 400, "concurrency": 3},
            id="longer than the longest that were declared",
        ),
        pytest.param(
            {"promptTokens": 100, "outputTokens": 50},
            LearnedLoad(prompt_tokens=40_000, output_tokens=9000),
            {"prompt_tokens": 16383, "output_tokens": 1},
            id="a context that was cut since",
        ),
        pytest.param(
            {"promptTokens": 1000, "sharedPrefixTokens": 500},
            LearnedLoad(shared_prefix_tokens=100),
            {"shared_tokens": 100, "hit_tokens": 100},
            id="shared less",
        ),
        pytest.param(
            {"promptTokens": 1000, "sharedPrefixTokens": 500},
            LearnedLoad(prefix_hit_tokens=800),
            {"shared_tokens": 500, "hit_tokens": 800},
            id="hits save computing, not blocks",
        ),
    ],
)
def test_what_was_learned_is_planned_with(load: dict[str, Any], learned: LearnedLoad, expect: dict[str, Any]) -> None:
    found = read_demand(spec(**load), learned)
    assert {key: getattr(found, key) for key in expect} == expect
    assert any("observed" in note for note in found.assumptions)


@given(st.builds(LearnedLoad, FIGURE, st.none(), FIGURE, FIGURE, FIGURE, FIGURE), st.integers(1, 16384))
def test_lengths_stay_within_the_context(learned: LearnedLoad, context: int) -> None:
    for own in (spec(), spec(promptTokens=1, outputTokens=1)):
        found = read_demand(own.model_copy(update={"context_tokens": context}), learned)
        assert found.prompt_tokens >= 1
        assert found.output_tokens >= 1
        assert found.prompt_tokens + found.output_tokens <= max(context, 2)
        assert found.shared_tokens <= found.hit_tokens <= found.prompt_tokens


def test_a_kept_load_is_read_back() -> None:
    learned = LearnedLoad(concurrency=40, requests_per_second=2.5)
    assert LearnedLoad.from_dict({**learned.to_dict(), "of_a_newer_release": 1}) == learned
    assert LearnedLoad.from_dict({}) == NOTHING_LEARNED
    assert len(FIGURES) == 5
