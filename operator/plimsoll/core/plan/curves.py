"""How a plan's capacity moves: requests at once over context length, GPUs over load. Figures for pictures, no I/O."""

from dataclasses import dataclass
from typing import Final

from plimsoll.core.kv import KVLayout
from plimsoll.core.plan.result import Plan

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
