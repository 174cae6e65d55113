"""What a fleet's traffic needs, in the two currencies of an engine: blocks of KV cache, and time to compute.

Blocks, not tokens: on hybrids a short request takes state blocks too, so tokens mislead. The formulas and the figures
behind them stand in ``docs/scaling.md``.
"""

import math
from dataclasses import dataclass
from typing import Final

from plimsoll.core.signals import FleetView, Signal

BACKLOG_SECONDS: Final = 60.0
"""Requests that wait should be served within so long, once there are replicas for them."""
QUEUE_SHARE: Final = 0.15
"""More waiting than so much of what runs is a queue, not a moment."""
QUEUE_TIME_SHARE: Final = 0.5
"""And only if it lasts more than so much of the TTFT target, by what arrives: behind short waits there is room."""
MOST_BY_FLOW: Final = 1.5
"""A step that is taken on a queue alone: what has just begun to arrive is finished by nobody yet."""
FILLED: Final = 0.85
"""A well filled pool, as a share of its blocks."""
LEAST_PREFILL_SHARE: Final = 0.25
MOST_PREFILL_SHARE: Final = 0.75


@dataclass(frozen=True)
class ReplicaCapacity:
    """What one replica can do: from the plan, corrected by what its pods report.

    ``usable_blocks`` of all its engines; ``request_blocks`` a typical request holds when it is half done, state blocks
    included, and ``request_seconds`` it runs; ``prefill_seconds_per_token`` of step time; ``decode_step_seconds`` of
    a step at the planned batch. 0: not known.
    """

    usable_blocks: float
    request_blocks: float
    prompt_tokens: float
    max_num_seqs: float
    request_seconds: float = 0.0
    load_seconds: float = 0.0
    prefill_seconds_per_token: float = 0.0
    decode_step_seconds: float = 0.0
    ttft_seconds: float | None = None
    itl_seconds: float | None = None
    percentile: float = 0.95

    @property
    def at_once(self) -> float:
        """Typical requests that run side by side in a well filled replica."""
        by_blocks = FILLED * self.usable_blocks / max(1.0, self.request_blocks)
        return min(by_blocks, self.max_num_seqs) if self.max_num_seqs else by_blocks

    @property
    def backlog_share(self) -> float:
        """How much of the requests that wait has to run at once, so that all are served within BACKLOG_SECONDS."""
        return min(1.0, self.request_seconds / BACKLOG_SECONDS) if self.request_seconds else 1.0

    @property
    def prefill_share(self) -> float:
        """The share of time that prompts may take, so that both latency targets hold."""
        share = MOST_PREFILL_SHARE
        if self.itl_seconds and self.decode_step_seconds:
            share = min(share, 1 - self.decode_step_seconds / self.itl_seconds)
        if self.ttft_seconds and self.prefill_seconds_per_token:
            share = min(share, self._share_for_ttft(self.ttft_seconds))
        return max(LEAST_PREFILL_SHARE, share)

    def _share_for_ttft(self, ttft_seconds: float) -> float:
        """The largest share at which the slowest requests still wait no longer than the target leaves.

        Wait of a simple queue: ``s / (1 - ρ) × ln(ρ / (1 - p))``, s the seconds of one prompt.
        """
        own = self.prompt_tokens * self.prefill_seconds_per_token
        left = ttft_seconds - own
        low, high = 0.0, MOST_PREFILL_SHARE
        for _ in range(20):
            share = (low + high) / 2
            tail = share / (1 - self.percentile)
            wait = own / (1 - share) * math.log(tail) if tail > 1 else 0.0
            low, high = (share, high) if wait <= left else (low, share)
        return low


def seconds_of_request(capacity: ReplicaCapacity, output_tokens: float, engines: int = 1) -> float:
    """How long a typical request runs in a well filled engine of the replica: its tokens, and the others' prompts.

    0 when the step times are not known.
    """
    if not capacity.decode_step_seconds:
        return 0.0
    prompts = max(1.0, capacity.at_once / engines) * capacity.prompt_tokens * capacity.prefill_seconds_per_token
    return output_tokens * capacity.decode_step_seconds + prompts


@dataclass(frozen=True)
class Demand:
    """Replicas' worth of traffic, not yet rounded, without any head-room."""

    blocks: float
    """KV blocks in use, and what those who wait will take."""
    by_blocks: float
    by_compute: float
    by_sequences: float
    by_flow: float = 0.0
    """Of a queue longer than what runs: the replicas that are there, by what arrives over what they finish."""

    @property
    def replicas(self) -> float:
        """The largest need."""
        return max(self.by_blocks, self.by_compute, self.by_sequences, self.by_flow)

    def times(self, factor: float) -> "Demand":
        """So many times as much of everything."""
        needs = (self.blocks, self.by_blocks, self.by_compute, self.by_sequences, self.by_flow)
        return Demand(*(factor * need for need in needs))

    @property
    def bound(self) -> str:
        """What the largest need is of."""
        needs = {
            "KV blocks": self.by_blocks,
            "compute": self.by_compute,
            "sequences": self.by_sequences,
            "requests that arrive": self.by_flow,
        }
        return max(needs, key=lambda name: needs[name])


def demand(view: FleetView, capacity: ReplicaCapacity, held: float = 0.0) -> Demand:
    """Demand of what was seen: an engine that does not say adds nothing, so this can only be too low.

    ``held`` requests wait outside, where no replica is ready. A backlog is not demand for ever: it counts by how much
    of it must run at once to be gone within BACKLOG_SECONDS.
    """
    running = view.total(Signal.RUNNING).value or 0.0
    queued = view.total(Signal.WAITING).value or 0.0
    waiting = queued + held
    arriving = view.total(Signal.REQUESTS).value or 0.0
    if _is_queue(capacity, running, waiting, arriving):
        waiting += _until_served(view, capacity, arriving)
    else:
        arriving = 0.0
    at_once, backlog = arriving * capacity.request_seconds, waiting * capacity.backlog_share
    blocks = max(_used_blocks(view, capacity), at_once * capacity.request_blocks) + backlog * capacity.request_blocks
    sequences = (max(running, at_once) + backlog) / capacity.max_num_seqs if capacity.max_num_seqs else 0.0
    tokens = _prompt_tokens(view, capacity, arriving, waiting) / max(1, view.engines_per_pod)
    compute = tokens * capacity.prefill_seconds_per_token
    return Demand(
        blocks,
        blocks / capacity.usable_blocks,
        compute,
        sequences,
        _by_flow(view, arriving) if queued > running else 0.0,
    )


def _is_queue(capacity: ReplicaCapacity, running: float, waiting: float, arriving: float) -> bool:
    """Whether requests wait for want of room and not just for the next step: a wait is waiting ÷ arriving (Little)."""
    allowed_seconds = QUEUE_TIME_SHARE * (capacity.ttft_seconds or 0.0)
    return waiting > QUEUE_SHARE * running and waiting > arriving * allowed_seconds


def _by_flow(view: FleetView, arriving: float) -> float:
    """What a queue longer than what runs asks for whatever the plan says: requests may be longer, or engines slower.

    Nothing finished is not known to be slow; and half as many again is enough to see what that does.
    """
    finished = view.total(Signal.FINISHED).value
    if not finished:
        return 0.0
    # Those that fail count too: as many as now, of which some do not serve, are not enough.
    return (len(view.serving) + view.count("failing")) * min(MOST_BY_FLOW, arriving / finished)


def _until_served(view: FleetView, capacity: ReplicaCapacity, arriving: float) -> float:
    """Requests by which the queue will have grown until a replica ordered now serves; 0 once one is on its way.

    While requests wait, what runs is what there is room for, not what is wanted: what arrives tells (Little's law).
    """
    if view.count("loading") or not capacity.request_seconds:
        return 0.0
    finished = view.total(Signal.FINISHED).value or 0.0
    return max(0.0, arriving - finished) * capacity.load_seconds


def _prompt_tokens(view: FleetView, capacity: ReplicaCapacity, arriving: float, waiting: float) -> float:
    """Prompt tokens a second to compute, prefix hits left out, so that the queue is gone in time."""
    hit = view.mean(Signal.HIT_RATIO).value or 0.0
    fresh = max(view.total(Signal.PROMPT_TOKENS).value or 0.0, arriving * capacity.prompt_tokens)
    return (fresh + waiting * capacity.prompt_tokens / BACKLOG_SECONDS) * (1 - hit)


def _used_blocks(view: FleetView, capacity: ReplicaCapacity) -> float:
    """Blocks in use at the peak of the last minute: a saturated pool swings, and half a pool free may be a moment."""
    engines = max(1, view.engines_per_pod)
    peak = view.total(Signal.USAGE_PEAK)
    usage = peak if peak.value is not None else view.total(Signal.USAGE)
    return (usage.value or 0.0) * capacity.usable_blocks / engines
