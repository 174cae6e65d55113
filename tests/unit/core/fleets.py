"""Fleets as a tick sees them, for the tests of what is said of them."""

from typing import Any

from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.evidence import Case
from plimsoll.core.latencies import Targets
from plimsoll.core.signals import FleetView, PodView, Reading, Sample, Signal

CAPACITY = ReplicaCapacity(
    usable_blocks=1000, request_blocks=20, prompt_tokens=1000, max_num_seqs=64, prefill_seconds_per_token=0.0001
)
QUIET = {
    "USAGE": 0.0, "USAGE_PEAK": 0.0, "RUNNING": 0, "WAITING": 0, "PREEMPTIONS": 0, "REQUESTS": 0, "PROMPT_TOKENS": 0,
    "GENERATION_TOKENS": 0, "REJECTED": 0,
}  # fmt: skip
BUSY = QUIET | {
    "USAGE": 0.5, "USAGE_PEAK": 0.6, "RUNNING": 20, "REQUESTS": 4, "PROMPT_TOKENS": 4000, "GENERATION_TOKENS": 800,
    "TTFT": 0.4, "ITL": 0.03,
}  # fmt: skip


def readings(**named: Reading | float | None) -> dict[Signal, Reading]:
    """Readings by the signal's name; None leaves one out."""
    return {Signal[k]: Sample(v) if isinstance(v, int | float) else v for k, v in named.items() if v is not None}


def busy(name: str = "a", **other: Reading | float | None) -> PodView:
    """A pod that serves well, but for what is given otherwise."""
    return PodView(name, "ready", engines={"0": readings(**(BUSY | other))})


def quiet(name: str = "a", **other: Reading | float | None) -> PodView:
    """A pod without requests."""
    return PodView(name, "ready", engines={"0": readings(**(QUIET | other))})


def case(*pods: PodView, targets: Targets | None = None, capacity: ReplicaCapacity = CAPACITY, **view: Any) -> Case:
    """A fleet of these pods with targets of 2 s and 50 ms."""
    return Case(FleetView(pods, **view), capacity, targets or Targets(2.0, 0.05))
