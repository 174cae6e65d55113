"""Runs a scenario with something going wrong, and judges it by the undisturbed run."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plimsoll.adapters.ports import EVENTS, JOBS, LEASES
from tests.faults.rig.endstate import State, differences, state
from tests.faults.rig.scenario import Scenario
from tests.faults.world.connection import Call
from tests.faults.world.process import Process
from tests.faults.world.world import NotReachedError, World

RESTART_SECONDS: Final = 1.0
"""At the least: whoever starts processes again looks at them once a second."""
STATUS: Final = "VLLMService/status"
TOLD_MORE: Final = 3
"""A status is written when what is seen says something new, and a process that starts later sees it at other moments:
that the metrics begin, that pods load. Children are written by intent alone, and counted strictly."""
OVER: Final = 0.0
"""When a disturbance ends that has no length: with the act."""


@dataclass
class Disturbance:
    """What goes wrong. ``begin`` arranges it just before the act, and says for how many seconds after it lasts.

    ``meet`` sees every process that is started later. ``check`` looks at the history when all is over.
    """

    name: str
    begin: Callable[[World], float]
    meet: Callable[[World, Process], None] = lambda _world, _process: None
    check: Callable[[World], list[str]] = lambda _world: []
    extra_writes: int | None = 1
    """Writes more than undisturbed that one child may have; None: not counted."""
    told_more: int = TOLD_MORE
    """As many more may be of the status."""
    within_seconds: float | None = None
    """So soon after its end the scenario must be done (if undisturbed it is done at once)."""


CALM: Final = Disturbance("nothing", lambda _: OVER)


@dataclass(frozen=True)
class Outcome:
    """What came of a scenario."""

    end: State
    seconds: float
    """From the act until it was done."""
    writes: Counter[str]
    """Of the operators since the act, by object and door; Events and Leases left out."""
    calls: int
    """All their writes since the act but those of Leases: at each of them something may go wrong."""
    late_seconds: float = 0.0
    """From the end of what went wrong until it was done."""
    wrong: tuple[str, ...] = ()
    views: tuple[int, ...] = ()
    """How many versions before the act each view of the cluster lies that somebody could have had, the newest first."""


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a run, if anything. ``cases``: so many lead into the very same run."""

    case: str
    wrong: tuple[str, ...] = ()
    extra_writes: int = 0
    late_seconds: float = 0.0
    cases: int = 1


@dataclass
class Keeper:
    """Starts what has gone again, as a kubelet does."""

    world: World
    disturbance: Disturbance
    restarts: int = 0

    def __call__(self) -> None:
        self.world.agenda.at(restart_seconds(self.world.agenda.now), self._restart)

    def _restart(self) -> None:
        self.restarts += 1
        self.disturbance.meet(self.world, self.world.start_operator(f"restarted-{self.restarts}"))


def restart_seconds(gone_seconds: float) -> float:
    """When a process that went at one moment is started again."""
    return math.ceil(gone_seconds + RESTART_SECONDS)


def prepared(scenario: Scenario) -> World:
    """The world of a scenario at rest, with an operator that leads."""
    world = scenario.make()
    process = world.start_operator("first")
    world.until(lambda: process.leads, what="the first operator leads")
    world.run(1.0)
    scenario.prepare(world)
    return world


def play(world: World, scenario: Scenario, disturbance: Disturbance = CALM) -> Outcome:
    """Run a scenario from where it was prepared. NotReachedError when it is not done in time, and stays so."""
    world.keepers.append(Keeper(world, disturbance))
    before = {id(p): (len(p.connection.calls), len(p.connection.done)) for p in world.processes}
    views, began = _views(world), world.agenda.now
    lasts = disturbance.begin(world)
    scenario.act(world)
    took = world.until(lambda: scenario.done(world), scenario.within_seconds + lasts, f"{scenario.name} done")
    world.run(max(0.0, began + lasts - world.agenda.now))
    late = world.until(lambda: scenario.done(world), scenario.within_seconds, f"{scenario.name} done again")
    late = max(took - lasts, late)
    # Who stands still may have done the last that was waited for, and not yet what follows from it.
    world.until(lambda: not any(process.stopped for process in world.alive), scenario.within_seconds, "all go on")
    world.run(scenario.quiet_seconds)
    if not scenario.done(world):
        raise NotReachedError(f"{scenario.name} was done and is not any more\n{world.describe()}")
    calls = sum(len(p.connection.calls) - before.get(id(p), (0, 0))[0] for p in world.processes)
    done = [call for p in world.processes for call in p.connection.done[before.get(id(p), (0, 0))[1] :]]
    writes = Counter(written(call) for call in done if call.kind != EVENTS)
    wrong = (*world.unexpected.found[:1], *disturbance.check(world))
    return Outcome(state(world), took, writes, calls, late, wrong, views)


def _views(world: World) -> tuple[int, ...]:
    """Leases are read one by one, and no reader of those lags."""
    store = world.api.store
    changes = [event.version for event in store.history if event.kind != LEASES and event.version > world.made_at]
    return (0, *(store.version - version + 1 for version in reversed(changes)))


def written(call: Call) -> str:
    """The object that a call writes, and by which door; of a Job without the end of its name, that of one run."""
    name = call.name.rpartition("-")[0] if call.kind == JOBS else call.name
    return f"{call.kind.kind}/{call.subresource} {call.namespace}/{name}"


def counts(call: Call) -> bool:
    """Whether this is one of the writes of a scenario."""
    return call.is_write and call.kind != LEASES


def judge(world: World, scenario: Scenario, disturbance: Disturbance, calm: Outcome) -> Verdict:
    """Run with the disturbance, and compare with the undisturbed run."""
    try:
        found = play(world, scenario, disturbance)
    except NotReachedError as error:
        return Verdict(f"{scenario.name}: {disturbance.name}", (str(error),))
    wrong = [*found.wrong, *differences(calm.end, found.end)]
    extra = {what: count - calm.writes.get(what, 0) for what, count in found.writes.items()}
    told = max([count for what, count in extra.items() if what.startswith(STATUS)], default=0)
    extra = {what: count for what, count in extra.items() if not what.startswith(STATUS)}
    if disturbance.extra_writes is not None:
        allowed = disturbance.extra_writes
        wrong += [f"{what} was written {count} times more" for what, count in extra.items() if count > allowed]
        if told > allowed + disturbance.told_more + scenario.told_more:
            wrong.append(f"the status was written {told} times more")
    late = max(0.0, found.late_seconds - calm.seconds)
    if disturbance.within_seconds is not None and late > disturbance.within_seconds:
        wrong.append(f"done {late:.0f} s after it was over, {disturbance.within_seconds:.0f} allowed")
    return Verdict(f"{scenario.name}: {disturbance.name}", tuple(wrong), max(0, *extra.values(), 0), late)
