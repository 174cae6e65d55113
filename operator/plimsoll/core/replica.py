"""What one replica can take, from the plan that runs and from what its engines report. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.demand import ReplicaCapacity, seconds_of_request
from plimsoll.core.plan.demand import NOTHING_LEARNED, LearnedLoad, read_demand
from plimsoll.core.plan.demand import Demand as Traffic
from plimsoll.core.signals import FleetView, Signal

_SEQUENCES: Final = "--max-num-seqs"


def capacity_of(
    plan: Mapping[str, Any],
    spec: VLLMServiceSpec,
    view: FleetView | None = None,
    learned: LearnedLoad = NOTHING_LEARNED,
    step_factor: float | None = None,
) -> ReplicaCapacity:
    """The capacity of a replica of a kept plan (``status.plan``).

    Pools are those that the engines report once they do; before that, and for plans kept by older releases, the
    planned ones. Without a load in the spec, a request is at least as large as those that run now. ``learned`` lengths
    count in place of those the plan was made for, and so does ``step_factor``, what decode steps take over what was
    predicted: prompts take longer with it, and not less (``core/plan/serving.py``).
    """
    kv, typical = plan["kv"], plan.get("typical") or {}
    then = float(plan.get("stepFactor") or 1.0)
    now = then if step_factor is None else step_factor
    declared = read_demand(spec)
    planned = _planned_for(typical, declared)
    counted = declared if learned == NOTHING_LEARNED else read_demand(spec, learned)
    traffic = _traffic(typical, planned, counted, learned)
    engines = max(1, int(plan["choice"].get("enginesPerReplica", 1)))
    usable = engines * _usable_blocks(kv, view)
    blocks = float(typical.get("blocks") or _older_plans_blocks(kv, spec, planned))
    blocks = _of_another_length(blocks, _held_tokens(planned), _held_tokens(traffic), _of_whole_context(kv, spec))
    if spec.load is None and view is not None:
        blocks = max(blocks, _blocks_now(view, usable / engines))
    capacity = ReplicaCapacity(
        usable_blocks=usable,
        request_blocks=blocks,
        prompt_tokens=float(traffic.prompt_tokens),
        max_num_seqs=engines * _sequences(plan["choice"].get("args", ())),
        load_seconds=float((plan.get("startup") or {}).get("seconds") or 0),
        prefill_seconds_per_token=max(1.0, now) / max(1.0, then) * (typical.get("prefillMsPerToken") or 0.0) / 1e3,
        decode_step_seconds=now / then * (typical.get("decodeStepMs") or 0.0) / 1e3,
        ttft_seconds=traffic.ttft_seconds,
        itl_seconds=traffic.itl_seconds,
        percentile=traffic.percentile / 100,
    )
    return replace(capacity, request_seconds=seconds_of_request(capacity, traffic.output_tokens, engines))


def _planned_for(typical: Mapping[str, Any], traffic: Traffic) -> Traffic:
    """The traffic that the plan was made for; plans of older releases do not say, and were made for the declared."""
    return replace(
        traffic,
        prompt_tokens=typical.get("promptTokens", traffic.prompt_tokens),
        output_tokens=typical.get("outputTokens", traffic.output_tokens),
        shared_tokens=typical.get("sharedTokens", traffic.shared_tokens),
    )


def _traffic(typical: Mapping[str, Any], planned: Traffic, traffic: Traffic, learned: LearnedLoad) -> Traffic:
    """The traffic that counts now. Plans of older releases do not say all they were made for: what is not learned
    stays as it was planned.
    """
    if "outputTokens" in typical or learned.prompt_tokens is not None:
        return traffic
    return replace(traffic, prompt_tokens=planned.prompt_tokens)


def _held_tokens(traffic: Traffic) -> int:
    """Tokens of its own that a typical request holds when half of its output is made."""
    return traffic.prompt_tokens + traffic.output_tokens // 2 - traffic.shared_tokens


class _Whole(NamedTuple):
    """A request of the whole context."""

    tokens: int
    blocks: float


def _of_whole_context(kv: Mapping[str, Any], spec: VLLMServiceSpec) -> _Whole:
    return _Whole(spec.context_tokens, (float(kv["numBlocks"]) - 1) / max(1e-9, float(kv["maxConcurrency"])))


def _of_another_length(blocks: float, tokens: int, now_tokens: int, whole: _Whole) -> float:
    """Blocks of a request that is not as long as was planned: on the line from the planned one to the longest one,
    since states do not grow with tokens.
    """
    if whole.tokens <= tokens:
        return blocks
    slope = max(0.0, whole.blocks - blocks) / (whole.tokens - tokens)
    return max(1.0, blocks + slope * (now_tokens - tokens))


def _usable_blocks(kv: Mapping[str, Any], view: FleetView | None) -> float:
    """Blocks of one engine that can hold tokens: all but vLLM's null block."""
    reported = view.mean(Signal.NUM_BLOCKS).value if view else None
    return max(1.0, (reported or float(kv["numBlocks"])) - 1)


def _older_plans_blocks(kv: Mapping[str, Any], spec: VLLMServiceSpec, traffic: Traffic) -> float:
    """Plans of the first release say at most what a request takes at its end, or one of the whole context."""
    if found := kv.get("blocksPerRequestAtLoad"):
        return float(found)
    share = (traffic.prompt_tokens + traffic.output_tokens / 2) / spec.context_tokens
    return max(1.0, _of_whole_context(kv, spec).blocks * share)


def _blocks_now(view: FleetView, usable_blocks: float) -> float:
    """Blocks that a request holds now, on average over all that run; 0 when none runs or that is not known."""
    used, running = view.total(Signal.USAGE).value, view.total(Signal.RUNNING).value
    return used * usable_blocks / running if used and running and running >= 1 else 0.0


def _sequences(args: object) -> float:
    """The cap of one engine's running requests; 0 when the arguments do not say."""
    words = [str(word) for word in args] if isinstance(args, list | tuple) else []
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        name, _, value = word.partition("=")
        if name == _SEQUENCES and (value or following).isdecimal():
            return float(value or following)
    return 0.0
