"""When replicas move: up at once when demand is real, down slowly, never on what is not known.

Pure: values in, one decision out; ``now`` and the history are arguments, and "do nothing" is a decision with a reason
too. The simulator and the operator run this very code. Formulas and figures: ``docs/scaling.md``.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from plimsoll.api import scaling_reasons
from plimsoll.core.demand import Demand, ReplicaCapacity, demand
from plimsoll.core.signals import FleetView, Signal

RECHECK_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Tuning:
    """The constants of the law, with the defaults that ``docs/scaling.md`` argues for."""

    up_share: float = 0.85
    """Blocks in use that a replica may have before another is wanted."""
    down_share: float = 0.70
    """Blocks in use at most with one replica fewer."""
    compute_gap: float = 0.1
    """The share of time for prompts must be lower by so much on the way down."""
    spare: float = 1.0
    """So many times the need that the shares give: more costs GPUs and meets the SLO more often."""
    noise: float = 0.5
    """Head-room for small fleets: so many times the root of the need, since few requests vary more."""
    hold_seconds: float = 600.0
    """Down only to the largest need of so long."""
    step_up: int = 4
    step_up_share: float = 1.0
    step_down_share: float = 0.2
    calm_seconds: float = 60.0
    """No way down within so long of a preemption storm, or of the way up."""
    storm_per_second: float = 0.2
    gap_seconds: float = 60.0
    """When less was known for longer, the window of the way down begins anew."""
    settle_seconds: float = 30.0
    """A replica that is ready for less has taken nothing of the queue yet: it counts as one that loads."""


DEFAULTS: Final = Tuning()


def tuning(hold_seconds: float, interval_seconds: float) -> Tuning:
    """The constants with another window of the way down, a tenth of which is calm, and another tick than 15 s."""
    return Tuning(
        hold_seconds=hold_seconds,
        calm_seconds=hold_seconds / 10,
        gap_seconds=4 * interval_seconds,
        settle_seconds=2 * interval_seconds,
    )


@dataclass(frozen=True)
class Limits:
    """What the count must stay within, and who says so."""

    least: int
    most: int
    least_is: str = "scaling.minReplicas"
    most_is: str = "scaling.maxReplicas"
    reason: str = scaling_reasons.MAX_REPLICAS.name
    """Condition reason of the upper one."""

    def applied_to(self, replicas: int) -> "Decision | None":
        """The nearest count within, when this one is not: at once, whatever else is known."""
        bounded = min(max(replicas, self.least), self.most)
        if bounded == replicas:
            return None
        which = f"{self.least_is} is {self.least}" if bounded > replicas else f"{self.most_is} is {self.most}"
        return Decision(bounded, which, wanted=bounded)


@dataclass
class History:
    """What earlier decisions saw. A new one knows nothing: then nothing shrinks before a whole window has passed."""

    began_seconds: float
    needs: deque[tuple[float, float]] = field(default_factory=deque)
    """(moment, replicas needed with the way-down targets)."""
    grew_seconds: float = -math.inf
    stormed_seconds: float = -math.inf
    complete_seconds: float = -math.inf
    """When everything was known last."""

    def seen_whole(self, now: float, gap_seconds: float) -> None:
        """Everything is known now. After a longer gap the window begins anew: what was not seen was not little."""
        if self.complete_seconds > -math.inf and now - self.complete_seconds > gap_seconds:
            self.began_seconds = now
        self.complete_seconds = now

    def note(self, now: float, need: float, window_seconds: float) -> None:
        """Remember a need; those older than the window go."""
        self.needs.append((now, need))
        while self.needs[0][0] < now - window_seconds:
            self.needs.popleft()

    def may_fall_below(self, replicas: int) -> bool:
        """Whether time alone may end in fewer: less is needed now than was at some moment of the window."""
        return bool(self.needs) and math.ceil(self.needs[-1][1]) < replicas

    def largest(self) -> float:
        """The largest need within the window."""
        return max(need for _, need in self.needs)


@dataclass(frozen=True)
class Decision:
    """What to do about the number of replicas, why, and when to look again. ``valid`` is False when it is a hold."""

    replicas: int
    why: str
    valid: bool = True
    wanted: int | None = None
    """What demand alone would ask for; None when it is not known."""
    limited_by: str = ""
    """The limit that is in the way of the wanted count."""
    demand: Demand | None = None
    look_again_seconds: float = RECHECK_SECONDS

    @classmethod
    def hold(cls, replicas: int, because: str, *, wanted: int | None = None, of: Demand | None = None) -> "Decision":
        """Leave the count as it is."""
        return cls(replicas, because, valid=False, wanted=wanted, demand=of)


@dataclass(frozen=True)
class State:
    """The fleet as its owner has set it: replicas wanted until now, and what else is under way."""

    replicas: int
    busy_with: str = ""
    """A roll-out or an experiment: the count stays until it is over."""
    held_requests: float = 0.0
    """Requests that wait at a gateway because no replica is ready."""
    stuck: int = 0
    """Replicas that will not serve soon: they fail, or no node takes them. They stand in the way of nothing."""


def decide(
    capacity: ReplicaCapacity,
    view: FleetView,
    state: State,
    limits: Limits,
    history: History,
    now: float,
    tuning: Tuning = DEFAULTS,
) -> Decision:
    """The number of replicas to run from now on."""
    if outside := limits.applied_to(state.replicas):
        return outside
    if state.busy_with:
        return Decision.hold(state.replicas, f"{state.busy_with}: the count stays until it is over")
    found = demand(view, capacity, state.held_requests)
    up, down = replicas_for(found, capacity, tuning), _need_down(found, capacity, tuning)
    _remember(view, history, down, now, tuning)
    case = _Case(up, found, view, state, limits, history, now, tuning)
    if up > state.replicas:
        return _grow(case)
    if not view.complete:
        return case.hold(f"not everything is known: {view.why_incomplete or 'no replica serves'}")
    return _shrink(case)


@dataclass(frozen=True)
class _Case:
    """What one decision rests on: ``up`` replicas are what the demand ``found`` asks for."""

    up: int
    found: Demand
    view: FleetView
    state: State
    limits: Limits
    history: History
    now: float
    tuning: Tuning

    def hold(self, because: str) -> Decision:
        """Leave the count as it is."""
        return Decision.hold(self.state.replicas, because, wanted=self.up, of=self.found)


def replicas_for(found: Demand, capacity: ReplicaCapacity, tuning: Tuning = DEFAULTS) -> int:
    """Replicas that a demand asks for, head-room included, whatever runs now and whatever is allowed."""
    blocks = _roomy(found.by_blocks, tuning.up_share, tuning)
    compute = found.by_compute / capacity.prefill_share
    return math.ceil(tuning.spare * max(blocks, compute, found.by_sequences, found.by_flow))


def _need_down(found: Demand, capacity: ReplicaCapacity, tuning: Tuning) -> float:
    blocks = _roomy(found.by_blocks, tuning.down_share, tuning)
    compute = found.by_compute / max(0.1, capacity.prefill_share - tuning.compute_gap)
    return tuning.spare * max(blocks, compute, found.by_sequences / tuning.up_share, found.by_flow)


def _roomy(by_blocks: float, share: float, tuning: Tuning) -> float:
    """A need with head-room: the share that may be in use, or what small fleets need since few requests vary more."""
    return max(by_blocks / share, by_blocks + tuning.noise * math.sqrt(by_blocks))


def _remember(view: FleetView, history: History, down: float, now: float, tuning: Tuning) -> None:
    """A need from incomplete data is a lower bound: worth keeping, since it can only hold capacity longer."""
    history.note(now, down, tuning.hold_seconds)
    if view.complete:
        history.seen_whole(now, tuning.gap_seconds)
    if view.total(Signal.PREEMPTIONS).at_least(tuning.storm_per_second * len(view.serving)):
        history.stormed_seconds = now


def _grow(case: _Case) -> Decision:
    """Up at once, in bounded steps; replicas that still load count as there."""
    up, found, limits, replicas = case.up, case.found, case.limits, case.state.replicas
    serving = sum(pod.ready_seconds >= case.tuning.settle_seconds for pod in case.view.serving)
    loading = replicas - serving
    # A step is from what serves: one from what loads would grow with every look, before the first has come (C01).
    base = min(serving, replicas)
    step = max(case.tuning.step_up, math.ceil(base * case.tuning.step_up_share))
    allowed = min(up, max(replicas, base + step))
    target = min(allowed, limits.most)
    why = f"{found.bound} need {up} replicas"
    limited = f"{limits.most_is} is {limits.most}" if up > limits.most and target == limits.most else ""
    if target <= replicas:
        waits = limited or f"{loading} replicas have just come or still load, and a step is {step} at most"
        return Decision(replicas, f"{why}; {waits}", valid=False, wanted=up, limited_by=limited, demand=found)
    case.history.grew_seconds = case.now
    why = f"{why} ({found.replicas:.2f} without head-room)"
    return Decision(target, why, wanted=up, limited_by=limited, demand=found)


def _shrink(case: _Case) -> Decision:
    """Down only to the largest need of the window, a small step at a time, when nothing speaks against it."""
    replicas, largest, tuning = case.state.replicas, case.history.largest(), case.tuning
    target = max(math.ceil(largest), case.limits.least, 1)
    if target >= replicas:
        return case.hold(f"{case.found.bound} need {case.up} of {replicas} replicas")
    against = _against_shrinking(case)
    if against:
        return case.hold(f"{target} replicas would do, but {against}")
    step = max(1, math.floor(replicas * tuning.step_down_share))
    why = f"the largest need of the last {tuning.hold_seconds:.0f} s was {largest:.2f} replicas"
    return Decision(max(target, replicas - step), why, wanted=case.up, demand=case.found)


def _against_shrinking(case: _Case) -> str:
    history, tuning, now = case.history, case.tuning, case.now
    coming = case.state.replicas - len(case.view.serving) - case.state.stuck
    if now - history.began_seconds < tuning.hold_seconds:
        return f"it has not been watched for {tuning.hold_seconds:.0f} s yet"
    if coming > 0:
        return f"{coming} replicas are not ready"
    if now - history.stormed_seconds < tuning.calm_seconds:
        return "requests were preempted a moment ago"
    if now - history.grew_seconds < tuning.calm_seconds:
        return "the fleet has just grown"
    return ""
