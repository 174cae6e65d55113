"""Names of vLLM's metrics: the newest spelling first, then those of older releases.

Read from the ``/metrics`` pages of 0.11.0, 0.12.0, 0.14.1, 0.16.0, 0.19.1, 0.22.1, 0.25.1, 0.28.0 and 0.32.0
(``tests/data/engines``); those that no page has are the names before 0.11. A fleet in the middle of an upgrade has two
releases at once, so every query asks for all spellings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class EngineMetric:
    """One quantity and how the releases spell it. ``first``: the first release seen to have it, when not all do."""

    names: tuple[str, ...]
    first: str = ""


KV_USE: Final = EngineMetric(("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"))
"""Share of the pool's blocks in use, 0 to 1; cached blocks that nobody uses count as free."""
RUNNING: Final = EngineMetric(("vllm:num_requests_running",))
WAITING: Final = EngineMetric(("vllm:num_requests_waiting",))
"""Preempted requests are among them; rejected ones are not."""
PREEMPTIONS: Final = EngineMetric(("vllm:num_preemptions_total",))
FINISHED: Final = EngineMetric(("vllm:request_success_total",))
PROMPT_TOKENS: Final = EngineMetric(("vllm:prompt_tokens_total",))
GENERATION_TOKENS: Final = EngineMetric(("vllm:generation_tokens_total",))
PREFIX_QUERIES: Final = EngineMetric(("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"))
PREFIX_HITS: Final = EngineMetric(("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"))
REJECTIONS: Final = EngineMetric(("vllm:admission_rejections_total",), first="0.32.0")
TTFT: Final = EngineMetric(("vllm:time_to_first_token_seconds",))
ITL: Final = EngineMetric(("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"))
"""Observed once for every output of the engine: with speculative decoding one output is several tokens."""
TIME_PER_TOKEN: Final = EngineMetric(("vllm:request_time_per_output_token_seconds",))
"""Mean of each request, when it ends."""
REQUEST: Final = EngineMetric(("vllm:e2e_request_latency_seconds",))
"""From a request's arrival to its last token."""
CACHE_CONFIG: Final = EngineMetric(("vllm:cache_config_info",))
"""Always 1; what it says stands in its labels."""


def part_of(histogram: EngineMetric, part: str) -> EngineMetric:
    """A histogram's ``sum`` or ``count``."""
    return EngineMetric(tuple(f"{name}_{part}" for name in histogram.names), histogram.first)


METRICS: Final[Mapping[str, EngineMetric]] = {
    name: value for name, value in tuple(globals().items()) if isinstance(value, EngineMetric)
}
