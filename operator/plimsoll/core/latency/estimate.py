"""Latency of a load on a model, a GPU and an engine's flags, as ranges."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from plimsoll.core.kv import EngineOptions, resolve
from plimsoll.core.latency.coefficients import Spread, fitted
from plimsoll.core.latency.load import Load, Steady, steady_state
from plimsoll.core.latency.step import StepTimes, machine
from plimsoll.core.latency.work import read_predictor_work, read_work
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.plan.result import Range
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts


@dataclass(frozen=True)
class LatencyEstimate:
    """Milliseconds; the truth is meant to lie within a range in 90 % of cases. None: not known, see ``assumptions``.

    ``running`` of the load's requests decode at once, ``decode_step_ms`` a step of theirs without any prompt.
    """

    ttft_ms: Range | None
    tpot_ms: Range | None
    decode_step_ms: float | None = None
    running: float | None = None
    assumptions: tuple[str, ...] = ()


def predict_latency(
    facts: ModelFacts,
    options: EngineOptions,
    load: Load,
    flags: MemoryFlags | None = None,
    *,
    accepted_tokens_per_step: float | None = None,
    running_limit: float | None = None,
    correction: float | None = None,
) -> LatencyEstimate:
    """What clients of one engine (data-parallel rank) see; of ``flags``, parallelism and quantisation matter.

    ``accepted_tokens_per_step``: tokens a step yields for a request under speculative decoding, the certain one
    included. ``running_limit``: requests the KV pool holds at once (``latency.running_limit``). ``correction``: truth
    over prediction as learned in service for this model, GPU and engine; it also narrows the ranges.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    times = step_times(facts, options, flags, correction=1.0 if correction is None else correction)
    if times is None:
        name = "the CPU" if options.device == "cpu" else options.device.name
        return LatencyEstimate(None, None, assumptions=(f"latency unknown: no bandwidth or FLOP/s of {name}",))
    most = resolve(facts, options).max_num_seqs
    limit = most if running_limit is None else min(most, running_limit)
    state = steady_state(times, load, limit, accepted_tokens_per_step or 1.0)
    spreads = fitted().spreads
    learned = correction is not None
    return LatencyEstimate(
        ttft_ms=_range(state.ttft_seconds, spreads.corrected_ttft if learned else spreads.ttft),
        tpot_ms=_range(state.tpot_seconds, spreads.corrected_tpot if learned else spreads.tpot),
        decode_step_ms=1e3 * state.decode_step_seconds,
        running=state.running,
        assumptions=tuple(_assumptions(options, load, state, accepted_tokens_per_step)),
    )


def step_times(
    facts: ModelFacts, options: EngineOptions, flags: MemoryFlags | None = None, *, correction: float = 1.0
) -> StepTimes | None:
    """Step times of one engine, to be asked many times; None on a device whose speeds are not known.

    Raises:
        Refusal: vLLM would refuse the flags for this model on this device.
    """
    gpu = options.device
    speeds = None if gpu == "cpu" else machine(gpu)
    if gpu == "cpu" or speeds is None:
        return None
    flags = flags or MemoryFlags()
    target = StepTimes(
        work=read_work(facts, options, flags, gpu),
        machine=speeds,
        fit=fitted().coefficients,
        tensor_parallel=options.tensor_parallel,
        budget_tokens=resolve(facts, options).max_num_batched_tokens,
        pipeline_parallel=options.pipeline_parallel,
        data_parallel=flags.data_parallel,
        correction=correction,
    )
    drafter = _drafter(target, facts, options, flags, gpu)
    return replace(target, drafts=options.speculative_tokens, drafter=drafter)


def _drafter(
    target: StepTimes, facts: ModelFacts, options: EngineOptions, flags: MemoryFlags, gpu: GPU
) -> StepTimes | None:
    """The model that drafts: a file of its own, or the checkpoint's own predictor."""
    speculation = options.speculation
    if speculation is None:
        return None
    if speculation.draft is not None:
        alone = replace(options, speculation=None, max_model_len=None)
        return replace(target, work=read_work(speculation.draft, alone, MemoryFlags(), gpu))
    if (speculation.method == "mtp" or speculation.like_target) and facts.draft_layers:
        return replace(target, work=read_predictor_work(facts, options, flags, gpu))
    return None


def _range(seconds: float, spread: Spread) -> Range:
    return Range(1e3 * seconds * spread.low, 1e3 * seconds, 1e3 * seconds * spread.high)


def _assumptions(options: EngineOptions, load: Load, state: Steady, accepted: float | None) -> Iterator[str]:
    if load.concurrency > state.running:
        waiting = load.concurrency - state.running
        yield f"latency: {waiting:.0f} of {load.concurrency:.0f} requests queue for the KV pool or max_num_seqs"
    if options.speculative_tokens and accepted is None:
        yield "latency: accepted tokens per step not given, one is counted"
    if options.device == "cpu":
        return
    if not options.device.nvlink_bytes_per_second and options.tensor_parallel > 1:
        yield "latency: speed of all-reduces over PCIe is assumed, not fitted"
    if options.device.vendor != "nvidia":
        yield f"latency: constants fitted on NVIDIA GPUs are taken for {options.device.name}"
