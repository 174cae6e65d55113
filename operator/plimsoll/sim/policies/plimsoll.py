"""Our own policy: the very code the operator runs, given what a Prometheus would say of the simulated fleet."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from plimsoll.core.demand import FILLED, ReplicaCapacity, seconds_of_request
from plimsoll.core.scale import DEFAULTS, History, Limits, State, Tuning, decide
from plimsoll.core.signals import FleetView, PodView, Reading, Sample, Signal
from plimsoll.sim.models import EngineModel
from plimsoll.sim.observe import Observation, PodSample
from plimsoll.sim.observe import PodView as SeenPod
from plimsoll.sim.steps import StepCost

PEAK_SECONDS: Final = 60.0
ARRIVAL_SECONDS: Final = 30.0
RATE_SECONDS: Final = 60.0
MEAN_SECONDS: Final = 300.0


class Plimsoll:
    """Keeps the scrapes that the queries' windows reach over, and asks ``core.scale``."""

    interval_seconds = 15.0
    live = False

    def __init__(self, capacity: ReplicaCapacity, limits: Limits, tuning: Tuning = DEFAULTS) -> None:
        self._capacity, self._limits, self._tuning = capacity, limits, tuning
        self._history: History | None = None
        self._scrapes: dict[str, deque[PodSample]] = {}
        self._ready: dict[str, float] = {}

    def decide(self, seen: Observation) -> int:
        """What the law says; a hold is the count as it is."""
        self._history = self._history or History(seen.seconds)
        view = self.view(seen)
        state = State(seen.wanted, held_requests=seen.held)
        return decide(self._capacity, view, state, self._limits, self._history, seen.seconds, self._tuning).replicas

    def view(self, seen: Observation) -> FleetView:
        """What the operator would know of the fleet at this moment."""
        names = {pod.name for pod in seen.pods}
        ready = (pod.name for pod in seen.pods if pod.state == "ready")
        self._ready = {name: self._ready.get(name, seen.seconds) for name in ready}
        self._scrapes = {name: kept for name, kept in self._scrapes.items() if name in names}
        return FleetView(tuple(self._pod(pod, seen.seconds) for pod in seen.pods if pod.state in ("loading", "ready")))

    def _pod(self, pod: SeenPod, now: float) -> PodView:
        if pod.state == "loading":
            return PodView(pod.name, "loading")
        since = now - self._ready[pod.name]
        if pod.sample is None:
            return PodView(pod.name, "ready", since)
        kept = self._scrapes.setdefault(pod.name, deque(maxlen=int(MEAN_SECONDS // 15) + 1))
        if not kept or kept[-1] is not pod.sample:
            kept.append(pod.sample)
        return PodView(pod.name, "ready", since, engines={"0": self._readings(kept)})

    def _readings(self, kept: deque[PodSample]) -> Mapping[Signal, Reading]:
        last = kept[-1]
        minute = [sample for sample in kept if sample.seconds > last.seconds - PEAK_SECONDS]
        quick = next(sample for sample in kept if sample.seconds >= last.seconds - ARRIVAL_SECONDS)
        queried = last.prefix_queried_tokens - kept[0].prefix_queried_tokens
        hits = last.prefix_hit_tokens - kept[0].prefix_hit_tokens
        figures = {
            Signal.USAGE: last.usage,
            Signal.USAGE_PEAK: max(sample.usage for sample in minute),
            Signal.RUNNING: last.running,
            Signal.WAITING: last.waiting,
            Signal.HIT_RATIO: hits / queried if queried else 0.0,
            **_rates(minute[0], last),
            **_flow(quick, last),
        }
        return {signal: Sample(value) for signal, value in figures.items()}


def _rates(first: PodSample, last: PodSample) -> Mapping[Signal, float]:
    seconds = last.seconds - first.seconds
    if not seconds:
        return {}
    return {
        Signal.PREEMPTIONS: (last.preemptions - first.preemptions) / seconds,
        Signal.PROMPT_TOKENS: (last.prompt_tokens - first.prompt_tokens) / seconds,
    }


def _flow(first: PodSample, last: PodSample) -> Mapping[Signal, float]:
    """What comes and what goes: over a short window, since it matters when it has just changed."""
    seconds = last.seconds - first.seconds
    if not seconds:
        return {}
    return {
        Signal.REQUESTS: max(0.0, (last.arrived - first.arrived) / seconds),
        Signal.FINISHED: (last.finished - first.finished) / seconds,
    }


def capacity_of(
    engine: EngineModel,
    prompt_tokens: float,
    output_tokens: float,
    ttft_seconds: float,
    itl_seconds: float,
    load_seconds: float = 0.0,
) -> ReplicaCapacity:
    """What a plan would say of an engine at these lengths."""
    pool = engine.pool
    half = int(prompt_tokens + output_tokens / 2)
    blocks = pool.blocks(half)
    batch = max(1, min(engine.limits.max_num_seqs, int(FILLED * pool.usable_blocks / blocks)))
    fixed, slope = engine.cost.decode_line(batch)
    step = fixed + slope * batch * half
    prefill = prefill_seconds_per_token(engine.cost, batch, batch * half, int(prompt_tokens))
    capacity = ReplicaCapacity(
        usable_blocks=pool.usable_blocks,
        request_blocks=blocks,
        prompt_tokens=prompt_tokens,
        max_num_seqs=engine.limits.max_num_seqs,
        load_seconds=load_seconds,
        prefill_seconds_per_token=prefill,
        decode_step_seconds=step,
        ttft_seconds=ttft_seconds,
        itl_seconds=itl_seconds,
    )
    return replace(capacity, request_seconds=seconds_of_request(capacity, output_tokens))


def prefill_seconds_per_token(cost: StepCost, decoding: int, context_tokens: int, prompt_tokens: int) -> float:
    """What a prompt adds to the step that computes it, for each of its tokens."""
    fixed, slope = cost.decode_line(decoding)
    alone = fixed + slope * context_tokens
    with_prompt = cost.mixed_seconds(decoding, context_tokens, [(prompt_tokens, 0)])
    return (with_prompt - alone) / prompt_tokens
