"""How a plan's capacity moves: requests at once over context length, GPUs over load. Figures for pictures, no I/O."""

from dataclasses import dataclass
from typing import Final

from plimsoll.core.kv import EngineOptions, KVLayout, plan_layout
from plimsoll.core.kv import Refusal as EngineRefusal
from plimsoll.core.plan.asked import draft_facts, facts_of
from plimsoll.core.plan.extra_args import BadFlagError, Overrides, argv_flags
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.plan.result import Plan, RefusedError
from plimsoll.core.serve_flags import read_serve_flags
from plimsoll.core.speculation import read_speculation
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion

SHORTEST_TOKENS: Final = 256
POINTS_PER_DOUBLING: Final = 2


@dataclass(frozen=True)
class FleetSize:
    """What one replica carries at a request length, by memory and ``--max-num-seqs`` alone."""

    request_tokens: int
    requests_per_replica: float
    gpus_per_replica: int

    def replicas_for(self, requests: float) -> int:
        """The fewest replicas that hold ``requests`` at once."""
        return max(1, -int(-requests // self.requests_per_replica))


def layout_of(plan: Plan, config: ModelConfig) -> KVLayout | None:
    """The KV layout that the plan's own argv gives for the model; None when it is not the one it was made with.

    Read back from the argv so that a picture can never show another engine than the one that will run.
    """
    gpu = gpus.find(plan.choice.gpu)
    if gpu is None:
        return None
    try:
        version = EngineVersion.parse(plan.choice.engine_version)
        read = read_serve_flags(argv_flags(plan.choice.args, version), version)
        facts = facts_of(config, Overrides(hf_overrides=read.hf_overrides))
        drafting = read_speculation(read.speculative, lambda name: draft_facts(name, config.draft))
        layout = plan_layout(
            facts, EngineOptions(device=gpu, version=version, speculation=drafting.speculation, **read.options)
        )
    except (EngineRefusal, BadFlagError, RefusedError, ValueError):
        return None
    return layout if layout.bytes_per_block == plan.kv.bytes_per_block else None


def requests_at_once(layout: KVLayout, num_blocks: int, tokens: int) -> float:
    """Requests of ``tokens`` that the blocks of one engine hold at once; the null block holds none."""
    needed = layout.blocks_for_request(tokens)
    return (num_blocks - 1) / needed if needed else 0.0


def capacity_curve(layout: KVLayout, num_blocks: int, longest_tokens: int) -> tuple[tuple[int, float], ...]:
    """(tokens, requests at once) from short requests to the longest, evenly spaced in doublings."""
    lengths = [longest_tokens]
    factor = 2 ** (1 / POINTS_PER_DOUBLING)
    while lengths[-1] / factor > SHORTEST_TOKENS:
        lengths.append(int(lengths[-1] / factor))
    return tuple((tokens, requests_at_once(layout, num_blocks, tokens)) for tokens in reversed(lengths))


def fleet_size(plan: Plan, layout: KVLayout, request_tokens: int) -> FleetSize:
    """What one replica of the plan carries at ``request_tokens``: blocks or the sequence cap, whichever is less."""
    by_memory = requests_at_once(layout, plan.kv.num_blocks, request_tokens)
    cap = layout.resolved.max_num_seqs
    each = min(by_memory, cap) if cap else by_memory
    return FleetSize(request_tokens, each * plan.choice.engines_per_replica, plan.choice.gpus_per_replica)
