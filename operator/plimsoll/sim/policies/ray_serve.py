"""Ray Serve's policy: ongoing requests per replica. Source: ray 2.60 ``serve/autoscaling_policy.py``, ``config.py``.

Its loop runs ten times a second; every second is enough here, since its input is a mean over 30 s.
"""

import math
from typing import Final

from plimsoll.sim.observe import Observation
from plimsoll.sim.policies.windows import Window

LOOK_BACK_SECONDS: Final = 30.0
UP_DELAY_SECONDS: Final = 30.0
DOWN_DELAY_SECONDS: Final = 600.0


class RayServe:
    """Acts when the wish has stood on one side for the whole delay."""

    interval_seconds = 1.0
    live = True

    def __init__(self, target_ongoing_requests: float = 2) -> None:
        self._target = target_ongoing_requests
        self._ongoing = Window(LOOK_BACK_SECONDS)
        self._above_since: float | None = None
        self._below_since: float | None = None

    def decide(self, seen: Observation) -> int:
        """Total ongoing requests over the target, up after 30 s and down after 600 s; from 0 to 1 at once."""
        now = seen.seconds
        self._ongoing.add(now, sum(p.sample.running + p.sample.waiting for p in seen.pods if p.sample) + seen.held)
        wish = math.ceil(self._ongoing.mean / self._target)
        self._above_since = (self._above_since or now) if wish > seen.wanted else None
        self._below_since = (self._below_since or now) if wish < seen.wanted else None
        if self._above_since is not None and (not seen.wanted or now - self._above_since >= UP_DELAY_SECONDS):
            self._above_since = None
            return wish
        if self._below_since is not None and now - self._below_since >= DOWN_DELAY_SECONDS:
            self._below_since = None
            return wish
        return seen.wanted
