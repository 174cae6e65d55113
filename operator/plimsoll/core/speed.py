"""How long an engine's steps take against the model of them: measured where that can be done well, and learned. Pure.

The mean time between two tokens is a decode step where hardly a prompt is computed beside it, at a number of requests
that hardly moves and that hold about what was planned. Everywhere else nothing is measured. What is learned is one
factor for a *key*: model, GPU, parallelism, engine version, data types; not the flags that only bound a batch.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, Final

from plimsoll.core.drift import digest
from plimsoll.core.plan.refuse import EngineStart
from plimsoll.core.pools import mark
from plimsoll.core.signals import FleetView, Reading, Sample, Signal

LEAST_RUNNING: Final = 2.0
"""With fewer an engine often idles, and the mean says little of its batches."""
STEADY_SHARE: Final = 0.3
"""Requests now against their mean, and the blocks of one against the plan's typical one."""
MOST_PREFILL_SHARE: Final = 0.1
AGREE_SHARE: Final = 0.15
"""Engines, and services, that differ by more have something else at work: nothing is learned from them."""
READINGS: Final = 3
READINGS_AGREE_SHARE: Final = 0.1
STEP: Final = 0.05
LEAST: Final = 0.4
MOST: Final = 2.5
"""Further off is not the model's fault: other work on the GPU, a throttled clock, another engine than it says."""


@dataclass(frozen=True)
class Speed:
    """What one service's pods teach: seconds of a decode step over those that were predicted."""

    key: str
    factor: float


@dataclass(frozen=True)
class Clock:
    """Readings of one key so far, the last at ``at_seconds``, and what was made of them."""

    key: str = ""
    at_seconds: float = float("-inf")
    factors: tuple[float, ...] = ()
    said: Speed | None = None


def key_of(start: EngineStart) -> str:
    """What a factor is of: all of a start but what bounds contexts, batches and memory."""
    options = replace(
        start.options, max_model_len=None, max_num_seqs=None, max_num_batched_tokens=None, num_blocks_override=None
    )
    flags = replace(start.flags, gpu_memory_utilization=None, kv_cache_memory_bytes=None, other_engines_bytes=0)
    return digest([mark(start.facts), repr(options), sorted(asdict(flags).items())])


def learned(speeds: Iterable[Speed]) -> dict[str, float]:
    """Factors by key, from what services report; of sources that differ nothing, of those that agree the slowest."""
    by_key: dict[str, list[float]] = defaultdict(list)
    for speed in speeds:
        by_key[speed.key].append(speed.factor)
    return {key: max(found) for key, found in by_key.items() if _agree(found, AGREE_SHARE)}


def begin(observed: Mapping[str, Any]) -> Clock:
    """From a ``status.observed``."""
    told = observed.get("stepTimes")
    if not told:
        return Clock()
    return Clock(str(told["key"]), said=Speed(str(told["key"]), float(told["factor"])))


def told(observed: Mapping[str, Any], plan: Mapping[str, Any]) -> float | None:
    """The factor of a ``status.observed``, if it is of the plan's engine."""
    said = begin(observed).said
    return said.factor if said is not None and said.key == plan.get("stepKey") else None


def after(clock: Clock, view: FleetView, plan: Mapping[str, Any], at_seconds: float, window_seconds: float) -> Clock:
    """With one look more at a settled fleet. Readings share no window; silence unsays nothing."""
    key = str(plan.get("stepKey") or "")
    if key != clock.key:
        clock = Clock(key)
    if not key or at_seconds - clock.at_seconds < window_seconds:
        return clock
    factor = measured(view, plan)
    if factor is None:
        return clock
    factors = (*clock.factors, factor)[-READINGS:]
    return replace(clock, at_seconds=at_seconds, factors=factors, said=_said(key, factors, clock.said))


def measured(view: FleetView, plan: Mapping[str, Any]) -> float | None:
    """Step times over those predicted, the middle of the engines that are busy; None where it cannot be said well."""
    typical = plan.get("typical") or {}
    if not view.complete or not typical.get("stepsMs"):
        return None
    busy = [engine for pod in view.serving for engine in pod.engines.values() if _is_busy(engine)]
    found = [_of_engine(engine, typical) for engine in busy]
    known = [factor for factor in found if factor is not None]
    return median(known) if known and len(known) == len(found) and _agree(known, AGREE_SHARE) else None


def _said(key: str, factors: Sequence[float], before: Speed | None) -> Speed | None:
    if len(factors) < READINGS or not _agree(factors, READINGS_AGREE_SHARE):
        return before
    factor = median(factors)
    if not LEAST <= factor <= MOST:
        return None
    if before is not None and abs(factor - before.factor) < 2 * STEP * before.factor:
        return before
    return Speed(key, round(round(factor / STEP) * STEP, 2))


def _is_busy(engine: Mapping[Signal, Reading]) -> bool:
    running = engine.get(Signal.RUNNING_MEAN)
    return not isinstance(running, Sample) or running.value >= LEAST_RUNNING


def _of_engine(engine: Mapping[Signal, Reading], typical: Mapping[str, Any]) -> float | None:
    values = {signal: reading.value for signal, reading in engine.items() if isinstance(reading, Sample)}
    if not values.keys() >= _READ or values[Signal.PREEMPTIONS] > 0 or not values[Signal.RUNNING]:
        return None
    running = values[Signal.RUNNING_MEAN]
    each = values[Signal.USAGE] * (values[Signal.NUM_BLOCKS] - 1) / values[Signal.RUNNING]
    fresh = values[Signal.PROMPT_TOKENS] * (1 - values.get(Signal.HIT_RATIO, 0.0))
    prefill = fresh * float(typical.get("prefillMsPerToken") or 0.0) / 1e3
    steady = _near(values[Signal.RUNNING], running) and _near(each, float(typical["blocks"]))
    if not steady or prefill > MOST_PREFILL_SHARE:
        return None
    return values[Signal.ITL_MEAN] * (1 - prefill) * 1e3 / predicted_ms(typical["stepsMs"], running)


_READ: Final = frozenset(
    {
        Signal.ITL_MEAN,
        Signal.RUNNING_MEAN,
        Signal.RUNNING,
        Signal.USAGE,
        Signal.NUM_BLOCKS,
        Signal.PROMPT_TOKENS,
        Signal.PREEMPTIONS,
    }
)


def predicted_ms(steps_ms: Sequence[float], running: float) -> float:
    """A step of so many requests, between those of 1, 2, 4, 8 … that a plan tells; beyond the last one as the last."""
    for power, ms in enumerate(steps_ms):
        at = 1 << power
        if running <= at:
            before = steps_ms[power - 1] if power else ms
            return before + (ms - before) * (running - at / 2) / (at / 2) if power else ms
    return steps_ms[-1]


def _near(value: float, expected: float) -> bool:
    return abs(value - expected) <= STEADY_SHARE * expected


def _agree(values: Sequence[float], share: float) -> bool:
    return max(values) - min(values) <= share * max(values)
