"""What to change after an engine failed, with its own figures where it gave some. Pure: a failure in, sentences out."""

from collections.abc import Iterator, Mapping
from typing import Final

from plimsoll.api import engine_reasons, reasons
from plimsoll.core.logs import Failure
from plimsoll.core.quantity import gib

_MOST_UTILISATION: Final = 0.95
_STEP: Final = 0.01


def changes(failure: Failure, total_bytes: int | None = None, utilisation: float | None = None) -> tuple[str, ...]:
    """Changes that would help, the surest first; the reason's own advice last."""
    figures = {"total_bytes": total_bytes, **failure.figures}
    known = {name: value for name, value in figures.items() if value is not None}
    rule = _RULES.get(failure.cause.reason.name)
    return (*(rule(known, utilisation) if rule else ()), failure.cause.reason.runbook)


Figures = Mapping[str, int | float]


def _too_small(figures: Figures, utilisation: float | None) -> Iterator[str]:
    fits = figures.get("estimated_max_model_len")
    if fits:
        yield f"contextTokens (--max-model-len): at most {fits:.0f}, by the engine's own figure"
    missing = figures.get("needed_bytes", 0) - figures.get("available_bytes", 0)
    total = figures.get("total_bytes")
    if missing <= 0 or not total or utilisation is None:
        return
    share = utilisation + missing / total + _STEP
    if share <= _MOST_UTILISATION:
        yield f"--gpu-memory-utilization: {utilisation:g} -> {share:.2f} gives the {gib(missing)} that are missing"


def _fewer_sequences(figures: Figures, _utilisation: float | None) -> Iterator[str]:
    if "state_blocks" in figures:
        yield f"--max-num-seqs: {figures['max_num_seqs']:.0f} -> {figures['state_blocks']:.0f}"


def _free_memory(figures: Figures, _utilisation: float | None) -> Iterator[str]:
    free, total = figures.get("free_bytes"), figures.get("total_bytes")
    if free is None or not total:
        return
    yield (
        f"something else holds {gib(total - free)} of the GPU: an engine that is still ending, or another process; "
        "when it is gone the same start works"
    )
    if free > 0:
        yield f"to share the GPU on purpose: --gpu-memory-utilization at most {max(0.0, free / total - _STEP):.2f}"


def _out_of_memory(figures: Figures, utilisation: float | None) -> Iterator[str]:
    tried, free, total = figures.get("tried_bytes"), figures.get("free_bytes"), figures.get("total_bytes")
    if tried is None or free is None or not total or utilisation is None:
        return
    lower = utilisation - max(0.0, tried - free) / total - 2 * _STEP
    if lower > 0:
        yield f"--gpu-memory-utilization: {utilisation:g} -> {lower:.2f} leaves room for the {gib(tried)} it tried"


_RULES: Final = {
    reasons.KV_CACHE_TOO_SMALL.name: _too_small,
    reasons.MAX_NUM_SEQS_ABOVE_STATE_BLOCKS.name: _fewer_sequences,
    reasons.NOT_ENOUGH_FREE_MEMORY.name: _free_memory,
    engine_reasons.GPU_OUT_OF_MEMORY.name: _out_of_memory,
}
