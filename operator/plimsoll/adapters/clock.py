"""The real clock."""

import time
from datetime import UTC, datetime


def monotonic() -> float:
    """Seconds that never jump and, where the system offers it, go on while the machine sleeps.

    A paused machine must not believe that its Lease is still fresh.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class SystemClock:
    """Wall clock for people, monotonic clock for durations."""

    def now(self) -> str:
        """RFC 3339 in UTC, whole seconds."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def wall_seconds(self) -> float:
        """Seconds since 1970, by the wall clock."""
        return time.time()

    def stamp(self) -> str:
        """RFC 3339 in UTC, microseconds, as Leases carry it."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return monotonic()
