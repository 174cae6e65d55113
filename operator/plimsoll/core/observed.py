"""What the running engines of a service show, as its status tells it: figures that move in steps only. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.conditions import Condition
from plimsoll.core.demand import ReplicaCapacity, demand
from plimsoll.core.diagnose import Finding
from plimsoll.core.pools import Pool
from plimsoll.core.signals import FleetView, Signal
from plimsoll.core.speed import Speed
from plimsoll.core.steady import Verdict, close

EVIDENCE_LIMIT: Final = 600


@dataclass(frozen=True)
class Figures:
    """Figures of ``status.observed``; None is unknown."""

    kv_use: float | None = None
    kv_tokens_per_pod: int | None = None
    demand_tokens: int | None = None

    def after(self, now: "Figures") -> "Figures":
        """The figures to tell: those told last, as long as none has moved by a tenth (decision 11)."""
        whole = float(max(self.kv_tokens_per_pod or 0, now.kv_tokens_per_pod or 0, 1))
        (old_shares, old_known), (shares, known) = _parts(self, whole), _parts(now, whole)
        same = old_known == known and close(old_shares, shares) and self.kv_tokens_per_pod == now.kv_tokens_per_pod
        return self if same else now


def _parts(figures: Figures, whole: float) -> tuple[tuple[float, ...], tuple[bool, ...]]:
    """Shares of a pod's pool, and which of them are known."""
    parts = (figures.kv_use, None if figures.demand_tokens is None else figures.demand_tokens / whole)
    return tuple(part or 0.0 for part in parts), tuple(part is not None for part in parts)


@dataclass(frozen=True)
class Observed:
    """What is said of a service's engines; None of what nothing can be said of yet."""

    available: Verdict | None = None
    slo: Verdict | None = None
    prediction: Verdict | None = None
    pool: Pool | None = None
    """What the fleet teaches about its KV cache."""
    speed: Speed | None = None
    """What the fleet teaches about its step times."""
    finding: Finding | None = None
    figures: Figures = field(default_factory=Figures)
    load: Mapping[str, Any] | None = None
    """``status.load``; None: as it was told last."""

    def conditions(self, before: Mapping[str, Any]) -> tuple[Condition, ...]:
        """MetricsAvailable, SLOMet, KVPredictionAccurate; what cannot be told yet stays as ``before`` has it."""
        told = {
            names.METRICS_AVAILABLE: self.available,
            names.SLO_MET: self.slo,
            names.KV_PREDICTION_ACCURATE: self.prediction,
        }
        old = {c.get("type"): c for c in before.get("conditions") or ()}
        return tuple(
            found
            for kind, verdict in told.items()
            if (found := _told(kind, verdict) if verdict else _kept(kind, old.get(kind))) is not None
        )

    def status(self, before: Mapping[str, Any], now: str) -> dict[str, Any]:
        """``status.observed``; ``before`` is the one that was written last."""
        if self.finding is None:
            return dict(before)
        same = before.get("bottleneck") == self.finding.word
        told = {
            "bottleneck": self.finding.word,
            "evidence": before.get("evidence") if same else self.finding.message[:EVIDENCE_LIMIT],
            "since": before.get("since") if same else now,
            "kvUsePercent": None if self.figures.kv_use is None else round(100 * self.figures.kv_use),
            "kvTokensPerPod": self.figures.kv_tokens_per_pod,
            "demandTokens": self.figures.demand_tokens,
            "pool": {"key": self.pool.key, "numBlocks": self.pool.num_blocks} if self.pool else None,
            "stepTimes": {"key": self.speed.key, "factor": self.speed.factor} if self.speed else None,
        }
        return {key: value for key, value in told.items() if value is not None}


NOTHING_OBSERVED: Final = Observed()


def figures(view: FleetView, capacity: ReplicaCapacity) -> Figures:
    """What the engines say of their pools, and what the traffic needs; only what is known of all of them."""
    use, tokens = view.mean(Signal.USAGE), view.mean(Signal.POOL_TOKENS).value
    per_pod = round(tokens * view.engines_per_pod) if tokens else None
    needed = None
    if per_pod and view.complete:
        needed = round(demand(view, capacity).blocks / capacity.usable_blocks * per_pod)
    return Figures(min(1.0, use.value) if use.complete and use.value is not None else None, per_pod, needed)


def _told(kind: str, verdict: Verdict) -> Condition:
    return Condition(kind, verdict.status, verdict.word, verdict.message)


def _kept(kind: str, old: Mapping[str, Any] | None) -> Condition | None:
    return Condition(kind, old["status"], old["reason"], old.get("message", "")) if old else None
