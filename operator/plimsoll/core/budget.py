"""GPUs of one product that several services share: who may have how many replicas. Pure.

Counts that somebody else sets are taken as they are. Then everybody gets the fewest replicas that its spec asks for,
the important ones first; then, from the highest priority down, what each holds and what each wants. At the same
priority whoever holds a GPU keeps it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Claim:
    """One service, in replicas. ``fixed``: its count is not ours to set."""

    service: str
    gpus_per_replica: int
    held: int
    wanted: int = 0
    floor: int = 0
    priority: int = 0
    fixed: bool = False


def share(budget_gpus: int, claims: Sequence[Claim], service: str) -> int:
    """Replicas that a service may have at most."""
    left, got = budget_gpus, dict.fromkeys((claim.service for claim in claims), 0)

    def give(group: Iterable[Claim], up_to: Callable[[Claim], int]) -> None:
        nonlocal left
        for claim in group:
            size = max(1, claim.gpus_per_replica)
            more = max(0, min(up_to(claim) - got[claim.service], left // size))
            got[claim.service] += more
            left -= more * size

    ours = sorted((claim for claim in claims if not claim.fixed), key=lambda each: (-each.priority, each.service))
    left -= sum(claim.held * claim.gpus_per_replica for claim in claims if claim.fixed)
    left = max(0, left)
    give(ours, lambda claim: claim.floor)
    for priority in sorted({claim.priority for claim in ours}, reverse=True):
        level = [claim for claim in ours if claim.priority == priority]
        give(level, lambda claim: claim.held)
        give(level, lambda claim: claim.wanted)
    size = next((claim.gpus_per_replica for claim in ours if claim.service == service), 1)
    return got.get(service, 0) + left // max(1, size)
