"""A view of the cluster that is late, wrong in order, incomplete or old."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.adapters.ports import LEASES
from tests.faults.rig.at_write import leader
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.run import Disturbance, Outcome
from tests.faults.world.connection import Calm
from tests.faults.world.process import Process
from tests.faults.world.store import Event
from tests.faults.world.world import SETTINGS, World

SWEEP_SECONDS: Final = 1.2 * SETTINGS.sweep_seconds + 5.0
"""What every watch has missed, the next listing finds."""
LASTS_SECONDS: Final = 60.0
LATEST_SECONDS: Final = 5.0
FROZEN_SECONDS: Final = 60.0
VIEWS: Final = 60
"""So many of the last ones."""


@dataclass
class Garbled(Calm):
    """Events are dropped, doubled or late, each with its probability, until it is over."""

    world: World
    until_seconds: float
    random: random.Random
    dropped: float = 0.0
    doubled: float = 0.0
    late: float = 0.0

    def event(self, event: Event) -> Sequence[tuple[float, Event]]:
        if self.world.agenda.now >= self.until_seconds or event.kind == LEASES:
            return [(0.0, event)]
        if self.random.random() < self.dropped:
            return []
        delay = self.random.uniform(0, LATEST_SECONDS) if self.random.random() < self.late else 0.0
        again = [(self.random.uniform(0, LATEST_SECONDS), event)] if self.random.random() < self.doubled else []
        return [(delay, event), *again]


def garbled(name: str, seed: int, *, within_seconds: float, dropped: float, doubled: float, late: float) -> Disturbance:
    """What watches say is garbled for a minute."""

    def begin(world: World) -> float:
        until = world.agenda.now + LASTS_SECONDS
        leader(world).connection.interference = Garbled(world, until, random.Random(seed), dropped, doubled, late)
        return LASTS_SECONDS

    return Disturbance(f"{name} (seed {seed})", begin, extra_writes=2, within_seconds=within_seconds)


def _garbled(_: Outcome) -> Iterator[Disturbance]:
    for seed in range(4):
        share = (1.0, 0.7, 0.5, 0.3)[seed]
        yield garbled(
            f"{share:.0%} of events dropped", seed, within_seconds=SWEEP_SECONDS, dropped=share, doubled=0.0, late=0.0
        )
        yield garbled("events doubled", seed, within_seconds=30.0, dropped=0.0, doubled=1.0, late=0.0)
        yield garbled("events out of order", seed, within_seconds=30.0, dropped=0.0, doubled=0.3, late=0.7)


def disconnected(*, compacted: bool) -> Disturbance:
    """Watches say nothing for a minute, and what happened meanwhile is never told; with 410, or without."""

    def begin(world: World) -> float:
        process = leader(world)
        process.connection.interference = Garbled(
            world, world.agenda.now + LASTS_SECONDS, random.Random(1), dropped=1.0
        )
        world.agenda.after(LASTS_SECONDS, lambda: _reconnect(world, process, compacted))
        return LASTS_SECONDS

    name = "disconnected for 60 s, then 410" if compacted else "disconnected for 60 s"
    return Disturbance(name, begin, extra_writes=2, within_seconds=SWEEP_SECONDS)


def _reconnect(world: World, process: Process, compacted: bool) -> None:
    if compacted:
        world.api.store.compact()
    process.connection.cut_watches(None)


def _disconnected(_: Outcome) -> Iterator[Disturbance]:
    yield disconnected(compacted=False)
    yield disconnected(compacted=True)


def frozen(back: int) -> Disturbance:
    """The operator starts anew against an API server that is so many versions behind, for a minute."""

    def begin(world: World) -> float:
        version = world.api.store.version - back
        leader(world).kill()
        frozen_at.append(version)
        return FROZEN_SECONDS

    def meet(world: World, process: Process) -> None:
        if frozen_at:
            process.connection.frozen_at = frozen_at.pop()
            world.agenda.after(FROZEN_SECONDS, process.connection.thaw)

    frozen_at: list[int] = []
    return Disturbance(f"frozen {back} versions back", begin, meet, extra_writes=2, within_seconds=SWEEP_SECONDS)


def stalled(index: int) -> Disturbance:
    """What the operator sees stands still for a minute, from a moment after the act on."""

    def begin(world: World) -> float:
        connection = leader(world).connection

        def freeze() -> None:
            connection.frozen_at = world.api.store.version
            world.agenda.after(FROZEN_SECONDS, connection.thaw)

        world.agenda.after(0.05 * 2**index, freeze)
        return FROZEN_SECONDS

    return Disturbance(
        f"view stands still from {0.05 * 2**index:.2f} s on", begin, extra_writes=2, within_seconds=SWEEP_SECONDS
    )


def _frozen(calm: Outcome) -> Iterator[Disturbance]:
    yield from map(frozen, calm.views[:VIEWS])
    for index in range(11):
        yield stalled(index)


campaign(Campaign("events dropped, doubled, out of order", _garbled))
campaign(Campaign("disconnected, 410", _disconnected))
campaign(Campaign("stale cache, of every earlier view", _frozen))
