"""Ticks of a fleet → the figures of a day: what is not seen is neither traffic nor rest; what stays is told once."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.core.signals import MISSING, NEEDED, FleetView, PodView, Reading, Sample, Signal
from plimsoll.core.traffic import Day, Tick, Traffic, after, begin, from_status, read, to_status, told

MORNING = datetime(2026, 11, 30, 0, 0, 0, tzinfo=UTC).timestamp()
SECONDS = 15.0
BUSY = Tick(
    in_flight=31.0,
    arriving=2.1,
    finished=2.0,
    prompt_tokens=8000,
    output_tokens=800,
    hit_tokens=2400,
    asked_tokens=8000,
)
IDLE = Tick(0, 0, 0, 0, 0)


def run(tick: Tick | None, minutes: float, traffic: Traffic | None = None, start: float = 0.0) -> Traffic:
    """So many minutes of the same; ``start`` counts from the morning."""
    found = traffic or begin((), MORNING)
    for n in range(int(minutes * 60 / SECONDS)):
        found = after(found, tick, start + n * SECONDS, MORNING + start + n * SECONDS)
    return found


def test_a_day_of_the_same() -> None:
    assert told((), run(BUSY, 60)) == (
        Day(
            "2026-11-30",
            requests=1000,
            hours=0,
            concurrency=31,
            requests_per_second=2.1,
            prompt_tokens=4000,
            output_tokens=400,
            hit_percent=30,
        ),
    )


def test_too_few_requests_say_nothing() -> None:
    assert told((), run(replace(BUSY, finished=0.01), 60)) == ()
    assert told((), run(IDLE, 24 * 60)) == ()


def test_a_busy_time_lasts_five_minutes() -> None:
    rest = run(BUSY, 20)
    spike = run(replace(BUSY, in_flight=1000), 0.25, rest, start=20 * 60)
    after_it = run(BUSY, 20, spike, start=20.25 * 60)
    (day,) = told((), after_it)
    assert day.concurrency is not None
    assert 31 < day.concurrency < 100
    (long,) = told((), run(BUSY, 20, run(replace(BUSY, in_flight=1000), 6, rest, start=20 * 60), start=26 * 60))
    assert long.concurrency == 1000


def test_what_is_not_seen_is_not_counted() -> None:
    seen = run(BUSY, 10)
    blind = run(None, 60, seen, start=10 * 60)
    again = after(blind, BUSY, 70 * 60, MORNING + 70 * 60)
    assert (again.requests, again.seconds) == (seen.requests, seen.seconds)
    # A look stands for a minute at most: ticks that were passed over a longer time were not watched.
    late = after(seen, BUSY, 9.75 * 60 + 3600, MORNING + 9.75 * 60 + 3600)
    assert late.seconds == seen.seconds + 60


def test_a_day_ends_at_midnight() -> None:
    day = run(BUSY, 24 * 60)
    first = told((), day)
    assert (first[0].hours, first[0].requests) == (21, 100_000)
    second = run(replace(BUSY, in_flight=5), 30, day, start=24 * 3600)
    found = told(first, second)
    assert [each.date for each in found] == ["2026-11-30", "2026-12-01"]
    assert found[0] == first[0]
    assert found[1].concurrency == 5
    back = after(second, BUSY, 25 * 3600, MORNING)
    assert back.date == "2026-12-01", "a clock that is set back goes on with the day"


def test_eight_days_are_kept() -> None:
    days: tuple[Day, ...] = ()
    for n in range(10):
        days = told(days, replace(run(BUSY, 5), date=f"2026-12-{n + 1:02}"))
    assert [day.date[-2:] for day in days] == ["03", "04", "05", "06", "07", "08", "09", "10"]


def test_what_moves_little_is_not_told_again() -> None:
    """Two days' worth of the same traffic with noise of 8 %: a handful of statuses."""
    days: tuple[Day, ...] = ()
    now, writes = begin((), MORNING), 0
    for n in range(2 * 24 * 3600 // 15):
        noise = 1 + 0.08 * (-1) ** (n // 40)
        tick = replace(BUSY, in_flight=31 * noise, prompt_tokens=8000 * noise, output_tokens=800 / noise)
        now = after(now, tick, n * SECONDS, MORNING + n * SECONDS)
        days, before = told(days, now), days
        writes += days != before
    assert len(days) == 2
    assert writes <= 2 * 14, "a day, its decades of requests, its hours in steps, and what settles in its first minutes"


@given(st.floats(0.01, 10_000), st.floats(0.0001, 500))
def test_what_is_told_is_near_and_not_below(in_flight: float, rate: float) -> None:
    traffic = Traffic("2026-11-30", requests=1000, concurrency=in_flight, requests_per_second=rate)
    (day,) = told((), traffic)
    assert day.concurrency is not None
    assert day.requests_per_second is not None
    assert in_flight <= day.concurrency <= max(1, in_flight * 1.1 + 1)
    assert rate * 0.999 <= day.requests_per_second <= rate * 1.101


def test_who_starts_anew_goes_on() -> None:
    half = run(BUSY, 12 * 60)
    days = told((), half)
    again = begin(from_status(to_status(days)), MORNING + 12 * 3600)
    assert told(days, again) == days, "nothing to write"
    (day,) = told(days, run(BUSY, 11.9 * 60, again, start=12 * 3600))
    assert day == replace(days[0], hours=18), "a restart costs a step of the watch at most"
    assert begin(days, MORNING + 86_400).requests == 0


def test_days_are_read_back() -> None:
    days = (Day("2026-11-29", 100, 6, hit_percent=0), Day("2026-11-30", 1000, 18, 31, 2.1, 4000, 400, 30))
    assert from_status([{**each, "ofANewerRelease": 1} for each in to_status(days)]) == days
    assert to_status(days)[1]["prefixHitPercent"] == 30


def fleet(*engines: dict[Signal, Reading]) -> FleetView:
    return FleetView(tuple(PodView(f"p{n}", "ready", engines={"0": said}) for n, said in enumerate(engines)))


def engine(**figures: float) -> dict[Signal, Reading]:
    rest = dict.fromkeys((*NEEDED, Signal.REQUESTS, Signal.FINISHED, Signal.GENERATION_TOKENS), Sample(0.0))
    return {**rest, **{Signal[name]: Sample(value) for name, value in figures.items()}}


def test_a_fleet_is_the_sum_of_its_engines() -> None:
    one = engine(
        RUNNING=8, WAITING=2, REQUESTS=1.5, FINISHED=1, PROMPT_TOKENS=3000, GENERATION_TOKENS=90, HIT_RATIO=0.5
    )
    two = engine(RUNNING=4, WAITING=90, REQUESTS=0.5, FINISHED=1, PROMPT_TOKENS=1000, GENERATION_TOKENS=60)
    found = read(fleet(one, two))
    # As many of a queue count as run; an engine that tells no hits has none to weigh.
    assert found == Tick(24, 2.0, 2.0, 4000, 150, hit_tokens=1500, asked_tokens=3000)


@pytest.mark.parametrize(
    "lost", [Signal.RUNNING, Signal.FINISHED, Signal.REQUESTS, Signal.GENERATION_TOKENS, Signal.USAGE]
)
def test_missing_is_not_zero(lost: Signal) -> None:
    assert read(fleet(engine(), {**engine(), lost: MISSING})) is None
    assert read(replace(fleet(engine()), error="Prometheus is away")) is None
    assert read(fleet()) is None
    assert read(fleet(engine())) == IDLE


def test_a_look_stands_for_the_time_since_the_one_before() -> None:
    first = after(Traffic("2026-11-30"), BUSY, 100.0, MORNING)
    assert (first.seconds, first.requests, first.at_seconds) == (0, 0, 100.0), "nobody knows what was before it"
    second = after(first, BUSY, 110.0, MORNING + 10)
    assert second == replace(
        second,
        seconds=10,
        requests=20,
        prompt_tokens=80_000,
        output_tokens=8000,
        hit_tokens=24_000,
        asked_tokens=80_000,
    )
    back = after(second, BUSY, 90.0, MORNING + 10)
    assert (back.seconds, back.requests, back.at_seconds) == (10, 20, 90.0), "a clock set back takes nothing away"


def test_what_was_told_of_today_is_where_a_new_operator_begins() -> None:
    seen = Day("2026-11-30", 1000, 6, 31, 2.1, 4000, 400, 30)
    assert begin([replace(seen, date="2026-11-29"), seen], MORNING + 8 * 3600) == Traffic(
        date="2026-11-30", seconds=6 * 3600, requests=1000, prompt_tokens=4_000_000, output_tokens=400_000,
        hit_tokens=1_200_000, asked_tokens=4_000_000, concurrency=31, requests_per_second=2.1,
    )  # fmt: skip
    assert begin([Day("2026-11-30", 100, 3)], MORNING) == Traffic("2026-11-30", seconds=3 * 3600, requests=100)
    none_hit = begin([replace(seen, hit_percent=0)], MORNING)
    assert (none_hit.hit_tokens, none_hit.asked_tokens) == (0, 4_000_000), "no hits are something that was seen"


@pytest.mark.parametrize(
    ("looks", "concurrency"),
    [
        pytest.param(8, 0, id="105 of its seconds were seen"),
        pytest.param(9, 31, id="120 were"),
    ],
)
def test_five_minutes_count_when_enough_of_them_was_seen(looks: int, concurrency: float) -> None:
    seen = run(BUSY, looks * SECONDS / 60)
    over = after(after(seen, None, 200.0, MORNING + 200), IDLE, 300.0, MORNING + 300)
    assert over.concurrency == concurrency
    assert over.requests_per_second == pytest.approx(concurrency * 2.1 / 31)


@pytest.mark.parametrize(
    ("now", "before", "figure", "expect"),
    [
        pytest.param({"requests": 999.0}, {}, "requests", 100, id="decades of requests"),
        pytest.param({"requests": 1000.0}, {}, "requests", 1000, id="the next decade"),
        pytest.param({"requests": 100.0}, {"requests": 1000}, "requests", 1000, id="told already"),
        pytest.param({"seconds": 3 * 3600 - 1.0}, {}, "hours", 0, id="not three hours"),
        pytest.param({"seconds": 3 * 3600.0}, {}, "hours", 3, id="three hours"),
        pytest.param({"seconds": 23 * 3600.0}, {}, "hours", 21, id="whole steps of three"),
        pytest.param({"seconds": 3600.0}, {"hours": 6}, "hours", 6, id="watched by another before"),
        pytest.param({"concurrency": 109.0}, {"concurrency": 100}, "concurrency", 100, id="within a tenth"),
        pytest.param({"concurrency": 110.0}, {"concurrency": 100}, "concurrency", 110, id="a tenth more"),
        pytest.param({"concurrency": 91.0}, {"concurrency": 100}, "concurrency", 100, id="within a tenth below"),
        pytest.param({"concurrency": 90.0}, {"concurrency": 100}, "concurrency", 90, id="a tenth less"),
        pytest.param({"concurrency": 0.0}, {"concurrency": 100}, "concurrency", 100, id="nothing seen yet"),
        pytest.param({"concurrency": 312.0}, {}, "concurrency", 320, id="up to two digits"),
        pytest.param({"concurrency": 31.0}, {}, "concurrency", 31, id="two digits already"),
        pytest.param({"concurrency": 0.3}, {}, "concurrency", 1, id="one at least"),
        pytest.param({"requests_per_second": 0.0123}, {}, "requests_per_second", 0.013, id="two digits of a fraction"),
        pytest.param({"requests_per_second": 9.91}, {}, "requests_per_second", 10.0, id="a digit more"),
        pytest.param({"prompt_tokens": 7e6}, {}, "prompt_tokens", 7000, id="a prompt is a thousandth of all"),
        pytest.param({"output_tokens": 2.5e5}, {}, "output_tokens", 250, id="so is an answer"),
        pytest.param({"hit_tokens": 79.0, "asked_tokens": 1000.0}, {}, "hit_percent", 7, id="whole points"),
        pytest.param({"hit_tokens": 399.0, "asked_tokens": 1000.0}, {"hit_percent": 30}, "hit_percent", 30, id="near"),
        pytest.param({"hit_tokens": 400.0, "asked_tokens": 1000.0}, {"hit_percent": 30}, "hit_percent", 40, id="up"),
        pytest.param({"hit_tokens": 200.0, "asked_tokens": 1000.0}, {"hit_percent": 30}, "hit_percent", 20, id="down"),
        pytest.param({}, {"hit_percent": 30}, "hit_percent", 30, id="nobody looks for hits now"),
        pytest.param({}, {}, "hit_percent", None, id="nobody ever did"),
    ],
)  # fmt: skip
def test_what_is_told_moves_in_steps(
    now: dict[str, float], before: dict[str, float], figure: str, expect: float | None
) -> None:
    seen = replace(Traffic("2026-11-30", requests=1000), **now)  # type: ignore[arg-type]
    days = [replace(Day("2026-11-30", 0, 0), **before)] if before else []  # type: ignore[arg-type]
    (day,) = told(days, seen)
    assert getattr(day, figure) == expect


def test_a_hundred_requests_are_enough_to_be_told() -> None:
    assert told((), Traffic("2026-11-30", requests=99.9)) == ()
    assert [day.requests for day in told((), Traffic("2026-11-30", requests=100))] == [100]


def test_an_engine_that_tells_half_of_its_hits_is_not_weighed() -> None:
    one = engine(RUNNING=1, PROMPT_TOKENS=1000, HIT_RATIO=0.25)
    two = {**engine(RUNNING=1, PROMPT_TOKENS=500), Signal.HIT_RATIO: MISSING}
    found = read(fleet(one, two))
    assert found is not None
    assert (found.hit_tokens, found.asked_tokens, found.prompt_tokens) == (250, 1000, 1500)
