"""A fixed number of replicas."""

from plimsoll.sim.observe import Observation


class Static:
    """The same number for ever."""

    interval_seconds = 15.0
    live = False

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas

    def decide(self, seen: Observation) -> int:  # noqa: ARG002 - the protocol's
        """The number."""
        return self._replicas
