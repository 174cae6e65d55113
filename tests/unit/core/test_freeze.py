"""Freeze windows by the clock on the wall: days, midnight, daylight saving, zones that are none."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.freeze import DAYS, FreezeWindow
from plimsoll.core.freeze import NEVER, frozen

BERLIN = "Europe/Berlin"


def window(zone: str = BERLIN, **fields: Any) -> FreezeWindow:
    return FreezeWindow.model_validate({"timeZone": zone, **fields})


def at(text: str, zone: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


OFFICE: dict[str, Any] = {"days": ["Monday", "Tuesday"], "from": "08:00", "to": "18:00"}
NIGHT: dict[str, Any] = {"days": ["Friday"], "from": "22:00", "to": "06:00"}


@pytest.mark.parametrize(
    ("fields", "now", "until"),
    [
        # 2026-11-30 is a Monday.
        pytest.param(OFFICE, "2026-11-30T07:59:59", None, id="a second before"),
        pytest.param(OFFICE, "2026-11-30T08:00:00", "2026-11-30T18:00", id="as it begins"),
        pytest.param(OFFICE, "2026-11-30T18:00:00", None, id="as it ends"),
        pytest.param(OFFICE, "2026-12-02T12:00:00", None, id="another day"),
        pytest.param(NIGHT, "2026-12-04T23:00:00", "2026-12-05T06:00", id="in the night it began"),
        pytest.param(NIGHT, "2026-12-05T05:59:00", "2026-12-05T06:00", id="in the morning after"),
        pytest.param(NIGHT, "2026-12-04T05:00:00", None, id="in the morning of the day it begins"),
        pytest.param({"days": ["Sunday"]}, "2026-12-06T00:00:00", "2026-12-07T00:00", id="a whole day"),
        pytest.param({}, "2026-12-06T12:00:00", "2026-12-07T00:00", id="for good, a day at a time"),
        pytest.param({"from": "02:00", "to": "04:00"}, "2026-10-25T03:30:00", "2026-10-25T04:00", id="an hour twice"),
        pytest.param({"from": "01:00", "to": "05:00"}, "2026-03-29T04:30:00", "2026-03-29T05:00", id="an hour never"),
    ],
)
def test_when_it_is_frozen(fields: dict[str, Any], now: str, until: str | None) -> None:
    found = frozen([window(**fields)], at(now))
    assert (found.ends_seconds if found else None) == (at(until) if until else None)


def test_what_would_not_be_over_before_it_does_not_begin() -> None:
    windows, hour = [window(**OFFICE)], 3600.0
    assert frozen(windows, at("2026-11-30T06:59:00"), hour) is None
    found = frozen(windows, at("2026-11-30T07:01:00"), hour)
    assert found is not None
    assert found.why(at("2026-11-30T07:01:00")) == (
        "spec.tuning.freeze[0] begins at 2026-11-30T07:00Z, before it would be over"
    )


def test_what_begins_tomorrow_counts_today() -> None:
    found = frozen([window(days=["Tuesday"], to="06:00")], at("2026-11-30T23:30:00"), 3600.0)
    assert found is not None
    assert found.starts_seconds == at("2026-12-01T00:00:00")


def test_as_it_begins_it_lasts() -> None:
    now = at("2026-11-30T08:00:00")
    found = frozen([window(**OFFICE)], now)
    assert found is not None
    assert found.why(now) == "spec.tuning.freeze[0] lasts until 2026-11-30T17:00Z"


def test_of_several_the_last_to_end_counts() -> None:
    found = frozen([window(**NIGHT), window(**OFFICE), window(days=["Monday"], to="20:00")], at("2026-11-30T12:00:00"))
    assert found is not None
    assert found.why(at("2026-11-30T12:00:00")) == "spec.tuning.freeze[2] lasts until 2026-11-30T19:00Z"


@pytest.mark.parametrize("zone", ["Europe/Berln", "Europe", "A" * 64])
def test_a_zone_that_nobody_knows_freezes_for_good_and_is_named(zone: str) -> None:
    found = frozen([window("Etc/UTC", days=["Monday"]), window(zone, **OFFICE)], 0.0)
    assert found is not None
    assert found.ends_seconds == NEVER
    assert found.why(0.0).startswith(f"spec.tuning.freeze[1].timeZone: '{zone}' is no time zone")


CLOCKS = st.builds("{:02}:{:02}".format, st.integers(0, 23), st.integers(0, 59))


@given(
    st.sampled_from([BERLIN, "America/New_York", "Asia/Kathmandu", "Etc/UTC", "Pacific/Apia"]),
    st.lists(st.sampled_from(DAYS), min_size=1, unique=True),
    CLOCKS,
    CLOCKS | st.just("24:00"),
    st.integers(1_770_000_000, 1_840_000_000),
)
def test_it_is_what_the_wall_says(zone: str, days: list[str], start: str, end: str, now: int) -> None:
    """Against a reading of the clock alone; around a change of daylight saving a window may be an hour off."""
    if start == end:
        return
    wall = datetime.fromtimestamp(now, ZoneInfo(zone))
    clock, today, yesterday = wall.strftime("%H:%M"), DAYS[wall.weekday()], DAYS[wall.weekday() - 1]
    over_night = end <= start
    inside = today in days and clock >= start and (over_night or clock < end)
    inside = inside or (over_night and yesterday in days and clock < end)
    offsets = {datetime.fromtimestamp(now + hours * 3600, ZoneInfo(zone)).utcoffset() for hours in (-26, 0, 26)}
    if len(offsets) == 1:
        assert (frozen([window(zone, days=days, **{"from": start, "to": end})], now) is not None) == inside
