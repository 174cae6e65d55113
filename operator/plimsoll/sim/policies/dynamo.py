"""Dynamo's load planner for aggregated workers: one replica at a time, by how full the fullest is.

Source: ai-dynamo 1.6.1 ``planner/core/load_scaling.py``, ``planner/config/defaults.py`` (target "throughput").
"""

from typing import Final

from plimsoll.sim.observe import Observation, PodSample

LOOP_SECONDS: Final = 5.0
DOWN: Final = 0.6


class DynamoLoad:
    """KV in use and queued, over KV, for each worker; waits for workers that start."""

    interval_seconds = LOOP_SECONDS
    live = True

    def __init__(self, up: float = 1.0, block_size_tokens: int = 16) -> None:
        self._up, self._block = up, block_size_tokens

    def decide(self, seen: Observation) -> int:
        """One more if any worker is over the limit, one fewer if all are idle enough and the rest could take it."""
        loads = [self._load(pod.sample) for pod in seen.pods if pod.state == "ready" and pod.sample]
        if not loads or len(loads) != seen.wanted:
            return seen.wanted
        if max(loads) > self._up:
            return seen.wanted + 1
        left = len(loads) - 1
        down = DOWN * self._up
        if left and max(loads) < down and max(loads) * len(loads) / left <= self._up:
            return seen.wanted - 1
        return seen.wanted

    def _load(self, sample: PodSample) -> float:
        prompt = sample.prompt_tokens / sample.ttft_count if sample.ttft_count else 0.0
        return sample.usage + sample.waiting * prompt / (sample.usable_blocks * self._block)
