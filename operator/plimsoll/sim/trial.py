"""One trace on one engine, with everything fixed but who sets the replicas: so that policies can be compared."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.scale import DEFAULTS, Limits, Tuning
from plimsoll.sim.figures import Figures, Slo, burst_start, figures
from plimsoll.sim.fleet import Fleet, FleetSettings, History, Policy
from plimsoll.sim.models import EngineModel
from plimsoll.sim.policies import POLICIES
from plimsoll.sim.policies.clairvoyant import Clairvoyant, Recorder
from plimsoll.sim.policies.plimsoll import Plimsoll, capacity_of
from plimsoll.sim.policies.static import Static
from plimsoll.sim.requests import Request
from plimsoll.sim.router import ROUTERS

OURS: Final = "plimsoll"
BEST_STATIC: Final = "best-static"
CLAIRVOYANT: Final = "clairvoyant"
GOOD_PERCENT: Final = 95.0
"""What the best fixed number of replicas has to reach, unless asked otherwise."""


class UnknownPolicyError(ValueError):
    """A policy by no known name, or a knob that is none; the message says what is allowed."""


@dataclass
class Trial:
    """Runs policies by the names that ``plimsoll simulate --policy`` takes, each on fresh copies of the requests."""

    requests: Sequence[Request]
    model: EngineModel
    slo: Slo
    limits: Limits
    settings: FleetSettings
    router: str = "least-outstanding"
    first_replicas: int | None = None
    """What policies start with that do not know the trace; None: the fewest allowed, or one."""
    _needs: dict[float, Recorder] = field(default_factory=dict)

    def run(self, name: str) -> tuple[History, Figures]:
        """Replay the trace; UnknownPolicyError before anything is run."""
        kind, _, text = name.partition(":")
        knob = _knob(kind, text)
        if kind == BEST_STATIC:
            return self._best_static(GOOD_PERCENT if knob is None else knob)
        return self._replay(*self._policy(kind, knob))

    def _policy(self, kind: str, knob: float | None) -> tuple[Policy, int]:
        """The policy, and the replicas it starts with."""
        least = min(self.limits.most, max(1, self.limits.least))
        first = least if self.first_replicas is None else self.first_replicas
        if kind == OURS:
            return Plimsoll(self.capacity, self.limits, _tuning(knob)), first
        if kind == CLAIRVOYANT:
            clairvoyant = self._clairvoyant(_tuning(knob))
            return clairvoyant, min(self.limits.most, max(least, clairvoyant.at(0.0)))
        row = POLICIES[kind]
        value = row.default if knob is None else knob
        return row.make(value, self.model), min(self.limits.most, int(value)) if kind == "static" else first

    @property
    def capacity(self) -> ReplicaCapacity:
        """What a plan for this trace's mean lengths would say of a replica."""
        count = len(self.requests)
        prompt = sum(request.prompt_tokens for request in self.requests) / count
        output = sum(request.output_tokens for request in self.requests) / count
        ttft = self.slo.ttft_seconds + self.slo.ttft_seconds_per_prompt_token * prompt
        return capacity_of(self.model, prompt, output, ttft, self.slo.tpot_seconds, self.settings.cold_start_seconds)

    def _clairvoyant(self, tuning: Tuning) -> Clairvoyant:
        recorder = self._needs.get(tuning.spare)
        if recorder is None:
            recorder = self._needs[tuning.spare] = Recorder(self.capacity, self.limits, tuning)
            self._replay(recorder, self.limits.most)
        return Clairvoyant(recorder.needs, self.settings.cold_start_seconds)

    def _best_static(self, percent: float) -> tuple[History, Figures]:
        """The fewest replicas that reach the share of requests; all there may be when none does."""
        low, high = min(self.limits.most, max(1, self.limits.least)) - 1, self.limits.most
        best = self._static(high)
        while high - low > 1:
            middle = (low + high) // 2
            tried = self._static(middle)
            if (tried[1].slo_attainment or 0.0) >= percent / 100:
                high, best = middle, tried
            else:
                low = middle
        return best

    def _static(self, replicas: int) -> tuple[History, Figures]:
        return self._replay(Static(replicas), replicas)

    def _replay(self, policy: Policy, first_replicas: int) -> tuple[History, Figures]:
        settings = replace(
            self.settings,
            first_replicas=first_replicas,
            min_replicas=self.limits.least,
            max_replicas=self.limits.most,
            gpus_per_replica=self.model.gpus,
        )
        router = ROUTERS[self.router](settings.seed)
        requests = [Request(r.arrival_seconds, r.prompt_tokens, r.output_tokens, r.prefix) for r in self.requests]
        history = Fleet(self.model.engine, policy, router, settings).run(requests)
        return history, figures(history, self.slo, self.model.gpus, burst_start(requests))


def _tuning(spare: float | None) -> Tuning:
    return DEFAULTS if spare is None else replace(DEFAULTS, spare=spare)


_OWN: Final = {
    OURS: "times the head-room of the law",
    CLAIRVOYANT: "times the head-room of the law",
    BEST_STATIC: "percent of requests within the SLO",
}


def policy_names() -> tuple[str, ...]:
    """All that ``Trial.run`` knows."""
    return (*_OWN, *POLICIES)


def _knob(kind: str, text: str) -> float | None:
    """The knob as a number; None when none was given."""
    if kind not in policy_names():
        raise UnknownPolicyError(f"{kind!r} is not one of {', '.join(policy_names())}")
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        meant = _OWN.get(kind) or POLICIES[kind].knob
        raise UnknownPolicyError(f"the knob of {kind} ({meant}) is {text!r}, not a number above 0")
    return value
