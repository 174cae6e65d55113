"""What somebody outside sees of a fleet: a scrape of each pod, and which pods there are."""

from dataclasses import dataclass
from typing import Literal

from plimsoll.sim.engine import Engine


@dataclass(frozen=True, slots=True)
class PodSample:
    """One scrape of one engine: gauges as they are, counters since its start."""

    seconds: float
    usage: float
    running: int
    waiting: int
    usable_blocks: int
    preemptions: int
    finished: int
    arrived: int
    """Requests that got their first token, and those still waiting or prefilling."""
    prompt_tokens: int
    generation_tokens: int
    prefilled_tokens: int
    prefix_queried_tokens: int
    prefix_hit_tokens: int
    ttft_seconds: float
    ttft_count: int
    itl_seconds: float
    itl_count: int


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod as the API server shows it, with its last scrape; None when there was none."""

    name: str
    created_seconds: float
    state: Literal["loading", "ready", "draining", "gone"]
    sample: PodSample | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What a policy decides on: the moment, the replicas wanted until now, the pods, requests held at the gateway."""

    seconds: float
    wanted: int
    pods: tuple[PodView, ...]
    held: int = 0


def sample(engine: Engine, now_seconds: float) -> PodSample:
    """Scrape an engine."""
    counters = engine.counters
    return PodSample(
        seconds=now_seconds,
        usage=engine.usage(now_seconds),
        running=engine.running,
        waiting=engine.waiting,
        usable_blocks=engine.usable_blocks,
        preemptions=counters.preemptions,
        finished=counters.finished,
        arrived=counters.finished + engine.outstanding,
        prompt_tokens=counters.prompt_tokens,
        generation_tokens=counters.generation_tokens,
        prefilled_tokens=counters.prefilled_tokens,
        prefix_queried_tokens=counters.prefix_queried_tokens,
        prefix_hit_tokens=counters.prefix_hit_tokens,
        ttft_seconds=counters.ttft.total,
        ttft_count=counters.ttft.count,
        itl_seconds=counters.itl.total,
        itl_count=counters.itl.count,
    )
