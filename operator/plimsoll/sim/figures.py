"""What a simulated history amounts to: cost, latency, attainment, churn."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from plimsoll.sim.engine import NEVER
from plimsoll.sim.fleet import History
from plimsoll.sim.requests import Request

RECOVERED_SHARE: Final = 0.95
RECOVERY_WINDOW_SECONDS: Final = 60
RECOVERY_WINDOWS: Final = 3
BEFORE_WINDOWS: Final = 10
BURST_FACTOR: Final = 2.0


@dataclass(frozen=True)
class Slo:
    """What a request has to meet: first token within a base and a share for each prompt token, and time per token."""

    ttft_seconds: float
    tpot_seconds: float
    ttft_seconds_per_prompt_token: float = 0.0

    def ttft_met(self, request: Request) -> bool:
        """Whether the first token came in time; one that never came did not."""
        limit = self.ttft_seconds + self.ttft_seconds_per_prompt_token * request.prompt_tokens
        return request.ttft_seconds <= limit

    def met(self, request: Request) -> bool:
        """Whether the request was finished, within both limits."""
        return request.finish_seconds < NEVER and request.tpot_seconds <= self.tpot_seconds and self.ttft_met(request)


@dataclass(frozen=True)
class Figures:
    """The result of one simulation. ``None``: nothing to tell it from."""

    requests: int
    unfinished: int
    rejected: int
    gpu_hours: float
    slo_attainment: float | None
    ttft_p50: float | None
    ttft_p99: float | None
    tpot_p50: float | None
    tpot_p99: float | None
    preemptions_per_1000: float | None
    scale_events: int
    max_replicas: int
    burst_recovery_seconds: float | None


def figures(history: History, slo: Slo, gpus_per_replica: int, burst_seconds: float | None = None) -> Figures:
    """Rejected and unfinished requests count as missed; pending and draining replicas count as paid."""
    requests = history.requests
    served = [request for request in requests if request.finish_seconds < NEVER]
    ttft = sorted(request.ttft_seconds for request in requests if request.first_token_seconds < NEVER)
    tpot = sorted(request.tpot_seconds for request in served if request.output_tokens > 1)
    count = len(requests)
    return Figures(
        requests=count,
        unfinished=count - len(served) - len(history.rejected),
        rejected=len(history.rejected),
        gpu_hours=history.replica_seconds * gpus_per_replica / 3600,
        slo_attainment=sum(map(slo.met, requests)) / count if count else None,
        ttft_p50=quantile(ttft, 0.5),
        ttft_p99=quantile(ttft, 0.99),
        tpot_p50=quantile(tpot, 0.5),
        tpot_p99=quantile(tpot, 0.99),
        preemptions_per_1000=1000 * history.preemptions / count if count else None,
        scale_events=history.scale_events,
        max_replicas=history.most_replicas,
        burst_recovery_seconds=None if burst_seconds is None else recovery_seconds(requests, slo, burst_seconds),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value that this share of an ordered sequence does not exceed; None when it is empty."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def burst_start(requests: Sequence[Request]) -> float | None:
    """When the tokens asked for jump to twice the mean of the ten minutes before, and stay there for three; or None.

    A trace's first ten minutes cannot be a burst: there is nothing to compare them with.
    """
    if not requests:
        return None
    work = [0] * (int(requests[-1].arrival_seconds // RECOVERY_WINDOW_SECONDS) + 1)
    for request in requests:
        work[int(request.arrival_seconds // RECOVERY_WINDOW_SECONDS)] += request.prompt_tokens + request.output_tokens
    for window in range(BEFORE_WINDOWS, len(work) - RECOVERY_WINDOWS):
        before = sum(work[window - BEFORE_WINDOWS : window]) / BEFORE_WINDOWS
        if before and all(tokens >= BURST_FACTOR * before for tokens in work[window : window + RECOVERY_WINDOWS]):
            return float(window * RECOVERY_WINDOW_SECONDS)
    return None


def recovery_seconds(requests: Iterable[Request], slo: Slo, burst_seconds: float) -> float | None:
    """From a burst to the first three minutes in a row whose requests got their first token in time; None: never."""
    later = [request for request in requests if request.arrival_seconds >= burst_seconds]
    good = 0
    for window, group in groupby(later, lambda r: int((r.arrival_seconds - burst_seconds) // RECOVERY_WINDOW_SECONDS)):
        met = [slo.ttft_met(request) for request in group]
        good = good + 1 if sum(met) >= RECOVERED_SHARE * len(met) else 0
        if good == RECOVERY_WINDOWS:
            return (window - RECOVERY_WINDOWS + 1) * RECOVERY_WINDOW_SECONDS
    return None
