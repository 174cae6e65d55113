"""An API server that refuses, stumbles or is away: one call in ten, every second one, or ten minutes long all of them.

It must be over within a minute once it is over, and nobody may hammer meanwhile: at most one try a second at an object,
and requests in all within a bucket.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from plimsoll.adapters.ports import ClusterError, ConflictError, ForbiddenError, InvalidError, UnreachableError
from tests.faults.rig.campaign import Campaign, campaign
from tests.faults.rig.run import Disturbance, Outcome, counts, written
from tests.faults.world.connection import Call, Calm, Fate, reset
from tests.faults.world.process import Process
from tests.faults.world.world import World

WITHIN_SECONDS: Final = 60.0
SHORT_SECONDS: Final = 120.0
OUTAGE_SECONDS: Final = 600.0
WINDOW_SECONDS: Final = 10.0
TRIES_A_SECOND: Final = 1.0
"""At one object by one door, over ten seconds: the first tries after a conflict follow quickly."""
REQUESTS_A_SECOND: Final = 20.0
"""Of one operator with one service, over ten seconds."""
RETRY_AFTER_SECONDS: Final = 3.0

Error = Callable[[Call], Fate]
ERRORS: Final[Mapping[str, Error]] = {
    "429": lambda call: _refused(
        UnreachableError(f"{call}: 429 slow down", status=429, retry_after_seconds=RETRY_AFTER_SECONDS)
    ),
    "500": lambda call: _refused(UnreachableError(f"{call}: 500 oops", status=500)),
    "503": lambda call: _refused(UnreachableError(f"{call}: 503 away", status=503)),
    "timeout": lambda _: Fate(sent=False),
    "reset": lambda call: Fate(sent=False, error=reset(call)),
    "reply lost": lambda call: Fate(error=reset(call)),
    "403": lambda call: _refused(ForbiddenError(f"{call}: 403 forbidden", status=403)),
    "409": lambda call: _refused(ConflictError(f"{call}: 409 conflict", status=409)) if call.is_write else Fate(),
    "422": lambda call: _refused(InvalidError(f"{call}: 422 invalid", status=422)) if counts(call) else Fate(),
}


def _refused(error: ClusterError) -> Fate:
    return Fate(sent=False, error=error)


@dataclass
class Failing(Calm):
    """So many of an operator's calls end with the error until it is over; how often it tries is counted."""

    error: Error
    share: float
    until_seconds: float
    random: random.Random
    tries: dict[str, deque[float]] = field(default_factory=dict)
    most: Counter[str] = field(default_factory=Counter)
    """Most tries within any ten seconds: at an object by a door, and of all requests."""
    held_until: dict[str, float] = field(default_factory=dict)
    impatient: set[str] = field(default_factory=set)
    """Objects at which it tried again before the server's Retry-After had passed."""

    def before(self, call: Call) -> Fate:
        self._count("requests", call.at_seconds)
        if counts(call):
            self._count(written(call), call.at_seconds)
            if call.at_seconds < self.held_until.get(written(call), 0.0) - 1e-3:
                self.impatient.add(written(call))
        if call.at_seconds >= self.until_seconds or self.random.random() >= self.share:
            return Fate()
        fate = self.error(call)
        if counts(call) and fate.error is not None and fate.error.retry_after_seconds:
            self.held_until[written(call)] = call.at_seconds + fate.error.retry_after_seconds
        return fate

    def _count(self, what: str, now: float) -> None:
        recent = self.tries.setdefault(what, deque())
        recent.append(now)
        while recent[0] <= now - WINDOW_SECONDS:
            recent.popleft()
        self.most[what] = max(self.most[what], len(recent))

    def wrong(self) -> Iterator[str]:
        """What it tried too often."""
        for what, count in self.most.items():
            limit = REQUESTS_A_SECOND if what == "requests" else TRIES_A_SECOND
            if count > limit * WINDOW_SECONDS:
                yield f"{what}: {count} tries in {WINDOW_SECONDS:.0f} s"
        for what in sorted(self.impatient):
            yield f"{what}: tried again before Retry-After had passed"


def failing(name: str, share: float, seconds: float) -> Disturbance:
    """The API server answers so many calls with this error, for so long."""
    met: list[Failing] = []

    def meet(world: World, process: Process) -> None:
        until = ends[0] if ends else world.agenda.now + seconds
        met.append(Failing(ERRORS[name], share, until, random.Random(len(met))))
        process.connection.interference = met[-1]

    ends: list[float] = []

    def begin(world: World) -> float:
        ends.append(world.agenda.now + seconds)
        for process in world.alive:
            meet(world, process)
            if share == 1.0:
                process.connection.cut_watches(UnreachableError("WATCH: the connection broke"))
        return seconds

    def check(_: World) -> list[str]:
        return [line for each in met for line in each.wrong()]

    text = f"{name} for {seconds:.0f} s" if share == 1.0 else f"{name} at {share:.0%} for {seconds:.0f} s"
    return Disturbance(text, begin, meet, check, extra_writes=None, within_seconds=WITHIN_SECONDS)


def _sometimes(_: Outcome) -> Iterator[Disturbance]:
    return (failing(name, share, SHORT_SECONDS) for name in ERRORS for share in (0.1, 0.5))


def _outages(_: Outcome) -> Iterator[Disturbance]:
    return (failing(name, 1.0, OUTAGE_SECONDS) for name in ERRORS)


campaign(Campaign("API errors at 10 % and 50 %", _sometimes))
campaign(Campaign("API outage of 10 minutes", _outages))
