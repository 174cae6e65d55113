"""AIBrix's APA on the mean of the KV-cache use of all pods.

Source: vllm-project/aibrix ``pkg/controller/podautoscaler`` (e3e10f9). ``n`` is the number of replicas wanted, those
that still load included, so ``n × r`` compounds while new pods start.
"""

import math
from typing import Final

from plimsoll.sim.observe import Observation
from plimsoll.sim.policies.hpa import values
from plimsoll.sim.policies.windows import Window

RESYNC_SECONDS: Final = 10.0
STABLE_SECONDS: Final = 180.0
COOL_DOWN_SECONDS: Final = 300.0
FLUCTUATION: Final = 0.1
MOST_UP: Final = 2.0


class AibrixApa:
    """Ratio of mean to target, with a dead band and at most a doubling or a halving at once."""

    interval_seconds = RESYNC_SECONDS
    live = False

    def __init__(self, target: float = 0.5) -> None:
        self._target = target
        self._means, self._wishes = Window(STABLE_SECONDS), Window(COOL_DOWN_SECONDS)

    def decide(self, seen: Observation) -> int:
        """Up at once, down to the largest wish of the cool-down window."""
        found, _, _ = values(seen, lambda sample: sample.usage)
        if not found:
            return seen.wanted
        self._means.add(seen.seconds, sum(found) / len(found))
        wish = self.wish(seen.wanted, self._means.mean / self._target)
        self._wishes.add(seen.seconds, wish)
        return wish if wish >= seen.wanted else min(seen.wanted, int(self._wishes.most))

    @staticmethod
    def wish(replicas: int, ratio: float) -> int:
        """Replicas for a ratio of mean to target."""
        if ratio > 1 + FLUCTUATION:
            return min(math.ceil(replicas * ratio), math.ceil(MOST_UP * replicas))
        if ratio < 1 - FLUCTUATION:
            return max(math.ceil(replicas * ratio), replicas // 2)
        return replicas
