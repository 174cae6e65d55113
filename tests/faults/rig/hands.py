"""Several operators, leases that are lost, processes that stand still, clocks that jump."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from plimsoll.adapters.ports import LEASES
from tests.faults.rig.at_write import at_write, leader
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.run import Disturbance, Outcome
from tests.faults.world.process import Process
from tests.faults.world.world import World

STOPPED_SECONDS: Final = 60.0
JUMP_SECONDS: Final = 600.0
JUMPED_SECONDS: Final = 60.0
"""So soon after a jump all is as without it."""


def lose_the_lease(world: World, _: Process) -> None:
    """Somebody else has taken the Lease, and is never seen again."""
    for lease in [*world.api.store.all(LEASES)]:
        meta = lease["metadata"]
        taken = {"spec": {"holderIdentity": "somebody", "renewTime": "2026-01-01T00:00:00.000000Z"}}
        world.api.patch(LEASES, meta["namespace"], meta["name"], taken, "somebody")


def stop(world: World, process: Process) -> None:
    """SIGSTOP, and SIGCONT a minute later."""
    process.stopped = True
    process.loop.stop()

    def go_on() -> None:
        process.stopped = False

    world.agenda.after(STOPPED_SECONDS, go_on)


def jumping(seconds: float, index: int) -> Disturbance:
    """The operator's wall clock is set."""

    def jump(_: World, process: Process) -> None:
        process.clock.ahead_seconds = seconds

    return Disturbance(
        f"clock jumps by {seconds:+.0f} s at write {index}",
        at_write(index, jump),
        extra_writes=0,
        within_seconds=JUMPED_SECONDS,
    )


def _lease_lost(calm: Outcome) -> Iterator[Disturbance]:
    for index in range(calm.calls):
        yield Disturbance(f"lease lost at write {index}", at_write(index, lose_the_lease))


def _with_standby(name: str, index: int) -> Disturbance:
    begin = at_write(index, stop)

    def with_another(world: World) -> float:
        world.start_operator("standby")
        world.run(1)
        return begin(world)

    return Disturbance(name, with_another)


def _stopped(calm: Outcome) -> Iterator[Disturbance]:
    for index in range(calm.calls):
        yield Disturbance(f"SIGSTOP for 60 s at write {index}", at_write(index, stop))
        yield _with_standby(f"SIGSTOP for 60 s at write {index}, with a standby", index)


def _jumps(calm: Outcome) -> Iterator[Disturbance]:
    for index in range(calm.calls):
        yield jumping(JUMP_SECONDS, index)
        yield jumping(-JUMP_SECONDS, index)


def _second_install() -> Disturbance:
    """Another install that serves the same namespaces: one of them yields."""

    def begin(world: World) -> float:
        world.start_operator("elsewhere", replace(world.settings, namespace="llm"))
        return 0.0

    return Disturbance("a second install", begin, extra_writes=1)


def _standby_killed() -> Disturbance:
    def begin(world: World) -> float:
        world.start_operator("standby")
        world.agenda.after(0.02, lambda: leader(world).kill())
        return 0.0

    return Disturbance("the leader dies, a standby follows", begin)


def _several(_: Outcome) -> Iterator[Disturbance]:
    yield _second_install()
    yield _standby_killed()


campaign(Campaign("lease lost in the middle", _lease_lost))
campaign(Campaign("SIGSTOP of 60 s", _stopped))
campaign(Campaign("clock jumps of ± 10 minutes", _jumps))
campaign(Campaign("several operators", _several))
