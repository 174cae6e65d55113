"""The real clock."""

import time
from datetime import UTC, datetime


class SystemClock:
    """Wall clock for people, monotonic clock for durations."""

    def now(self) -> str:
        """RFC 3339 in UTC, whole seconds."""
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def seconds(self) -> float:
        """Seconds since 1970, by the wall clock."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never jump."""
        return time.monotonic()
