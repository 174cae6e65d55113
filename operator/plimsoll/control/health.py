"""What the probes say. Alive: the loop beats and listings are attempted. Ready: it could act, as leader or next.

Only readiness needs the API server to answer: an outage must not become a crash loop. A standby is ready, so that a
rolling update goes on and the next leader is known to be fit.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plimsoll.control.leadership import Elector
from plimsoll.control.optional import OptionalKinds
from plimsoll.control.sweep import Sweep

STUCK_SECONDS: Final = 60.0
SILENT_API_SECONDS: Final = 60.0


@dataclass
class Health:
    """The answers of one operator. ``silent_seconds``: for how long every call to the API server has failed."""

    sweep: Sweep
    optional: OptionalKinds
    elector: Elector
    silent_seconds: Callable[[], float]
    monotonic: Callable[[], float]
    beat_seconds: float
    """When the event loop last beat, on our clock."""
    unserved: str = ""
    """Why VLLMServices cannot be worked with yet, or empty."""

    def beat(self) -> None:
        """The event loop turns."""
        self.beat_seconds = self.monotonic()

    def wait_for(self, what: str) -> None:
        """VLLMServices cannot be worked with because of this; empty: they can."""
        self.unserved = what

    def alive(self) -> str | None:
        """What is wrong with the process itself, or None."""
        now = self.monotonic()
        if now - self.beat_seconds > STUCK_SECONDS:
            return f"the event loop has not beaten for {now - self.beat_seconds:.0f} s"
        overdue = now - self.sweep.attempted_seconds - 2 * self.sweep.interval_seconds
        if self.sweep.synced.is_set() and overdue > STUCK_SECONDS:
            return f"no listing was attempted for {now - self.sweep.attempted_seconds:.0f} s"
        return None

    def ready(self) -> str | None:
        """What keeps it from acting if it is its turn, or None."""
        if self.unserved:
            return f"waiting: {self.unserved}"
        if self.elector.problem:
            return self.elector.problem
        if not self.sweep.synced.is_set():
            return "waiting for the first listing of VLLMServices and their children"
        if not self.optional.known.is_set():
            return "waiting to find out which optional kinds are served"
        silent = self.silent_seconds()
        return f"the API server has not answered for {silent:.0f} s" if silent > SILENT_API_SECONDS else None
