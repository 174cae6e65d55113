"""The KV pools that pods report: judged against the plan, and learned from. Pure.

What an engine's pool is depends on model, GPU, parallelism, engine version and the flags that decide memory: together
the *key* of a start. Pods of one key report one pool, whichever service they belong to; where sources of a key differ,
something else is at work (memory that others hold), and nothing is learned.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Final

from plimsoll.api import pool_reasons
from plimsoll.api.reasons import NO_OBSERVATION
from plimsoll.core.drift import digest
from plimsoll.core.memory import MemoryBudget
from plimsoll.core.plan.refuse import EngineStart
from plimsoll.core.plan.result import MemoryItem, Range
from plimsoll.core.quantity import gib
from plimsoll.core.signals import FleetView, Sample, Signal
from plimsoll.core.steady import Verdict
from plimsoll.facts.models import ModelFacts

AGREE_SHARE: Final = 0.005
"""Pools that differ by no more are the same pool."""
ITEM: Final = "seen in running pods"
_DOUBT: Final[Mapping[str, float]] = {"exact": 0.0, "fitted": 0.3, "assumed": 1.0}
_WEIGHTS_DOUBT: Final = 0.01
"""How far off an item may be, as a share of it. Weights: ``tools/fit_memory.py``, within 1 % of nearly all rows."""
MOST_DOUBT: Final = 3.0
"""More than so many times what all items may be off together is not the estimate's fault."""


@dataclass(frozen=True)
class Pool:
    """What one service's pods report of one key: the blocks of an engine, which all of them agree on."""

    key: str
    num_blocks: int


def key_of(start: EngineStart) -> str:
    """The key of a start. The context is no part of it: it decides what fits into the pool, not the pool."""
    options = replace(start.options, max_model_len=None)
    return digest([mark(start.facts), repr(options), sorted(asdict(start.flags).items())])


@lru_cache(maxsize=256)
def mark(facts: ModelFacts) -> str:
    """A model's facts in short; a plan looks at many starts of one model."""
    return digest(repr(facts))


def measured(memory: MemoryBudget, num_blocks: int, bytes_per_block: int) -> MemoryBudget:
    """The estimate with what running pods of this key have left for KV cache."""
    found = num_blocks * bytes_per_block
    because = f"pods that run this very engine report {num_blocks:,} blocks, {gib(found)}"
    item = MemoryItem(ITEM, round(memory.available_kv_bytes.mid) - found, "exact", because)
    left = Range(found, found, found + bytes_per_block - 1)
    return replace(memory, items=(*memory.items, item), available_kv_bytes=left)


def learned(pools: Iterable[Pool]) -> dict[str, int]:
    """Blocks by key, from what services report; of sources that differ nothing, of those that agree the smallest."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for pool in pools:
        by_key[pool.key].append(pool.num_blocks)
    return {key: min(found) for key, found in by_key.items() if _agree(found)}


def after(before: Pool | None, view: FleetView, plan: Mapping[str, Any]) -> Pool | None:
    """What a settled fleet teaches: a pool that every engine reports and all agree on, until they say otherwise."""
    key, blocks = plan.get("poolKey"), _blocks(view)
    if not key:
        return None
    if not blocks or len(blocks) < len(view.readings(Signal.NUM_BLOCKS)):
        return before if before is not None and before.key == key else None
    return Pool(str(key), min(blocks)) if _agree(blocks) else None


def told(observed: Mapping[str, Any]) -> Pool | None:
    """The pool of a ``status.observed``."""
    pool = observed.get("pool")
    return Pool(str(pool["key"]), int(pool["numBlocks"])) if pool else None


def is_reported(view: FleetView) -> bool:
    """Whether any engine tells its pool at this moment."""
    return bool(_blocks(view))


def judge(view: FleetView, plan: Mapping[str, Any]) -> Verdict:
    """What KVPredictionAccurate is: the pools that engines report against the plan that they run."""
    found, kv = _blocks(view), plan["kv"]
    if not found:
        return Verdict(NO_OBSERVATION.name, "Unknown", "no engine has reported its KV cache yet")
    planned = int(kv["numBlocks"])
    low, high = (plan["availableKVBytes"][end] / max(1, kv["bytesPerBlock"]) for end in ("low", "high"))
    ratio = min(found) / max(1, planned)
    said = f"{_pools(found)} of KV cache an engine, planned {planned:,} ({low:,.0f} to {high:,.0f}): {ratio - 1:+.1%}"
    if not _agree(found):
        word, why = pool_reasons.POOLS_DIFFER, f"memory that others hold on the GPUs of {_poorest(view)}"
    elif min(found) < (1 - AGREE_SHARE) * int(low):
        word, why = pool_reasons.POOL_SMALLER, _likely(plan, min(found))
    elif min(found) > (1 + AGREE_SHARE) * high:
        word, why = pool_reasons.POOL_LARGER, _likely(plan, min(found))
    else:
        return Verdict(pool_reasons.PREDICTED.name, "True", said, (ratio,))
    return Verdict(word.name, "False", f"{said}; likely {why}", (ratio,))


def _blocks(view: FleetView) -> list[int]:
    return [round(r.value) for r in view.readings(Signal.NUM_BLOCKS) if isinstance(r, Sample) and r.value > 0]


def _agree(blocks: list[int]) -> bool:
    return max(blocks) - min(blocks) <= AGREE_SHARE * max(blocks)


def _pools(blocks: list[int]) -> str:
    low, high = min(blocks), max(blocks)
    return f"{low:,} blocks" if low == high else f"{low:,} to {high:,} blocks"


def _poorest(view: FleetView) -> str:
    """The pod with the smallest pool."""
    pools = [
        (reading.value, pod.name)
        for pod in view.serving
        for engine in pod.engines.values()
        if isinstance(reading := engine.get(Signal.NUM_BLOCKS), Sample)
    ]
    return min(pools)[1]


def _likely(plan: Mapping[str, Any], blocks: int) -> str:
    """What the difference is of: the least certain item of the arithmetic, as long as those can explain it at all."""
    items = plan.get("memory") or ()
    missing = (plan["kv"]["numBlocks"] - blocks) * plan["kv"]["bytesPerBlock"]
    if missing > MOST_DOUBT * sum(map(_doubt, items)):
        return f"memory that others hold on these GPUs: {gib(missing)} is more than the estimate can be off"
    item = max(items, key=_doubt, default=None)
    if item is None or not _doubt(item):
        return "the engine's own rules: the plan's figures are exact"
    return f"{item['item']} ({item['basis']}, {gib(item['bytes'])} planned)"


def _doubt(item: Mapping[str, Any]) -> float:
    share = _WEIGHTS_DOUBT if item["item"] == "weights" else _DOUBT[item["basis"]]
    return float(abs(item["bytes"]) * share)
