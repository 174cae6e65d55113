"""What decisions were made from, written so that they can be made again by the same code. Pure.

An entry of the ledger carries its grounds: everything that the law was given. ``again`` gives them to the law once
more. Another answer means that the law is another one since, or that it did not depend on its arguments alone.
"""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Self

from pydantic import TypeAdapter, ValidationError

from plimsoll.api import reasons
from plimsoll.core import experiment
from plimsoll.core.activation import Idle, asleep, awake
from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.experiment import Experiment, Scene, Timing
from plimsoll.core.fleet_sum import FleetSum
from plimsoll.core.ledger import MESSAGE_LIMIT
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.planned import Asked, Recorded, chosen, otherwise, recorded
from plimsoll.core.proposed import Opening, Weighed
from plimsoll.core.scale import Decision, History, Limits, State, Tuning, decide

LAW: Final = "law"
LONGEST: Final = 12_000
"""Characters of what people can make as long as they like, a spec or an inventory: a line has 16 KiB."""


class UnreadableError(ValueError):
    """Grounds that are none of ours."""


@dataclass(frozen=True)
class Again:
    """What the law says now. None: the law does not say that part of the entry."""

    message: str
    after: str | None = None
    reason: str | None = None

    def same_as(self, entry: Mapping[str, Any]) -> bool:
        """Whether it is what the entry has recorded. What was only rehearsed says so before its message."""
        if self.after is not None and self.after != entry.get("to"):
            return False
        alike = str(entry.get("message", "")).endswith(self.message[:MESSAGE_LIMIT])
        return alike and self.reason in (None, entry.get("reason"))


@dataclass(frozen=True)
class Remembered:
    """What the law's history came to at that moment. None: never."""

    began_seconds: float
    largest: tuple[float, float] | None = None
    """The largest need of the window, after the moment it was seen."""
    grew_seconds: float | None = None
    stormed_seconds: float | None = None
    complete_seconds: float | None = None

    @classmethod
    def of(cls, history: History, now: float, window_seconds: float) -> Self:
        """Of a history, before it is decided on."""
        inside = [(at, need) for at, need in history.needs if at >= now - window_seconds]
        largest = max(inside, key=lambda each: each[1], default=None)
        return cls(
            history.began_seconds,
            largest,
            _once(history.grew_seconds),
            _once(history.stormed_seconds),
            _once(history.complete_seconds),
        )

    def history(self) -> History:
        """A history that says the same."""
        never = float("-inf")
        return History(
            self.began_seconds,
            deque([self.largest] if self.largest else []),
            never if self.grew_seconds is None else self.grew_seconds,
            never if self.stormed_seconds is None else self.stormed_seconds,
            never if self.complete_seconds is None else self.complete_seconds,
        )


def _once(seconds: float) -> float | None:
    return seconds if seconds > float("-inf") else None


@dataclass(frozen=True)
class Scaled:
    """What the law of replicas was given (``core/scale.py``)."""

    capacity: ReplicaCapacity
    fleet: FleetSum
    state: State
    limits: Limits
    history: Remembered
    now_seconds: float
    tuning: Tuning

    def again(self) -> Again:
        """The decision of now."""
        history = self.history.history()
        view = self.fleet.view()
        found = decide(self.capacity, view, self.state, self.limits, history, self.now_seconds, self.tuning)
        return Again(message_of(found), str(found.replicas))


@dataclass(frozen=True)
class Woken:
    """A service without replicas, and the requests at its gateway."""

    requests: float | None

    def again(self) -> Again:
        """The decision of now."""
        found = awake(self.requests)
        return Again(found.why, str(found.replicas))


@dataclass(frozen=True)
class Slept:
    """A service with one replica, and since when nobody asks."""

    idle: Idle
    now_seconds: float
    after_seconds: float

    def again(self) -> Again:
        """The decision of now."""
        found = asleep(self.idle, self.now_seconds, self.after_seconds)
        return Again(found.why, str(found.replicas)) if found else Again("it stays awake", "1")


@dataclass(frozen=True)
class Stepped:
    """An experiment, and what was seen when it went on (``core/experiment.py``)."""

    experiment: Experiment
    scene: Scene
    timing: Timing

    def again(self) -> Again:
        """The step of now."""
        following = experiment.step(self.experiment, self.scene, self.timing)
        if following.past is not None:
            return Again(following.past.why, reason=experiment.word(following.past.outcome))
        assert following.experiment is not None  # noqa: S101 - it goes on, or it is over
        return Again(following.experiment.verdict, reason=following.experiment.phase)


@dataclass(frozen=True)
class Planned:
    """What the planner was given (``core/planned.py``), and what it chose; nothing: it refused."""

    asked: Recorded
    made: Mapping[str, Any] = field(default_factory=dict)

    def again(self) -> Again:
        """The plan of now. Of one that is the same nothing is said: the entry's own words stand."""
        try:
            found = self.asked.asked.plan()
        except ValueError as error:
            raise UnreadableError(str(error)) from None
        if isinstance(found, Refusal):
            return Again(found.message, reason=found.reason)
        changes = "; ".join(otherwise(self.made, chosen(found)))
        return Again(f"the plan would be {changes}" if changes else "")


@dataclass(frozen=True)
class Begun:
    """What a proposal was made from, and who allowed it to be tried then (``core/proposed.py``).

    That the fleet was at rest, its metrics complete and two GPUs free is what was seen: else nothing had begun.
    """

    weighed: Weighed
    opening: Opening

    def again(self) -> Again:
        """What would be proposed now, and whether it might be tried."""
        try:
            found = self.weighed.again()
        except ValueError as error:
            raise UnreadableError(str(error)) from None
        if found is None:
            return Again("nothing would be proposed", reason="NoExperiment")
        change, after = found.change, f"{found.change.flag} {found.change.after}"
        if not self.opening.allows(change.setting):
            return Again(f"{change.setting} is not in spec.tuning.allow: it waits for a person", after, "Proposed")
        if self.opening.early:
            return Again(self.opening.early, after, "NotNow")
        return Again(found.why, after, "Trying")


Grounds = Scaled | Woken | Slept | Stepped | Begun | Planned
_LAWS: Final[Mapping[str, type[Grounds]]] = {
    "replicas": Scaled,
    "wake": Woken,
    "sleep": Slept,
    "experiment": Stepped,
    "beginning": Begun,
    "plan": Planned,
}


def message_of(decision: Decision) -> str:
    """A decision's words, as its entry has them."""
    return decision.why + (f"; {decision.limited_by}" if decision.limited_by else "")


def written(grounds: Grounds) -> dict[str, Any]:
    """Grounds as JSON; nothing where they would be too long for a line."""
    law = next(name for name, kind in _LAWS.items() if isinstance(grounds, kind))
    found: dict[str, Any] = _adapters()[law].dump_python(grounds, mode="json", exclude_defaults=True)
    if isinstance(grounds, Begun | Planned) and len(json.dumps(found)) > LONGEST:
        return {}
    return {LAW: law, **found}


def planned(asked: Asked, answer: Plan | Refusal) -> dict[str, Any]:
    """Grounds of an answer of the planner; nothing where the pod template decided, which is not recorded."""
    if isinstance(answer, Refusal) and answer.reason == reasons.POD_TEMPLATE_REFUSED.name:
        return {}
    return written(Planned(recorded(asked), chosen(answer) if isinstance(answer, Plan) else {}))


def again(entry: Mapping[str, Any]) -> Again | None:
    """What an entry of the log would be decided as now; None: it carries no grounds.

    Raises:
        UnreadableError: grounds of another release, or none at all.
    """
    told = entry.get("grounds")
    if not told:
        return None
    adapter = _adapters().get(str(told.get(LAW))) if isinstance(told, Mapping) else None
    if adapter is None:
        raise UnreadableError("grounds of a law that this release does not know")
    try:
        found: Grounds = adapter.validate_python({key: value for key, value in told.items() if key != LAW})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UnreadableError(f"grounds.{where}: {first['msg']}") from None
    try:
        return found.again()
    except UnreadableError:
        raise
    except (ArithmeticError, LookupError, ValueError) as error:
        raise UnreadableError(f"grounds that no decision can be made from: {error!r}") from None


@cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    return {law: TypeAdapter(kind) for law, kind in _LAWS.items()}
