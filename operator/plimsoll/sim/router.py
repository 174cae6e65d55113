"""Which replica gets a request."""

import hashlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from plimsoll.sim.requests import Request

if TYPE_CHECKING:
    from plimsoll.sim.fleet import Replica

CROWDED: Final = 1.25
"""A prefix's own replica is passed over once it has so many times the mean of outstanding requests."""


class Router(Protocol):
    """Chooses among ready replicas, of which there is at least one."""

    def choose(self, ready: Sequence["Replica"], request: Request) -> "Replica":
        """The replica that gets the request."""


class LeastOutstanding:
    """The replica with the fewest requests that are not finished; the oldest of equals."""

    def choose(self, ready: Sequence["Replica"], request: Request) -> "Replica":  # noqa: ARG002 - the protocol's
        """Whoever has least to do."""
        return min(ready, key=attrgetter("outstanding"))


class ConnectionRandom:
    """What a ClusterIP Service amounts to: a random endpoint for each connection, whatever it is doing."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - a simulation

    def choose(self, ready: Sequence["Replica"], request: Request) -> "Replica":  # noqa: ARG002 - the protocol's
        """Anybody."""
        return ready[int(self._random.random() * len(ready))]


class PrefixAware:
    """Requests with the same first piece go to the same replica (rendezvous hashing) unless it is crowded."""

    def choose(self, ready: Sequence["Replica"], request: Request) -> "Replica":
        """The first in the order that this prefix gives the replicas, and that is not crowded."""
        if not request.prefix:
            return min(ready, key=attrgetter("outstanding"))
        key = repr(request.prefix[0][0])
        limit = CROWDED * (sum(replica.outstanding for replica in ready) + 1) / len(ready)
        ranked = sorted(ready, key=lambda replica: _weight(key, replica.name), reverse=True)
        return next((replica for replica in ranked if replica.outstanding < limit), ranked[0])


def _weight(key: str, name: str) -> bytes:
    return hashlib.blake2b(f"{key}/{name}".encode(), digest_size=8).digest()


ROUTERS: Final[dict[str, Callable[[int], Router]]] = {
    "least-outstanding": lambda _seed: LeastOutstanding(),
    "connection-random": ConnectionRandom,
    "prefix": lambda _seed: PrefixAware(),
}
"""By the name that ``plimsoll simulate --router`` takes; each is made with a seed."""
