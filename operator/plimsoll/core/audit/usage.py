"""What a workload really used over a period, against what it holds: GPUs that could be freed at that load. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.core.audit.evidence import Evidence
from plimsoll.core.workloads.server import Server

ROOM: Final = 0.85
"""Share of a pool, or of the sequence cap, that a peak may take: beyond it a little more traffic means preemptions."""
_ENOUGH_HOURS: Final = 24.0
_COVERED: Final = 0.8
_CLOSE: Final = 0.1

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Usage:
    """Peaks over a period; what Prometheus did not know is None.

    ``peak_pools``: the most KV cache in use at one time, over all replicas, in pools of one replica. ``peak_running``,
    ``peak_waiting``: requests over all replicas. ``covered``: share of the period that has samples.
    """

    hours: float
    replicas: int | None = None
    peak_pools: float | None = None
    peak_running: float | None = None
    peak_waiting: float | None = None
    preemptions: float | None = None
    pool_blocks: float | None = None
    pool_tokens: float | None = None
    prompt_tokens_p99: float | None = None
    output_tokens_p99: float | None = None
    covered: float | None = None


@dataclass(frozen=True)
class Freed:
    """The verdict: how many GPUs could be freed at the observed load, how sure that is, and why."""

    gpus: int
    replicas_needed: int | None
    tensor_parallel: int | None
    confidence: Confidence
    why: tuple[str, ...]


def freed(server: Server, evidence: Evidence, usage: Usage) -> Freed | None:
    """What could be given back; None where too little is known to say anything."""
    replicas = usage.replicas or server.replicas
    if replicas is None or usage.peak_pools is None or usage.preemptions is None:
        return None
    confidence, why = _confidence(evidence, usage)
    needed = min(replicas, _replicas_needed(server, usage))
    narrower = _narrower(server, evidence, usage, needed) if needed else None
    held = replicas * server.ranks
    kept = needed * (narrower or server.ranks)
    return Freed(held - kept, needed, narrower, confidence, why)


def _replicas_needed(server: Server, usage: Usage) -> int:
    """Replicas that hold the peak with room to spare: of KV cache, and of sequences."""
    assert usage.peak_pools is not None  # noqa: S101 # the caller asked
    by_cache = usage.peak_pools / ROOM
    cap = server.arguments.number("max_num_seqs")
    queued = (usage.peak_running or 0.0) + (usage.peak_waiting or 0.0)
    by_sequences = queued / (cap * ROOM) if cap and cap > 0 else 0.0
    if usage.preemptions:
        # The pool was too small at times: what was asked for is more than what was in use.
        by_cache *= 1 / ROOM
    return max(1, math.ceil(max(by_cache, by_sequences)))


def _narrower(server: Server, evidence: Evidence, usage: Usage, replicas: int) -> int | None:
    """The smallest tensor parallelism whose pool holds the peak of one replica, by the planner's low end."""
    row, width = evidence.row, server.arguments.count("tensor_parallel_size")
    if row is None or width <= 1 or usage.peak_pools is None or usage.pool_tokens is None or usage.preemptions:
        return None
    wanted = usage.peak_pools * usage.pool_tokens / replicas / ROOM
    for size in (each for each in (1, 2, 4, 8) if each < width):
        tokens = _tokens_at_low(evidence, {**row, "flags": {**row["flags"], "tensor_parallel_size": size}})
        if tokens is not None and tokens >= wanted:
            return size * server.ranks // width
    return None


def _tokens_at_low(evidence: Evidence, row: Mapping[str, Any]) -> float | None:
    found = evidence.planner(row)
    if found["outcome_at_low"] != "starts" or found["outcome"] != "starts":
        return None
    low = int(found["available_kv_bytes"]["low"])
    again = evidence.planner({**row, "available_kv_bytes": low})
    return float(again["kv_cache_size_tokens"]) if again["outcome"] == "starts" else None


def _confidence(evidence: Evidence, usage: Usage) -> tuple[Confidence, tuple[str, ...]]:
    """How sure a verdict is: enough time, enough samples, and a planner that foresees the pool that is there."""
    why = []
    if usage.hours < _ENOUGH_HOURS:
        why.append(f"only {usage.hours:g} hours looked at")
    if usage.covered is None or usage.covered < _COVERED:
        share = "unknown" if usage.covered is None else f"{usage.covered:.0%}"
        why.append(f"samples for {share} of the period")
    foreseen = (evidence.prediction or {}).get("kv_cache_size_tokens")
    if foreseen is None or not usage.pool_tokens:
        why.append("the planner cannot be compared with the pool that is there")
    elif abs(foreseen - usage.pool_tokens) > _CLOSE * usage.pool_tokens:
        why.append(f"the planner foresees {foreseen:,} tokens, the engine has {usage.pool_tokens:,.0f}")
    if usage.preemptions:
        why.append(f"{usage.preemptions:.0f} preemptions: the load wanted more than there was")
    return ("high", "medium", "low")[min(2, len(why))], tuple(why)


def said(server: Server, usage: Usage, verdict: Freed | None) -> str:
    """All of it in a sentence."""
    parts = []
    if usage.peak_pools is not None:
        parts.append(f"peak KV cache {usage.peak_pools:.0%} of one replica's pool")
    if usage.peak_running is not None:
        waiting = f" (and {usage.peak_waiting:.0f} waiting)" if usage.peak_waiting else ""
        parts.append(f"at most {usage.peak_running:.0f} requests at once{waiting}")
    if usage.preemptions is not None:
        parts.append(f"{usage.preemptions:.0f} preemptions")
    if usage.prompt_tokens_p99 is not None:
        parts.append(f"99 % of prompts below {usage.prompt_tokens_p99:,.0f} tokens")
    if usage.output_tokens_p99 is not None:
        parts.append(f"99 % of outputs below {usage.output_tokens_p99:,.0f}")
    seen = ", ".join(parts) or "Prometheus knows nothing of it"
    return f"{seen} in {usage.hours:g} h; {_verdict(server, usage, verdict)}"


def _verdict(server: Server, usage: Usage, verdict: Freed | None) -> str:
    if verdict is None:
        return "too little is known to say what could be freed"
    held = (usage.replicas or server.replicas or 1) * server.ranks
    doubts = f" ({'; '.join(verdict.why)})" if verdict.why else ""
    if verdict.gpus <= 0:
        return f"nothing to free of {held} GPUs, confidence {verdict.confidence}{doubts}"
    how = f"{verdict.replicas_needed} replicas" if verdict.replicas_needed != 1 else "1 replica"
    narrower = f" at TP {verdict.tensor_parallel}" if verdict.tensor_parallel else ""
    return f"{verdict.gpus} of {held} GPUs could be freed ({how}{narrower}), confidence {verdict.confidence}{doubts}"
