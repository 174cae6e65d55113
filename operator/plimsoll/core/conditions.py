"""What is true of a service → its conditions. Ordered small checks, kstatus-compatible; transition times move on a
flip only.

``Ready`` summarises for people and for ``kubectl wait``; ``Reconciling`` and ``Stalled`` are what Flux and Argo CD
read. Autoscaling never sets ``Reconciling`` nor drops ``Ready`` (decision 11): the floor is what must serve.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.api import names, reasons, write_reasons
from plimsoll.api.reasons import Reason
from plimsoll.core.obstacle import Obstacle
from plimsoll.core.pods import Phase

MESSAGE_LIMIT: Final = 2000


@dataclass(frozen=True)
class Condition:
    """One condition as decided now; its times are added when it is merged with what the object says."""

    type: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True)
class Problem:
    """Why a human is needed: a reason of the reference, and the sentence that goes with it."""

    reason: str
    message: str


@dataclass(frozen=True)
class Contest:
    """Somebody keeps changing what is ours. ``fleet_differs``: pods therefore do not run what was planned."""

    problem: Problem
    fleet_differs: bool = False


@dataclass(frozen=True)
class Fleet:
    """The main workload as last observed."""

    wanted: int
    floor: int
    """Replicas that must be ready for the service to count as Ready."""
    replicas: int = 0
    ready: int = 0
    updated_ready: int = 0
    rolled_out: bool = False
    """The workload's controller has seen our template and every replica runs it."""
    pods: Mapping[Phase, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """Everything the conditions depend on."""

    planned: str = ""
    """The plan in a sentence; empty when there is none for this spec."""
    unrecorded: str = ""
    """What is to be said of an engine release that nobody recorded."""
    refusal: Problem | None = None
    blocked: Problem | None = None
    """What keeps us from writing the children: a foreign object, missing rights."""
    lacking: Problem | None = None
    """What is missing that engines run without, for want of a right: their budget, a view of the pods."""
    waiting: str = ""
    """What must go before we can write (an earlier owner's child in deletion)."""
    held: str = ""
    """Why nothing is written to the fleet: hold annotation or Shadow mode."""
    withheld: bool = False
    """The fleet is held and serves something else than what is asked for now."""
    fleet: Fleet | None = None
    update: Problem | None = None
    update_unknown: str = ""
    limited: Problem | None = None
    contest: Contest | None = None
    ignored: str = ""
    """What an annotation asks for and cannot be done."""
    integrations: tuple[Problem, ...] | None = None
    """What is in the way of objects of optional kinds; None: nobody has tried to make them."""
    rollout: str = ""
    """How pods are being replaced, and why so; empty at rest."""
    waits: Obstacle | None = None
    """Why a new template is not rolled out yet; the fleet goes on with the old one."""
    obstacle: Obstacle | None = None
    """Why the fleet is not what it should be, as far as its pods tell."""
    observed: tuple[Condition, ...] = ()
    """What the running engines show. It never touches the other conditions."""


def decide(facts: Facts) -> tuple[Condition, ...]:
    """All conditions of the service, in the order in which people read them."""
    return (
        _ready(facts),
        _reconciling(facts),
        _stalled(facts),
        _planned(facts),
        _available(facts),
        _plan_update(facts),
        _limited(facts),
        _contested(facts),
        _integrated(facts),
        *_observed(facts),
    )


def merge(
    previous: Iterable[Mapping[str, Any]], decided: Iterable[Condition], generation: int, now: str
) -> list[dict[str, Any]]:
    """The conditions for ``status``. ``lastTransitionTime`` is kept unless the condition's status flips."""
    before = {c.get("type"): c for c in previous}
    return [_merged(before.get(c.type, {}), c, generation, now) for c in decided]


def _merged(before: Mapping[str, Any], condition: Condition, generation: int, now: str) -> dict[str, Any]:
    same = before.get("status") == condition.status
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message[:MESSAGE_LIMIT],
        "observedGeneration": generation,
        "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
    }


def _problem(facts: Facts) -> Problem | None:
    """What needs a human, the worst first."""
    return facts.refusal or facts.blocked or _grave(facts)


def _grave(facts: Facts) -> Problem | None:
    return facts.contest.problem if facts.contest and facts.contest.fleet_differs else None


def _in_the_way(facts: Facts) -> Obstacle | None:
    """What keeps the fleet from becoming what is planned; nothing when it is so already."""
    fleet = facts.fleet
    if fleet is None:
        return None
    if facts.waits or fleet.wanted == 0:
        return facts.waits
    return facts.obstacle if _progressing(fleet) else None


def _ready(facts: Facts) -> Condition:
    problem, fleet = _problem(facts), facts.fleet
    if problem:
        serving = fleet.ready if fleet else 0
        tail = (
            f" The previous fleet keeps serving ({serving} ready)." if serving and problem is not _grave(facts) else ""
        )
        return Condition(names.READY, "False", problem.reason, problem.message + tail)
    if facts.held and (fleet is None or facts.withheld):
        return _say(names.READY, "False", reasons.ON_HOLD, _held(facts))
    if facts.waiting or fleet is None:
        return _say(names.READY, "False", reasons.PROGRESSING, facts.waiting or "creating the fleet")
    obstacle = _in_the_way(facts)
    if obstacle:
        return Condition(names.READY, "False", obstacle.reason, _progress(facts, fleet))
    if fleet.wanted == 0:
        return _say(names.READY, "True", reasons.PARKED, "no replicas are wanted")
    if _progressing(fleet):
        return _say(names.READY, "False", reasons.PROGRESSING, _progress(facts, fleet))
    return _say(names.READY, "True", reasons.FLEET_READY, f"{fleet.ready} of {fleet.wanted} replicas ready")


def _held(facts: Facts) -> str:
    if facts.fleet is None or not facts.withheld:
        return facts.held
    return f"{facts.held}; a change waits for that, the previous fleet keeps serving ({facts.fleet.ready} ready)"


def _reconciling(facts: Facts) -> Condition:
    fleet, obstacle = facts.fleet, _in_the_way(facts)
    if _problem(facts):
        return _say(names.RECONCILING, "False", reasons.NOT_PLANNED, "waiting for a change: see Stalled")
    if facts.waiting:
        return _say(names.RECONCILING, "True", reasons.APPLYING, facts.waiting)
    if facts.held:
        return _say(names.RECONCILING, "False", reasons.ON_HOLD, _held(facts))
    if fleet is None:
        return _say(names.RECONCILING, "True", reasons.APPLYING, "creating the fleet")
    if obstacle:
        status = "False" if obstacle.lasting else "True"
        return Condition(names.RECONCILING, status, obstacle.reason, _progress(facts, fleet))
    if not fleet.rolled_out:
        return _say(names.RECONCILING, "True", reasons.ROLLING_OUT, _progress(facts, fleet))
    if _progressing(fleet):
        return _say(names.RECONCILING, "True", reasons.WAITING_FOR_PODS, _progress(facts, fleet))
    return _say(names.RECONCILING, "False", reasons.UP_TO_DATE, "the fleet runs the current plan")


def _stalled(facts: Facts) -> Condition:
    problem, obstacle = _problem(facts), _in_the_way(facts)
    if problem:
        return Condition(names.STALLED, "True", problem.reason, problem.message)
    if obstacle and obstacle.lasting and not facts.waiting and not facts.held:
        return Condition(names.STALLED, "True", obstacle.reason, obstacle.message)
    if facts.lacking and _reconciling(facts).status != "True":
        return Condition(names.STALLED, "True", facts.lacking.reason, facts.lacking.message)
    return _say(names.STALLED, "False", reasons.NOT_STALLED, "nothing needs a human")


def _planned(facts: Facts) -> Condition:
    if facts.refusal:
        return Condition(names.PLANNED, "False", facts.refusal.reason, facts.refusal.message)
    if facts.unrecorded:
        return _say(names.PLANNED, "True", reasons.ENGINE_NOT_RECORDED, f"{facts.planned}; {facts.unrecorded}")
    return _say(names.PLANNED, "True", reasons.FEASIBLE, facts.planned)


def _available(facts: Facts) -> Condition:
    fleet = facts.fleet
    if fleet is None:
        return _say(names.AVAILABLE, "False", reasons.NO_REPLICA_READY, "there is no fleet yet")
    if fleet.ready >= 1:
        return _say(names.AVAILABLE, "True", reasons.MINIMUM_REPLICAS_AVAILABLE, "at least one replica serves")
    if fleet.wanted == 0:
        return _say(names.AVAILABLE, "False", reasons.PARKED, "no replicas are wanted")
    obstacle = _in_the_way(facts)
    if obstacle:
        return Condition(names.AVAILABLE, "False", obstacle.reason, _progress(facts, fleet))
    phases: tuple[tuple[Phase, Reason], ...] = (("loading", reasons.LOADING), ("pending", reasons.PENDING))
    reason = next((reason for phase, reason in phases if fleet.pods.get(phase)), reasons.NO_REPLICA_READY)
    return _say(names.AVAILABLE, "False", reason, _progress(facts, fleet))


def _plan_update(facts: Facts) -> Condition:
    kind, tail = names.PLAN_UPDATE_AVAILABLE, f"; {facts.ignored}" if facts.ignored else ""
    if facts.update_unknown:
        return _say(kind, "Unknown", reasons.CANNOT_PLAN, facts.update_unknown + tail)
    if facts.update:
        return Condition(kind, "True", facts.update.reason, facts.update.message + tail)
    return _say(kind, "False", reasons.UP_TO_DATE, f"planning again gives the plan that runs{tail}")


def _limited(facts: Facts) -> Condition:
    if facts.limited:
        return Condition(names.SCALING_LIMITED, "True", facts.limited.reason, facts.limited.message)
    return _say(names.SCALING_LIMITED, "False", reasons.WITHIN_LIMITS, "the wanted replicas are within the limits")


def _contested(facts: Facts) -> Condition:
    if facts.contest:
        return Condition(names.CONTESTED, "True", facts.contest.problem.reason, facts.contest.problem.message)
    return _say(names.CONTESTED, "False", write_reasons.NOT_CONTESTED, "nobody else changes what the operator sets")


def _integrated(facts: Facts) -> Condition:
    """Beside the fleet, never part of ``Ready``: a fleet serves without them."""
    if facts.integrations is None:
        return _say(names.INTEGRATED, "Unknown", reasons.NO_OBSERVATION, "nothing of the service was written yet")
    if not facts.integrations:
        return _say(names.INTEGRATED, "True", reasons.IN_USE, "what is wanted of optional kinds is in place")
    text = "; ".join(problem.message for problem in facts.integrations)
    return Condition(names.INTEGRATED, "False", facts.integrations[0].reason, text)


def _observed(facts: Facts) -> tuple[Condition, ...]:
    """Conditions that need observations of a running engine: unknown is said, never assumed."""
    types = (names.METRICS_AVAILABLE, names.SLO_MET, names.KV_PREDICTION_ACCURATE)
    unknown = {kind: _say(kind, "Unknown", reasons.NO_OBSERVATION, "nothing observed yet") for kind in types}
    found = unknown | {condition.type: condition for condition in facts.observed}
    none_runs = _say(names.EXPERIMENTING, "False", reasons.NO_EXPERIMENT, "no experiment runs")
    return tuple({**found, names.EXPERIMENTING: found.get(names.EXPERIMENTING, none_runs)}.values())


def _say(kind: str, status: str, reason: Reason, message: str) -> Condition:
    return Condition(kind, status, reason.name, message)


def _progressing(fleet: Fleet) -> bool:
    return not fleet.rolled_out or fleet.updated_ready < fleet.floor


def _progress(facts: Facts, fleet: Fleet) -> str:
    counts = ", ".join(f"{n} {phase}" for phase, n in sorted(fleet.pods.items()) if phase != "ready" and n)
    parts = [f"{fleet.updated_ready} of {fleet.wanted} replicas ready with the current plan"]
    parts += [counts] if counts else []
    parts += [facts.rollout] if facts.rollout else []
    obstacle = _in_the_way(facts)
    return f"{'; '.join(parts)}. {obstacle.message}" if obstacle else "; ".join(parts)
