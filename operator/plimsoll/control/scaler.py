"""How many replicas a service is to have: who sets the count, what demand says, and what is remembered between looks.

Decisions are made in ``core/scale.py`` once for each look at the fleet; limits hold at any time. What is kept here is
lost with the process, and then nothing shrinks before a whole window was watched again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from plimsoll import metrics
from plimsoll.api import scaling_reasons
from plimsoll.control import scaling_words
from plimsoll.control.budgets import Budgets
from plimsoll.control.cache import Key
from plimsoll.control.sized_fleet import Fleet
from plimsoll.core import ledger, outlook, rollout, sizing
from plimsoll.core.activation import Idle, asleep, awake, quiet
from plimsoll.core.autoscaler import contest
from plimsoll.core.budget import Claim
from plimsoll.core.conditions import Problem
from plimsoll.core.fleet_sum import FleetSum
from plimsoll.core.ledger import SCALE, Entry
from plimsoll.core.limits import limits
from plimsoll.core.loan import Lately, Lender
from plimsoll.core.outlook import Scene
from plimsoll.core.pods import start_seconds
from plimsoll.core.replay import Remembered, Scaled, Slept, Woken
from plimsoll.core.replica import capacity_of
from plimsoll.core.scale import DEFAULTS, Decision, History, Limits, State, Tuning, decide, replicas_for
from plimsoll.core.signals import FleetView, Look
from plimsoll.core.sizing import Known, Size, Start

_NOTHING_SEEN: Final = FleetView(())


class Activity(Protocol):
    """Who knows of requests that no replica has taken."""

    @property
    def templates(self) -> Collection[str]:
        """Names of the queries there are."""

    def requests(self, name: str, key: Key) -> float | None:
        """Requests for a service by one of them; None when nobody can tell."""


class Looks(Protocol):
    """Who looks at fleets."""

    def look(self, key: Key) -> Look | None:
        """The newest look at a service's fleet; None when there is no Prometheus, or nothing was sampled yet."""


@dataclass
class _Memory:
    """What this process remembers of a service."""

    wanted: int | None = None
    history: History | None = None
    looked_seconds: float | None = None
    decision: Decision | None = None
    decided_from: int | None = None
    """The count that the decision was made about."""
    seen: int | None = None
    """The workload's count, when it was looked at last."""
    unreported: list[Entry] = field(default_factory=list)
    limited_until_seconds: float = 0.0
    idle: Idle = field(default_factory=Idle)
    restless: bool = True
    rehearsed: tuple[str, str | None] | None = None
    """Reason and count of the last decision that was recorded and not acted on."""
    lately: Lately = field(default_factory=Lately)


@dataclass
class Scaler:
    """Sizes fleets. ``blind``: no Prometheus is configured, so demand will never be known."""

    looks: Looks
    activity: Activity
    budgets: Budgets
    monotonic: Callable[[], float]
    wall_seconds: Callable[[], float]
    tuning: Tuning = DEFAULTS
    blind: bool = False
    _memories: dict[Key, _Memory] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """The service is gone."""
        self._memories.pop(key, None)
        self.budgets.forget(key)
        metrics.forget_service(key.namespace, key.name)

    def start_over(self) -> None:
        """Another operator has led meanwhile: what was remembered may not be so any more."""
        self._memories.clear()

    def restless(self, key: Key) -> bool:
        """Whether the count may change, or what is said of it, while the fleet shows the same: by time, or by what
        others do that share GPUs or hold requests.
        """
        memory = self._memories.get(key)
        return memory is None or memory.restless or self.monotonic() < memory.limited_until_seconds

    def reported(self, key: Key, entries: Sequence[Entry]) -> None:
        """These decisions are in the status now."""
        if memory := self._memories.get(key):
            memory.unreported = [entry for entry in memory.unreported if entry not in entries]

    def edited_count(self, fleet: Fleet) -> int | None:
        """The count that somebody else gave the fleet; None: nobody did.

        One replica that nobody has set is what the API server makes of a workload that names no count.
        """
        memory = self._memories.get(fleet.key)
        default = fleet.given == 1 and (memory is None or memory.wanted in (None, 1))
        return None if fleet.by_us or default else fleet.given

    def size(self, fleet: Fleet) -> Size:
        """The count of a fleet at this moment."""
        memory = self._memories.setdefault(fleet.key, _Memory())
        start = self._start(fleet, memory)
        self._note(memory, start.entry)
        if start.entry is not None and start.entry.reason == sizing.TAKEN_OVER:
            memory.history, memory.idle = None, Idle()
        bounds = self._limits(fleet, start.replicas)
        decision, scene = self._decision(fleet, memory, start.replicas, bounds)
        count = self._acted_on(fleet, memory, start, decision, scene)
        memory.restless = self._restless(fleet, memory, count, bounds)
        self._claim(fleet, count, decision.wanted or 0)
        scaling_words.show(fleet, fleet.lent.runs(count), decision, scene.view)
        return self._size(fleet, memory, start, count, decision, scene)

    def _start(self, fleet: Fleet, memory: _Memory) -> Start:
        gpus, planned = rollout.gpus_per_replica(fleet.revision), rollout.planned_replicas(fleet.revision)
        asked = fleet.request.wanted_replicas(gpus, planned)
        recorded = ledger.last(fleet.decisions, SCALE)
        self._unlearn_an_old_view(fleet, memory)
        remembered = memory.wanted if fleet.auto and not fleet.request.held_because else None
        known = Known(asked, fleet.live, fleet.by_us, remembered, recorded)
        if fleet.other is not None:
            return sizing.start_yielded(known, str(fleet.other))
        if fleet.auto:
            start = sizing.start_auto(known)
            return replace(start, replicas=max(start.replicas, asked)) if self.blind else start
        start = sizing.start_asked(
            known, asked, fleet.request.spec.scaling.mode, self.wall_seconds(), self.tuning.hold_seconds
        )
        return replace(start, replicas=min(start.replicas, fleet.request.most_replicas(gpus)))

    def _unlearn_an_old_view(self, fleet: Fleet, memory: _Memory) -> None:
        """Forget what was wanted of a fleet that was not the one there is: the count is ours, and another than we have
        seen or want. An operator before us wrote it, and our view of the cluster began before that.
        """
        before, memory.seen, wanted = memory.seen, fleet.given, memory.wanted
        if fleet.by_us and wanted is not None and fleet.given not in (None, before, wanted, fleet.lent.runs(wanted)):
            memory.wanted, memory.history, memory.idle = None, None, Idle()

    def _own_limits(self, fleet: Fleet, share: Limits | None = None) -> Limits:
        least = 1 if self._may_not_sleep(fleet) else None
        return limits(fleet.request, rollout.gpus_per_replica(fleet.revision), least, share)

    def _limits(self, fleet: Fleet, count: int) -> Limits:
        """The service's own, and what a shared budget leaves it."""
        if not self.budgets.knows(fleet.key):
            self._claim(fleet, fleet.live or 0, count)
        found = self._own_limits(fleet, self.budgets.limit(fleet.key, fleet.product) if fleet.auto else None)
        if not fleet.lent.trying or count <= found.least:
            return found
        return replace(found, least=min(count, found.most), least_is="the count while an experiment runs")

    def _claim(self, fleet: Fleet, held: int, wanted: int) -> None:
        """What the service holds and wants, for those that share its GPUs."""
        own = self._own_limits(fleet)
        claim = Claim(
            service=str(fleet.key),
            gpus_per_replica=rollout.gpus_per_replica(fleet.revision),
            held=held,
            wanted=min(max(wanted, held), own.most),
            floor=own.least,
            priority=self.budgets.priority(fleet.key),
            fixed=not fleet.auto,
        )
        self.budgets.claim(fleet.key, fleet.product, claim)

    def _may_not_sleep(self, fleet: Fleet) -> bool:
        """Asked for, but nobody could wake it."""
        scaling = fleet.request.spec.scaling
        known = scaling.activation is not None and scaling.activation.query in self.activity.templates
        return scaling.mode == "Auto" and scaling.min_replicas == 0 and not known

    def _requests(self, fleet: Fleet) -> float | None:
        """Requests at the gateway; None when nobody can tell, or nobody has to."""
        scaling = fleet.request.spec.scaling
        if not fleet.auto or scaling.min_replicas > 0 or scaling.activation is None:
            return None
        return self.activity.requests(scaling.activation.query, fleet.key)

    def _decision(self, fleet: Fleet, memory: _Memory, count: int, bounds: Limits) -> tuple[Decision, Scene]:
        """What demand and limits say of the count; demand is asked once for each look."""
        look = self.looks.look(fleet.key)
        view = look.view if look else _NOTHING_SEEN
        plan, request = fleet.revision.plan, fleet.request
        capacity, starts = (
            capacity_of(plan, request.spec, view, request.load, request.step_factor),
            start_seconds(fleet.pods),
        )
        capacity = capacity if starts is None else replace(capacity, load_seconds=starts)
        scene = Scene(count, view, capacity, bounds, self.tuning)
        if outside := bounds.applied_to(count):
            return outside, _grounded(scene, State(count), self.monotonic())
        if count == 0 and fleet.auto:
            requests = self._requests(fleet) if bounds.most else None
            return awake(requests), replace(scene, grounds=lambda: Woken(requests))
        if look is None:
            text = "no Prometheus is configured" if self.blind else "no metrics have been read yet"
            return Decision.hold(count, text), scene
        if look.at_seconds == memory.looked_seconds and memory.decision is not None:
            same = memory.decided_from == count
            return (memory.decision if same else replace(memory.decision, replicas=count, valid=False)), scene
        memory.looked_seconds, memory.decided_from = look.at_seconds, count
        if fleet.lent.trying or memory.history is None:
            # What is seen while others take a part of the traffic must not count as little traffic afterwards.
            memory.history = History(look.at_seconds)
        state = State(count, fleet.busy_with, stuck=fleet.stuck(view))
        scene = _grounded(scene, state, look.at_seconds, memory.history)
        decision = decide(scene.capacity, view, state, bounds, memory.history, look.at_seconds, self.tuning)
        is_quiet = bounds.least == 0 and not fleet.busy_with and quiet(view, self._requests(fleet))
        memory.idle.note(look.at_seconds, self.tuning.gap_seconds, is_quiet=is_quiet)
        after = fleet.idle_seconds
        sleeps = asleep(memory.idle, look.at_seconds, after) if decision.replicas == count == 1 else None
        memory.decision = sleeps or decision
        slept = Slept(replace(memory.idle), look.at_seconds, after)
        return memory.decision, replace(scene, grounds=lambda: slept) if sleeps else scene

    def _acted_on(self, fleet: Fleet, memory: _Memory, start: Start, decision: Decision, scene: Scene) -> int:
        """The count that becomes of the decision, which is noted when it changes something."""
        if not fleet.auto:
            memory.wanted = None
            return start.replicas
        held = fleet.request.held_because
        if decision.replicas != start.replicas:
            entry = outlook.entry_of(decision, _reason(decision, start.replicas), scene)
            if held:
                self._rehearse(memory, entry, held)
            else:
                self._note(memory, entry)
        if held:
            return start.replicas
        memory.wanted = decision.replicas
        return decision.replicas

    def _restless(self, fleet: Fleet, memory: _Memory, count: int, bounds: Limits) -> bool:
        if not fleet.auto:
            return False
        falls = count > max(1, bounds.least) and (memory.history is None or memory.history.may_fall_below(count))
        return self.budgets.shares(fleet.product) or falls or bounds.least == 0 or fleet.lent.trying

    def _note(self, memory: _Memory, entry: Entry | None) -> None:
        if entry is not None and all(
            entry.reason != old.reason or entry.after != old.after for old in memory.unreported
        ):
            memory.unreported.append(entry)

    def _rehearse(self, memory: _Memory, entry: Entry, held: str) -> None:
        """A decision that is only recorded comes again at every look: it is told when it becomes another one."""
        if memory.rehearsed != (entry.reason, entry.after):
            memory.rehearsed = (entry.reason, entry.after)
            self._note(memory, replace(entry, message=f"not done ({held}): {entry.message}"))

    def _size(self, fleet: Fleet, memory: _Memory, start: Start, count: int, decision: Decision, scene: Scene) -> Size:
        until = None if start.until_seconds is None else start.until_seconds - self.wall_seconds()
        runs = fleet.lent.runs(count)
        return Size(
            replicas=runs,
            floor=fleet.lent.must_serve(min(runs, self._floor(fleet, memory, count))),
            ours=fleet.other is None,
            scaling=self._scaling(fleet, start, count, decision, scene),
            limited=self._limited(fleet, memory, decision, scene),
            contest=contest(fleet.other, fleet.kind) if fleet.other else None,
            refused=self._refused(fleet, scene.limits),
            entries=tuple(memory.unreported),
            again_seconds=until,
            lender=self._lender(fleet, memory, count, decision, scene),
            lent=fleet.lent,
        )

    def _lender(self, fleet: Fleet, memory: _Memory, count: int, decision: Decision, scene: Scene) -> Lender:
        """The fleet as one that may lend: what demand asks for is counted as if it alone served."""
        needed = lately = None
        if decision.demand is not None:
            share = fleet.share(scene.view)
            needed = replicas_for(decision.demand.times(1 / share), scene.capacity, self.tuning)
            lately = memory.lately.note(memory.looked_seconds or 0.0, needed)
        else:
            memory.lately = Lately()
        known = needed if scene.view.complete else None
        theirs = f"{fleet.whose}: replicas are lent in the mode Auto alone" if fleet.whose else ""
        return Lender(count, fleet.request.spec.scaling.min_replicas, known, lately, theirs)

    def _scaling(self, fleet: Fleet, start: Start, count: int, decision: Decision, scene: Scene) -> Mapping[str, Any]:
        """``status.scaling``. What an operator before us has told stays until we have looked once ourselves."""
        told = scaling_words.told(fleet, start, count, decision, scene)
        unseen = fleet.auto and not self.blind and self.looks.look(fleet.key) is None
        same = all(told[name] == fleet.told.get(name) for name in ("setBy", "recommendedReplicas"))
        return fleet.told if unseen and same else told

    def _floor(self, fleet: Fleet, memory: _Memory, count: int) -> int:
        """A fleet that was never scaled is ready as planned; later the fewest replicas that the spec asks for are."""
        spec = fleet.request.spec
        if not fleet.auto:
            return count if fleet.other is None and spec.scaling.mode == "Fixed" else 1
        noted = [entry.reason for entry in memory.unreported if entry.kind == SCALE]
        recorded = ledger.last(fleet.decisions, SCALE) or {}
        last = noted[-1] if noted else recorded.get("reason", sizing.PLANNED)
        if last == sizing.PLANNED:
            return count
        return spec.scaling.min_replicas if last in (sizing.WOKEN, sizing.IDLE) else max(1, spec.scaling.min_replicas)

    def _refused(self, fleet: Fleet, bounds: Limits) -> Problem | None:
        if fleet.auto and bounds.most == 0:
            return Problem(bounds.reason, f"no replica may run: {bounds.most_is} is 0")
        if not self._may_not_sleep(fleet):
            return None
        asked = fleet.request.spec.scaling.activation
        known = ", ".join(sorted(self.activity.templates)) or "none"
        text = (
            f"scaling.activation.query: {asked.query if asked else ''!r} is no query of this operator (there are: "
            f"{known}); the last replica stays"
        )
        return Problem(scaling_reasons.UNKNOWN_ACTIVATION.name, text)

    def _limited(self, fleet: Fleet, memory: _Memory, decision: Decision, scene: Scene) -> Problem | None:
        """Why demand does not get what it asks for. It is said for a while longer, lest noise makes it come and go."""
        if not fleet.auto:
            return None
        now = self.monotonic()
        if decision.limited_by:
            memory.limited_until_seconds = now + self.tuning.calm_seconds
        if now < memory.limited_until_seconds:
            bounds = scene.limits
            return Problem(bounds.reason, f"demand asks for more replicas: {bounds.most_is} is {bounds.most}")
        waiting = {pod.unplaced for pod in fleet.pods if pod.unplaced}
        if waiting:
            return Problem(scaling_reasons.NO_ROOM.name, f"replicas wait for a node: {'; '.join(sorted(waiting))}")
        return None


def _grounded(scene: Scene, state: State, now: float, history: History | None = None) -> Scene:
    """The scene with what the law is about to be given; the history as it is before."""
    seen = Remembered.of(history or History(now), now, scene.tuning.hold_seconds)

    def grounds() -> Scaled:
        fleet = FleetSum.of(scene.view, scene.tuning.settle_seconds)
        return Scaled(scene.capacity, fleet, state, scene.limits, seen, now, scene.tuning)

    return replace(scene, grounds=grounds)


def _reason(decision: Decision, before: int) -> str:
    if before == 0 and decision.demand is None and decision.wanted == 1:
        return sizing.WOKEN
    if decision.replicas == 0:
        return sizing.IDLE
    if decision.demand is None:
        return sizing.LIMITS
    return sizing.MORE_DEMAND if decision.replicas > before else sizing.LESS_DEMAND
