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
