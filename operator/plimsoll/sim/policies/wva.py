"""llm-d's workload variant autoscaler, saturation analyzers v1 and v2, with the HPA that carries out its wish.

Source: llm-d ``internal/saturation/analyzer.go``, ``internal/engines/analyzers/saturation_v2``,
``internal/engines/pipeline/cost_aware_optimizer.go`` (b08b1c7); the chart's HPA has 240 s windows both ways and moves
by at most 10 pods in 150 s.
"""

import math
from collections import defaultdict, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from plimsoll.sim.observe import Observation, PodSample
from plimsoll.sim.policies.hpa import Behaviour, by_total

LOOP_SECONDS: Final = 60.0
HPA_WINDOW_SECONDS: Final = 240.0
KV_SATURATED: Final = 0.80
QUEUE_SATURATED: Final = 5
KV_SPARE: Final = 0.10
QUEUE_SPARE: Final = 3
UP_TARGET: Final = 0.85
DOWN_TARGET: Final = 0.70
REMEMBERED: Final = 10
OUTPUT_CLASSES: Final = (100, 500)


class _WithHpa:
    """A wish every minute, which an HPA with AverageValue 1 follows every 15 s."""

    interval_seconds = 15.0
    live = False

    def __init__(self, window_seconds: float) -> None:
        self._behaviour = Behaviour(
            window_seconds, window_seconds, up_pods=10, up_share=0.0, down_share=1.0, period_seconds=150.0
        )
        self._next_loop = 0.0
        self._wish = 0
        self._recent: dict[str, deque[PodSample]] = defaultdict(lambda: deque(maxlen=5))

    def decide(self, seen: Observation) -> int:
        """What the HPA sets now."""
        for pod in seen.pods:
            if pod.sample and (not self._recent[pod.name] or self._recent[pod.name][-1] is not pod.sample):
                self._recent[pod.name].append(pod.sample)
        if seen.seconds >= self._next_loop:
            self._next_loop = seen.seconds + LOOP_SECONDS
            self._wish = self.wish(seen)
        wanted = by_total(seen.wanted, self._wish, 1.0)
        return self._behaviour.apply(seen.seconds, seen.wanted, wanted)

    def wish(self, seen: Observation) -> int:
        """Replicas that the analyzer asks for."""
        raise NotImplementedError

    def peaks(self, seen: Observation) -> list[tuple[float, int]]:
        """The largest use and queue of the last minute, of each ready pod that reports."""
        since = seen.seconds - LOOP_SECONDS
        found = []
        for pod in seen.pods:
            samples = [sample for sample in self._recent[pod.name] if sample.seconds >= since]
            if pod.state == "ready" and samples:
                found.append((max(s.usage for s in samples), max(s.waiting for s in samples)))
        return found


class WvaV1(_WithHpa):
    """One replica at a time, by the mean spare of the pods that are not saturated."""

    def __init__(self, window_seconds: float = HPA_WINDOW_SECONDS, kv_saturated: float = KV_SATURATED) -> None:
        super().__init__(window_seconds)
        self._kv = kv_saturated

    def wish(self, seen: Observation) -> int:
        """Up by one when little is spare, down by one when it would stay so with one fewer."""
        peaks = self.peaks(seen)
        if not peaks or len(peaks) != seen.wanted:
            return seen.wanted
        free = [(kv, queue) for kv, queue in peaks if kv < self._kv and queue < QUEUE_SATURATED]
        count = len(free)
        kv_load = sum(kv for kv, _ in free)
        queue_load = sum(queue for _, queue in free)
        spare_kv = self._kv - kv_load / count if count else 0.0
        spare_queue = QUEUE_SATURATED - queue_load / count if count else 0.0
        if spare_kv < KV_SPARE or spare_queue < QUEUE_SPARE:
            return seen.wanted + 1
        left = count - 1
        if left and self._kv - kv_load / left >= KV_SPARE and QUEUE_SATURATED - queue_load / left >= QUEUE_SPARE:
            return seen.wanted - 1
        return seen.wanted


@dataclass
class _Capacities:
    """What a pod could hold when its queue said it was full, by class of output length."""

    by_class: dict[int, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=REMEMBERED)))

    def learn(self, output_tokens: float, tokens: float) -> None:
        self.by_class[_class(output_tokens)].append(tokens)

    def known(self, output_tokens: float) -> float | None:
        seen = self.by_class[_class(output_tokens)]
        return sum(seen) / len(seen) if seen else None


def _class(output_tokens: float) -> int:
    return sum(output_tokens >= bound for bound in OUTPUT_CLASSES)


class WvaV2(_WithHpa):
    """Demand in KV tokens over the capacity of a pod, with different targets up and down."""

    def __init__(
        self,
        window_seconds: float = HPA_WINDOW_SECONDS,
        up_target: float = UP_TARGET,
        *,
        block_size_tokens: int = 16,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 2048,
    ) -> None:
        super().__init__(window_seconds)
        self._up, self._down = up_target, up_target - (UP_TARGET - DOWN_TARGET)
        self._block, self._seqs, self._budget = block_size_tokens, max_num_seqs, max_num_batched_tokens
        self._capacities = _Capacities()

    def wish(self, seen: Observation) -> int:
        """As many more as the demand needs, or as many fewer as it certainly does not."""
        pods = [pod.sample for pod in seen.pods if pod.state == "ready" and pod.sample]
        if not pods:
            return seen.wanted
        demand = sum(self._demand(sample) for sample in pods)
        capacity = median(self._capacity(sample) for sample in pods)
        required = demand / self._up - len(seen.pods) * capacity
        if required > 0:
            return seen.wanted + math.ceil(required / capacity)
        spare = len(pods) * capacity - demand / self._down
        return max(1, seen.wanted - math.floor(spare / capacity)) if spare > 0 else seen.wanted

    def _demand(self, sample: PodSample) -> float:
        prompt, _ = _means(sample)
        return self._in_use(sample) + sample.waiting * prompt

    def _in_use(self, sample: PodSample) -> float:
        return sample.usage * sample.usable_blocks * self._block

    def _capacity(self, sample: PodSample) -> float:
        by_memory = KV_SATURATED * sample.usable_blocks * self._block
        prompt, output = _means(sample)
        if sample.waiting >= QUEUE_SATURATED:
            self._capacities.learn(output, self._in_use(sample))
        known = self._capacities.known(output)
        if known is None and prompt + output > 0:
            sequences = min(self._budget * output / (prompt + output), self._seqs)
            known = sequences * (prompt + output / 2)
        return max(1.0, min(by_memory, known) if known else by_memory)


def _means(sample: PodSample) -> tuple[float, float]:
    """Mean prompt and output of a request so far; 0 before the first."""
    prompt = sample.prompt_tokens / sample.ttft_count if sample.ttft_count else 0.0
    output = sample.generation_tokens / sample.finished if sample.finished else 0.0
    return prompt, output
