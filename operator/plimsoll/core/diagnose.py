"""What limits a service: ordered small checks, the first that holds is the finding. Pure.

A check rests on several signals of the *same* engine together: a full KV cache alone is good batching. Whatever is not
known makes a comparison false, so no finding can rest on it; only what is known completely may be called idle or too
large. Thresholds: ``docs/metrics.md``.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from plimsoll.api import findings
from plimsoll.api.findings import FindingKind
from plimsoll.core.demand import Demand, ReplicaCapacity, demand
from plimsoll.core.evidence import Case, EngineRow
from plimsoll.core.signals import Signal

REJECTING_PER_SECOND: Final = 0.05
QUEUE: Final = 3
"""Requests that wait for an engine beside a free pool; fewer come and go between two steps."""
QUEUE_SHARE: Final = 0.1
"""The same as a share of those that run."""
ROOM: Final = 0.55
"""KV use of the others, up to which few full engines are a matter of routing (``autoscaling.md`` 2)."""
DOWN_SHARE: Final = 0.7
"""As much of the pool may be in use with one replica fewer (``docs/scaling.md``)."""
STUCK_TICKS: Final = 8
PATIENCE_TICKS: Final = 3
NAMED: Final = 3


@dataclass(frozen=True)
class Finding:
    """What limits the service, with the evidence in words: values, windows, thresholds."""

    kind: FindingKind
    message: str
    figures: tuple[float, ...] = ()

    @property
    def word(self) -> str:
        """The finding's name."""
        return self.kind.name

    @property
    def patience(self) -> int:
        """A long prompt makes no token for a while either; what a fleet is doing needs no second look."""
        if self.kind is findings.STUCK_ENGINE:
            return STUCK_TICKS
        return 1 if self.kind in (findings.LOADING, findings.NOTHING_RUNS) else PATIENCE_TICKS


def diagnose(case: Case) -> Finding:
    """The first check that holds."""
    return next((found for check in CHECKS if (found := check(case)) is not None), _healthy(case))


def nothing_runs(case: Case) -> Finding | None:
    """No pod at all: a known state, not a missing metric."""
    return None if case.view.pods else Finding(findings.NOTHING_RUNS, "there is no replica")


def loading(case: Case) -> Finding | None:
    """Nobody serves yet."""
    count = case.view.count("loading")
    if case.view.serving or not count:
        return None
    return Finding(findings.LOADING, f"{count} replicas load, none serves yet", (count,))


def stuck_engine(case: Case) -> Finding | None:
    """Requests and no token: the process lives, the engine does not."""
    stuck = [
        e
        for e in case.engines
        if e.least(Signal.RUNNING) + e.least(Signal.WAITING) > 0
        and e.certainly_none(Signal.GENERATION_TOKENS, Signal.PROMPT_TOKENS)
    ]
    if not stuck:
        return None
    held = sum(e.least(Signal.RUNNING) + e.least(Signal.WAITING) for e in stuck)
    return Finding(
        findings.STUCK_ENGINE,
        f"{_names(stuck)}: {held:.0f} requests, and not one token in {case.rate_window} for {STUCK_TICKS} ticks",
        (len(stuck),),
    )


def admission_limited(case: Case) -> Finding | None:
    """Requests are turned away before they queue: the queue does not show them."""
    rejected = case.view.total(Signal.REJECTED)
    if not rejected.at_least(REJECTING_PER_SECOND):
        return None
    return Finding(
        findings.ADMISSION_LIMITED,
        f"{rejected:.2f} requests a second are rejected (over {case.rate_window}), {_waiting(case)} wait",
        (rejected.value or 0.0,),
    )


def imbalanced(case: Case) -> Finding | None:
    """Few engines are full while the others have room."""
    full = _full_ones(case)
    others = [e.least(Signal.USAGE) for e in case.engines if e not in full]
    if not full or len(full) > len(others) or not case.view.complete or sum(others) > ROOM * len(others):
        return None
    return Finding(
        findings.IMBALANCED,
        f"{_names(full)}: KV use at its highest {max(e.peak for e in full):.0%} with "
        f"{sum(e.least(Signal.WAITING) for e in full):.0f} waiting, while the other {len(others)} engines are at "
        f"{sum(others) / len(others):.0%} (limit {ROOM:.0%})",
        (len(full) / len(others), sum(others) / len(others)),
    )


def kv_bound(case: Case) -> Finding | None:
    """Blocks are the limit: the pool is full *and* somebody waits for it."""
    full = _full_ones(case)
    if not full:
        return None
    return Finding(
        findings.KV_BOUND,
        f"KV use at its highest {max(e.peak for e in full):.0%} over {case.rate_window} (limit {case.full:.0%}), "
        f"{_waiting(case)} waiting, {case.view.total(Signal.PREEMPTIONS):.2f} preemptions/s"
        f"{_of_engines(case, full)}{_late(case)}",
        (max(e.peak for e in full), len(full)),
    )


def sequence_cap_bound(case: Case) -> Finding | None:
    """Blocks are free and requests wait: --max-num-seqs of them run already, and tokens come in time."""
    _, itl = case.latencies
    capped = [e for e in case.engines if e.capped(case.sequences) and e.least(Signal.WAITING) >= 1]
    if not capped or (itl and itl.late):
        return None
    return Finding(
        findings.SEQUENCE_CAP_BOUND,
        f"{capped[0].least(Signal.RUNNING):.0f} of at most {case.sequences:.0f} requests run, {_waiting(case)} wait, "
        f"KV use at its highest {max(e.peak for e in capped):.0%} (full from {case.full:.0%})"
        f"{_of_engines(case, capped)}{_late(case)}",
        (len(capped), max(e.peak for e in capped)),
    )


def compute_bound(case: Case) -> Finding | None:
    """First tokens and tokens are both late, and blocks are free."""
    ttft, itl = case.latencies
    if not (ttft and ttft.late and itl and itl.late and _busy(case)):
        return None
    return Finding(findings.COMPUTE_BOUND, f"{ttft}; {itl}; {_room(case)}", (ttft.ratio, itl.ratio))


def decode_bound(case: Case) -> Finding | None:
    """Tokens are late, and blocks are free: a step takes too long."""
    _, itl = case.latencies
    if not (itl and itl.late and _busy(case)):
        return None
    return Finding(findings.DECODE_BOUND, f"{itl}; {_room(case)}", (itl.ratio,))


def prefill_bound(case: Case) -> Finding | None:
    """First tokens are late or requests queue, with blocks and sequences to spare: prompts are computed too slowly."""
    ttft, _ = case.latencies
    queued = [e for e in case.engines if _queues(case, e)]
    if not queued and not (ttft and ttft.late and _busy(case)):
        return None
    prompts = case.view.total(Signal.PROMPT_TOKENS)
    late = f"{ttft}; " if ttft else ""
    return Finding(
        findings.PREFILL_BOUND,
        f"{late}{_waiting(case)} wait, {prompts:.0f} prompt tokens/s over {case.rate_window}; {_room(case)}",
        (ttft.ratio if ttft else 0.0, len(queued)),
    )


def unknown(case: Case) -> Finding | None:
    """What follows needs to know everything."""
    if case.view.complete:
        return None
    return Finding(findings.UNKNOWN, case.view.why_incomplete or "no replica serves")


def idle(case: Case) -> Finding | None:
    """Nothing runs, nothing waits, nothing was computed."""
    busy = (Signal.RUNNING, Signal.WAITING, Signal.PROMPT_TOKENS)
    if not all(case.view.total(signal).at_most(0) for signal in busy):
        return None
    return Finding(findings.IDLE, f"no request runs or waits, no prompt was computed in {case.rate_window}")


def over_provisioned(case: Case) -> Finding | None:
    """With fewer replicas the pool and the time would still do."""
    serving = len(case.view.serving)
    if serving < 2 or case.view.total(Signal.WAITING).positive or case.view.total(Signal.PREEMPTIONS).positive:  # noqa: PLR2004
        return None
    found = demand(case.view, case.capacity)
    enough = max(1, math.ceil(_with_head_room(found, case.capacity)))
    if enough >= serving or any(latency and latency.late for latency in case.latencies):
        return None
    return Finding(
        findings.OVER_PROVISIONED,
        f"{enough} of {serving} replicas would do: KV blocks need {found.by_blocks:.2f}, compute "
        f"{found.by_compute:.2f}, sequences {found.by_sequences:.2f} replicas (at most {DOWN_SHARE:.0%} full)",
        (enough / serving,),
    )


CHECKS: Final[tuple[Callable[[Case], Finding | None], ...]] = (
    nothing_runs,
    loading,
    stuck_engine,
    admission_limited,
    imbalanced,
    kv_bound,
    sequence_cap_bound,
    compute_bound,
    decode_bound,
    prefill_bound,
    unknown,
    idle,
    over_provisioned,
)


def _healthy(case: Case) -> Finding:
    view = case.view
    told = [str(latency) for latency in case.latencies if latency]
    return Finding(
        findings.HEALTHY,
        "; ".join([f"KV use {view.mean(Signal.USAGE):.0%}, {_waiting(case)} waiting", *told]),
        (view.mean(Signal.USAGE).value or 0.0,),
    )


def _full_ones(case: Case) -> list[EngineRow]:
    """Engines whose pool is full while requests wait for blocks, not for the cap on requests, or are thrown out."""
    return [
        e
        for e in case.engines
        if e.peak >= case.full and (e.preempts or (e.least(Signal.WAITING) >= 1 and not e.capped(case.sequences)))
    ]


def _queues(case: Case, engine: EngineRow) -> bool:
    """More requests wait than between two steps, and not for the cap; nor for blocks, which was asked before."""
    running, usage = engine.value(Signal.RUNNING), engine.value(Signal.USAGE)
    if running is None or usage is None or engine.capped(case.sequences):
        return False
    return engine.least(Signal.WAITING) >= max(QUEUE, QUEUE_SHARE * running)


def _busy(case: Case) -> bool:
    """Requests run now: a histogram of minutes is not a picture of the past."""
    return case.view.total(Signal.RUNNING).positive


def _with_head_room(found: Demand, capacity: ReplicaCapacity) -> float:
    return max(found.by_blocks / DOWN_SHARE, found.by_compute / capacity.prefill_share, found.by_sequences / DOWN_SHARE)


def _waiting(case: Case) -> str:
    return f"{case.view.total(Signal.WAITING):.0f}"


def _room(case: Case) -> str:
    return f"KV use {case.view.most(Signal.USAGE):.0%} (full from {case.full:.0%})"


def _late(case: Case) -> str:
    told = [str(latency) for latency in case.latencies if latency]
    return f"; {'; '.join(told)}" if told else ""


def _of_engines(case: Case, some: list[EngineRow]) -> str:
    count = sum(1 for _ in case.engines)
    return f", on {len(some)} of {count} engines ({_names(some)})" if count > 1 else ""


def _names(engines: list[EngineRow]) -> str:
    rest = len(engines) - NAMED
    return ", ".join(e.name for e in engines[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
