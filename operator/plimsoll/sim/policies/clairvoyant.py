"""The limit: replicas set by somebody who knows the trace. No autoscaler can do it; it shows what is left to gain."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from plimsoll.core.demand import ReplicaCapacity, demand
from plimsoll.core.scale import Limits, Tuning, replicas_for
from plimsoll.sim.observe import Observation
from plimsoll.sim.policies.plimsoll import Plimsoll


class Recorder(Plimsoll):
    """Runs as many replicas as there may be, so that nothing queues, and notes what the demand would have needed."""

    def __init__(self, capacity: ReplicaCapacity, limits: Limits, tuning: Tuning) -> None:
        super().__init__(capacity, limits, tuning)
        self.needs: list[tuple[float, int]] = []
        """(moment, replicas that our own law would ask for)."""

    def decide(self, seen: Observation) -> int:
        """All of them."""
        found = demand(self.view(seen), self._capacity, seen.held)
        self.needs.append((seen.seconds, replicas_for(found, self._capacity, self._tuning)))
        return self._limits.most


class Clairvoyant:
    """Has a replica ready when it is needed, and keeps none that is not needed within a cold start."""

    interval_seconds = 15.0
    live = False

    def __init__(self, needs: Sequence[tuple[float, int]], cold_start_seconds: float) -> None:
        self._moments = [moment for moment, _ in needs]
        self._needs = [need for _, need in needs]
        self._ahead = cold_start_seconds + 2 * self.interval_seconds

    def decide(self, seen: Observation) -> int:
        """The largest need from now until a replica ordered now would serve."""
        return self.at(seen.seconds)

    def at(self, now: float) -> int:
        """The same for a moment; 1 beyond what is known."""
        begin, end = bisect_left(self._moments, now), bisect_right(self._moments, now + self._ahead)
        return max(self._needs[begin:end], default=1)
