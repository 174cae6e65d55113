"""Plan → argv of ``vllm serve`` for the engine's version.

Everything memory depends on is written out: defaults move with the GPU and the engine's version (decision 10). A flag
is written only where the release's own parser is known to have it.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from plimsoll.core.kv import EngineOptions
from plimsoll.core.plan.demand import Demand
from plimsoll.core.plan.extra_args import argv_flags
from plimsoll.core.plan.refuse import EngineStart
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion, default_utilisation
from plimsoll.facts.models import ModelFacts
from plimsoll.facts.parsers import parsers_of

_BUCKETS_SINCE: Final = 32
"""First recorded release with ``--custom-histogram-buckets``; the one before does not have it."""
# Default bounds of vLLM 0.32, as its /metrics shows them; below 10 ms it has none for ITL.
_TTFT_BUCKETS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL_BUCKETS: Final = (
    0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0,
)  # fmt: skip

Argument = tuple[str, ...]


def engine_args(
    start: EngineStart,
    demand: Demand,
    model_id: str,
    extra_args: Sequence[str] = (),
    *,
    features: Sequence[str] = (),
    drain_seconds: int,
) -> tuple[str, ...]:
    """Arguments after the model's name, in a fixed order; the user's own replace ours of the same flag.

    ``features`` are those that fields of the spec stand for. ``drain_seconds``: how long requests in flight may go on
    after SIGTERM.
    """
    theirs = {_dest(name) for name in argv_flags(extra_args, start.options.version)}
    ours = (*_ours(start, demand, model_id), *_draining(start.options.version, drain_seconds))
    kept = (argument for argument in ours if _dest(argument[0]) not in theirs)
    return (*(word for argument in kept for word in argument), *features, *extra_args)


def _dest(name: str) -> str:
    flag = engine_flags.find(name)
    return flag.dest if flag else name


def _ours(start: EngineStart, demand: Demand, model_id: str) -> Iterator[Argument]:
    yield "--served-model-name", model_id
    yield from _parallelism(start)
    yield from _memory(start)
    yield from _scheduling(start)
    yield from _model(start, model_id)
    yield from _serving(start.options.version, demand)


def _parallelism(start: EngineStart) -> Iterator[Argument]:
    options, flags = start.options, start.flags
    yield "--tensor-parallel-size", str(options.tensor_parallel)
    for name, size in (
        ("--pipeline-parallel-size", options.pipeline_parallel),
        ("--data-parallel-size", flags.data_parallel),
        ("--decode-context-parallel-size", options.decode_context_parallel),
    ):
        if size > 1:
            yield name, str(size)
    if flags.expert_parallel:
        yield ("--enable-expert-parallel",)
    if options.tensor_parallel * options.pipeline_parallel > 1:
        # Left alone, vLLM takes Ray where it finds a cluster of it.
        yield "--distributed-executor-backend", "mp"


def _memory(start: EngineStart) -> Iterator[Argument]:
    options, flags = start.options, start.flags
    share = flags.gpu_memory_utilization
    yield "--max-model-len", str(options.max_model_len)
    yield "--max-num-seqs", str(options.max_num_seqs)
    yield "--max-num-batched-tokens", str(options.max_num_batched_tokens)
    yield "--gpu-memory-utilization", f"{default_utilisation(options.version) if share is None else share:g}"
    yield "--kv-cache-dtype", options.kv_cache_dtype


def _scheduling(start: EngineStart) -> Iterator[Argument]:
    """Prefix caching and chunked prefill; asynchronous scheduling only where the release counts on it."""
    options = start.options
    if start.facts.has_encoder:
        return
    yield ("--enable-prefix-caching" if options.enable_prefix_caching else "--no-enable-prefix-caching",)
    if not start.flags.pooling:
        chunked = options.enable_chunked_prefill is not False
        yield ("--enable-chunked-prefill" if chunked else "--no-enable-chunked-prefill",)
    if _schedules_ahead(start):
        yield ("--async-scheduling",)


def _schedules_ahead(start: EngineStart) -> bool:
    """Whether the arithmetic counts on steps that overlap: on by default there, but left to defaults they may move."""
    options = start.options
    plain = options.speculation is None and options.pipeline_parallel == 1 and not start.flags.pooling
    return options.rules.counts_in_flight and plain and options.async_scheduling is None


def _model(start: EngineStart, model_id: str) -> Iterator[Argument]:
    options, facts = start.options, start.facts
    if _has_gated_delta_net(facts) and _knows(options.version, "--gdn-prefill-backend"):
        yield "--gdn-prefill-backend", options.gdn_prefill_backend
    if options.text_only and facts.multimodal:
        yield from _without_towers(options)
    parsers = parsers_of(facts.model_type, model_id, facts.architecture, options.version)
    if start.flags.pooling:
        return
    if parsers.reasoning:
        yield "--reasoning-parser", parsers.reasoning
    if parsers.tools:
        yield ("--enable-auto-tool-choice",)
        yield "--tool-call-parser", parsers.tools


def _without_towers(options: EngineOptions) -> Iterator[Argument]:
    """Text only, as the release spells it: before the flag came, no inputs of other kinds."""
    if _knows(options.version, "--language-model-only"):
        yield ("--language-model-only",)
    else:
        yield "--limit-mm-per-prompt", json.dumps({"image": 0, "video": 0}, separators=(",", ":"))


def _serving(version: EngineVersion, demand: Demand) -> Iterator[Argument]:
    if demand.has_targets and version.at_least(_BUCKETS_SINCE):
        yield "--custom-histogram-buckets", histogram_buckets(demand)


def _draining(version: EngineVersion, seconds: int) -> Iterator[Argument]:
    if _knows(version, "--shutdown-timeout"):
        yield "--shutdown-timeout", str(seconds)


def histogram_buckets(demand: Demand) -> str:
    """The defaults with the targets among them, so that the share of requests within a target can be read exactly."""
    found = {}
    for name, bounds, target in (
        ("time_to_first_token", _TTFT_BUCKETS, demand.ttft_seconds),
        ("inter_token_latency", _ITL_BUCKETS, demand.itl_seconds),
    ):
        if target is not None:
            found[name] = sorted({*bounds, target})
    return json.dumps(found, separators=(",", ":"))


def _has_gated_delta_net(facts: ModelFacts) -> bool:
    return any(getattr(cache, "kind", "") == "gdn" for cache in facts.caches)


def _knows(version: EngineVersion, name: str) -> bool:
    return engine_flags.surely_knows(name, version)
