"""When experiments are frozen: times of the week by the clock of a time zone. Pure: windows and ``now`` in.

A window is from one moment to another on the wall, so with daylight saving it lasts an hour more or less twice a year.
A zone that nobody knows freezes for good: whoever wrote the window meant that something must not happen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from plimsoll.api.freeze import DAYS, FreezeWindow

FIELD: Final = "spec.tuning.freeze"
NEVER: Final = float("inf")
_MIDNIGHT: Final = "24:00"


@dataclass(frozen=True)
class Freeze:
    """One window at one time. Seconds since 1970."""

    which: str
    starts_seconds: float
    ends_seconds: float

    def why(self, now: float) -> str:
        """Why nothing begins at that moment, in words that stay the same until it is over."""
        if self.ends_seconds == NEVER:
            return self.which
        if self.starts_seconds > now:
            return f"{self.which} begins at {_said(self.starts_seconds)}, before it would be over"
        return f"{self.which} lasts until {_said(self.ends_seconds)}"


def frozen(windows: Sequence[FreezeWindow], now: float, ahead_seconds: float = 0.0) -> Freeze | None:
    """The window that ends last of those that lie within now and so much later, a day at most; None: there is none."""
    found = (each for at, window in enumerate(windows) for each in _around(f"{FIELD}[{at}]", window, now))
    meeting = (each for each in found if each.starts_seconds <= now + ahead_seconds and now < each.ends_seconds)
    return max(meeting, key=lambda each: each.ends_seconds, default=None)


def _around(name: str, window: FreezeWindow, now: float) -> Iterator[Freeze]:
    """The window as it falls on yesterday, today, tomorrow."""
    try:
        zone = ZoneInfo(window.time_zone)
    except (KeyError, ValueError, OSError):  # none of that name; a name that is a folder
        text = f"{name}.timeZone: {window.time_zone!r} is no time zone of the IANA data base, such as Europe/Berlin"
        yield Freeze(text, -NEVER, NEVER)
        return
    today = datetime.fromtimestamp(now, zone).date()
    for day in (today + timedelta(days=offset) for offset in (-1, 0, 1)):
        if DAYS[day.weekday()] in (window.days or DAYS):
            after = day + timedelta(days=window.to <= window.from_)
            yield Freeze(name, _seconds(day, window.from_, zone), _seconds(after, window.to, zone))


def _seconds(day: date, clock: str, zone: ZoneInfo) -> float:
    if clock == _MIDNIGHT:
        day, clock = day + timedelta(days=1), "00:00"
    return datetime.combine(day, time.fromisoformat(clock), zone).timestamp()


def _said(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%MZ")
