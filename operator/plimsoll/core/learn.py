"""What the failure of an engine's start teaches: a correction for the next plan, or nothing. Pure.

Only causes that a plan can mend: a pool that is too small, memory that ran out, more sequences than state blocks, a KV
dtype that the engine refuses. Memory that somebody else holds teaches nothing about the plan.
"""

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.api import engine_reasons, reasons
from plimsoll.core.logs import EngineLog, Failure
from plimsoll.core.plan.correction import Correction
from plimsoll.core.quantity import GIB, gib

_UNKNOWN_SHARE: Final = 0.02
"""Of the GPU's memory, when it ran out and nobody says how much was missing."""
_MARGIN_BYTES: Final = GIB // 4
LEAST_STEP_TOKENS: Final = 1024


def correction(failure: Failure, log: EngineLog, plan: Mapping[str, Any]) -> Correction | None:
    """What to correct in a kept ``plan`` (its JSON) whose engine failed so; None where nothing is to be learned."""
    rule = _RULES.get(failure.cause.reason.name)
    return rule(failure, log, plan) if rule else None


def _too_small(failure: Failure, log: EngineLog, plan: Mapping[str, Any]) -> Correction:
    """The pool that the engine found against the one that was planned."""
    found = failure.figures.get("available_bytes", log.figures.get("available_kv_bytes"))
    planned = float(plan["availableKVBytes"]["mid"])
    if found is None:
        fits, asked = failure.figures.get("estimated_max_model_len"), failure.figures.get("max_model_len")
        found = planned * fits / asked if fits and asked else 0
    because = f"the engine found {gib(found)} for its KV cache where {gib(planned)} were planned"
    return Correction(because=because, missing_bytes=max(round(planned - found), 0))


def _out_of_memory(failure: Failure, log: EngineLog, plan: Mapping[str, Any]) -> Correction:
    """After the pool was made a smaller share leaves room; before, only a smaller step does."""
    tried, free = failure.figures.get("tried_bytes"), failure.figures.get("free_bytes")
    total = failure.figures.get("total_bytes") or _total(plan)
    short = tried - free if tried is not None and free is not None else _UNKNOWN_SHARE * total
    missing = max(round(short), 0) + _MARGIN_BYTES
    because = f"the engine ran out of GPU memory, {gib(missing)} are set aside"
    if "available_kv_bytes" in log.figures or "kv_tokens" in log.figures or log.ready:
        return Correction(because=because, outside_bytes=missing)
    tokens = max(LEAST_STEP_TOKENS, _flag(plan, "--max-num-batched-tokens") // 2)
    return Correction(because=because, missing_bytes=missing, outside_bytes=missing, most_step_tokens=tokens)


def _too_many_sequences(failure: Failure, _log: EngineLog, _plan: Mapping[str, Any]) -> Correction:
    blocks = int(failure.figures["state_blocks"])
    return Correction(because=f"the engine has {blocks} state blocks, one a sequence", most_sequences=blocks)


def _no_such_cache(_failure: Failure, _log: EngineLog, _plan: Mapping[str, Any]) -> Correction:
    return Correction(because="the engine refuses the KV cache's 8-bit dtype here", kv_cache_dtype="bfloat16")


_RULES: Final = {
    reasons.KV_CACHE_TOO_SMALL.name: _too_small,
    reasons.NO_MEMORY_FOR_KV.name: _too_small,
    engine_reasons.GPU_OUT_OF_MEMORY.name: _out_of_memory,
    reasons.MAX_NUM_SEQS_ABOVE_STATE_BLOCKS.name: _too_many_sequences,
    reasons.KV_DTYPE_UNSUPPORTED.name: _no_such_cache,
}


def _total(plan: Mapping[str, Any]) -> float:
    """About the memory of the plan's GPU: what was planned of it."""
    planned = sum(item["bytes"] for item in plan.get("memory") or ())
    return float(planned + plan["availableKVBytes"]["mid"])


def _flag(plan: Mapping[str, Any], name: str) -> int:
    args = list(plan["choice"]["args"])
    value = args[args.index(name) + 1] if name in args[:-1] else "0"
    return int(value) if value.isdecimal() else 0
