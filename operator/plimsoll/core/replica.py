"""What one replica can take, from the plan that runs and from what its engines report. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.demand import ReplicaCapacity, seconds_of_request
from plimsoll.core.plan.demand import Demand as Traffic
from plimsoll.core.plan.demand import read_demand
from plimsoll.core.signals import FleetView, Signal

_SEQUENCES: Final = "--max-num-seqs"


def capacity_of(plan: Mapping[str, Any], spec: VLLMServiceSpec, view: FleetView | None = None) -> ReplicaCapacity:
    """The capacity of a replica of a kept plan (``status.plan``).

    Pools are those that the engines report once they do; before that, and for plans kept by older releases, the
    planned ones. Without a load in the spec, a request is at least as large as those that run now.
    """
    kv, typical, traffic = plan["kv"], plan.get("typical") or {}, read_demand(spec)
    engines = max(1, int(plan["choice"].get("enginesPerReplica", 1)))
    usable = engines * _usable_blocks(kv, view)
    blocks = float(typical.get("blocks") or _older_plans_blocks(kv, spec, traffic))
    if spec.load is None and view is not None:
        blocks = max(blocks, _blocks_now(view, usable / engines))
    capacity = ReplicaCapacity(
        usable_blocks=usable,
        request_blocks=blocks,
        prompt_tokens=float(typical.get("promptTokens") or traffic.prompt_tokens),
        max_num_seqs=engines * _sequences(plan["choice"].get("args", ())),
        load_seconds=float((plan.get("startup") or {}).get("seconds") or 0),
        prefill_seconds_per_token=(typical.get("prefillMsPerToken") or 0.0) / 1e3,
        decode_step_seconds=(typical.get("decodeStepMs") or 0.0) / 1e3,
        ttft_seconds=traffic.ttft_seconds,
        itl_seconds=traffic.itl_seconds,
        percentile=traffic.percentile / 100,
    )
    return replace(capacity, request_seconds=seconds_of_request(capacity, traffic.output_tokens, engines))


def _usable_blocks(kv: Mapping[str, Any], view: FleetView | None) -> float:
    """Blocks of one engine that can hold tokens: all but vLLM's null block."""
    reported = view.mean(Signal.NUM_BLOCKS).value if view else None
    return max(1.0, (reported or float(kv["numBlocks"])) - 1)


def _older_plans_blocks(kv: Mapping[str, Any], spec: VLLMServiceSpec, traffic: Traffic) -> float:
    """Plans of the first release say at most what a request takes at its end, or one of the whole context."""
    if found := kv.get("blocksPerRequestAtLoad"):
        return float(found)
    whole = (float(kv["numBlocks"]) - 1) / max(1e-9, float(kv["maxConcurrency"]))
    share = (traffic.prompt_tokens + traffic.output_tokens / 2) / spec.context_tokens
    return max(1.0, whole * min(1.0, share))


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
