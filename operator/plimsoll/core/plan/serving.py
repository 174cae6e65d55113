"""What replicas of an engine make of the demand: whether they hold it, and the latency at the asked percentile.

Demand is counted in blocks, state blocks included. A percentile is the cautious end of the service time plus a quantile
of the wait for the prompts ahead (M/M/1 at the share of time that prefill takes); formulas in ``docs/planning.md``.
This is the only module of the planner that knows the latency model.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal

from plimsoll.core.kv import blocks_for_request
from plimsoll.core.latency import Load, StepTimes, running_limit, step_times
from plimsoll.core.latency.coefficients import Spread, fitted
from plimsoll.core.latency.load import steady_state
from plimsoll.core.plan.demand import Demand
from plimsoll.core.plan.fit import Engine
from plimsoll.core.plan.result import Range, Typical

FULLEST_POOL: Final = 0.85
"""Share of the blocks that the demand may take; the rest is for requests longer than typical (``autoscaling.md`` 2)."""
MOST_PREFILL: Final = 0.8
"""Share of an engine's time that prompts may take: above it the queue in front of them runs away."""
FULLEST_POOL_WITH_LONG: Final = 0.95
"""The same where it is known how long requests are: those are counted, and the rest is for what no model knows."""
NEARLY_AS_GOOD: Final = 1.15
"""Where targets are out of reach, replicas that bring less than this are not worth their GPUs."""
_ALMOST_ALL: Final = 0.99
_Z95: Final = NormalDist().inv_cdf(0.95)

Limit = Literal["KV", "sequences", "prefill FLOPs", "weights' bandwidth", "KV bandwidth", "queue"]


@dataclass(frozen=True)
class Serving:
    """Replicas under the demand. ``excess`` is how far the worst limit is passed: at most 1 where all is well."""

    replicas: int
    running: float
    """Requests in one engine at once, mean."""
    excess: float
    load_excess: float
    ttft_ms: Range | None = None
    itl_ms: Range | None = None
    prefill_share: float | None = None
    limited_by: Limit | None = None

    @property
    def good(self) -> bool:
        """Whether load and targets are met."""
        return self.excess <= 1


class EngineService:
    """One engine (data-parallel rank) asked many times about a demand.

    ``factor``: decode steps of such engines over those predicted, where they were measured. Slower ones are taken to be
    slower at everything, quicker ones at decoding only: a prompt is bound by other things than a step without one.
    """

    def __init__(
        self, engine: Engine, demand: Demand, factor: float | None = None, times: StepTimes | None = None
    ) -> None:
        start = engine.start
        self._engine, self._demand, self.factor = engine, demand, factor
        slower = max(1.0, factor or 1.0)
        self.times = times or step_times(start.facts, start.options, start.flags, correction=slower)
        self._decode_factor = (factor or 1.0) / slower
        spreads = fitted().spreads
        self._tpot = spreads.tpot if factor is None else spreads.corrected_tpot
        self._known: dict[float, tuple[float, float]] = {}
        self._blocks, self._saved = request_blocks(engine, demand)
        self._longer = _longer_blocks(engine, demand, self._blocks)
        self._free = max(1, engine.low.num_blocks - 1)
        new = demand.prompt_tokens - _cached_tokens(engine, demand, demand.hit_tokens)
        self._load = Load(max(1, new), demand.output_tokens, 1)
        self._cached = demand.prompt_tokens - max(1, new)
        whole = Load(demand.prompt_tokens, demand.output_tokens, 1)
        self._most = running_limit(engine.layout, engine.low.num_blocks, whole)

    def serve(self, replicas: int) -> Serving:
        """What so many replicas make of the demand."""
        engines, demand = replicas * self._engine.shape.data_parallel, self._demand
        found = [self._loaded(replicas, self._of_concurrency(engines), None)]
        if demand.rate is not None:
            found.append(self._of_rate(replicas, demand.rate / engines))
        return max(found, key=lambda serving: serving.excess)

    def fewest(self, least: int, most: int) -> Serving:
        """The fewest replicas that meet load and targets; where none do, the fewest nearly as good as ``most``."""
        best = self.serve(most)
        enough = 1.0 if best.good else best.excess * NEARLY_AS_GOOD
        load = max(1.0, best.load_excess)
        low, high = least, most
        while low < high:
            middle = (low + high) // 2
            found = self.serve(middle)
            fine = found.excess <= enough and found.load_excess <= load
            low, high = (low, middle) if fine else (middle + 1, high)
        return self.serve(low)

    def alone(self, prompt_tokens: int) -> Range | None:
        """Time to first token of one prompt on an idle engine, milliseconds."""
        if self.times is None:
            return None
        return _range(_first_token_seconds(self.times, prompt_tokens, 0, 0.0, 0.0), fitted().spreads.ttft)

    def most_within_targets(self) -> int:
        """The most requests one engine may run at once without missing a target or its pool."""
        low, high = 1, max(1, int(self._most))
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._loaded(1, middle, None).good else (low, middle - 1)
        return low

    def slowest(self) -> Range | None:
        """Time between two tokens of an engine that runs as many requests as it may, milliseconds."""
        running = min(self._most, self._engine.layout.resolved.max_num_seqs)
        return self._loaded(1, max(1.0, running), None).itl_ms

    def typical(self) -> Typical:
        """A typical request beside as many others as the pool holds with head-room (``FULLEST_POOL``)."""
        load, times = self._load, self.times
        prompt, half = self._demand.prompt_tokens, self._load.output_tokens // 2
        tokens = min(prompt + half, self._engine.layout.resolved.max_model_len)
        blocks = max(1, blocks_for_request(self._engine.layout, tokens) - self._saved)
        lengths = Typical(
            prompt, blocks, output_tokens=self._demand.output_tokens, shared_tokens=self._demand.shared_tokens
        )
        if times is None:
            return lengths
        most = min(FULLEST_POOL * self._free / blocks, self._engine.layout.resolved.max_num_seqs)
        decoding = max(1.0, most / times.pipeline_parallel)
        context = decoding * tokens
        step = times.step_seconds(decoding, context)
        chunks = times.chunks(load.prompt_tokens, decoding)
        prefill = times.prefill_seconds(load.prompt_tokens, self._cached, decoding, context) - chunks * step
        per_token_ms = round(1e3 * max(0.0, prefill) / load.prompt_tokens, 6)
        return replace(
            lengths,
            prefill_ms_per_token=per_token_ms,
            decode_step_ms=round(1e3 * self._decode_factor * step, 3),
            steps_ms=tuple(self._plain_steps_ms(times, tokens)) or None,
        )

    def _plain_steps_ms(self, times: StepTimes, tokens: int) -> Iterator[float]:
        """Steps of 1, 2, 4 … requests of that length as predicted; none where a step's yield is not known."""
        running, most = 1, self._engine.layout.resolved.max_num_seqs
        while running < 2 * most and not times.drafts:
            decoding = max(1.0, running / times.pipeline_parallel)
            yield round(1e3 * times.step_seconds(decoding, decoding * tokens) / times.correction, 3)
            running *= 2

    def tokens_per_second(self, running: float) -> float:
        """Output tokens a second of one engine that runs so many requests; 0 when speeds are not known."""
        times = self._seconds(running)
        return 0.0 if times is None else running * self._demand.output_tokens / self._request_seconds(times)

    def _of_concurrency(self, engines: int) -> float:
        return math.ceil((self._demand.concurrency or 1) / engines)

    def _of_rate(self, replicas: int, rate: float) -> Serving:
        """The fewest whole requests in the engine of which as many leave a second as arrive (Little's law)."""
        if self.times is None:
            return self._loaded(replicas, 1, None)
        low, high = 1, max(1, int(self._most))
        if self._rate_at(high) < rate:
            short = rate / max(self._rate_at(high), 1e-9)
            return self._loaded(replicas, high * min(short, 1e6), rate)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._rate_at(middle) >= rate else (middle + 1, high)
        return self._loaded(replicas, high, rate)

    def _rate_at(self, running: float) -> float:
        times = self._seconds(running)
        assert times is not None  # noqa: S101 # asked only with step times
        return running / self._request_seconds(times)

    def _loaded(self, replicas: int, running: float, rate: float | None) -> Serving:
        """Judge an engine that holds so many requests; those of a rate vary, those of a concurrency are its peak."""
        z = NormalDist().inv_cdf(self._demand.percentile / 100)
        peak = running if rate is None else running + z * math.sqrt(running)
        limits: dict[Limit, float] = {
            "KV": self._pool_excess(peak) if peak > 1 else 0.0,
            "sequences": peak / self._engine.layout.resolved.max_num_seqs,
        }
        times = self._seconds(running)
        if times is None:
            return _judged(replicas, running, limits, None, None, None, {})
        ttft, itl = times
        arriving = running / self._request_seconds(times) if rate is None else rate
        own = self._prefill_seconds()
        share = arriving * own
        limits["prefill FLOPs"] = share / MOST_PREFILL
        wait = wait_quantile(own * self._unevenness(own), share, self._demand.percentile)
        first, each = _range(ttft + wait, fitted().spreads.ttft), _range(itl, self._tpot)
        return _judged(replicas, running, limits, first, each, share, self._targets(first, each, wait, ttft))

    def _targets(self, first: Range, each: Range, wait: float, ttft: float) -> dict[Limit, float]:
        demand = self._demand
        found: dict[Limit, float] = {}
        alone = self._seconds(1.0)
        assert alone is not None  # noqa: S101 # the caller has step times
        if demand.itl_seconds is not None:
            excess = each.high / 1e3 / demand.itl_seconds
            unloaded = alone[1] * self._tpot.high > demand.itl_seconds
            found["weights' bandwidth" if unloaded else "KV bandwidth"] = excess
        if demand.ttft_seconds is not None:
            name: Limit = "queue" if wait > ttft else "prefill FLOPs"
            found[name] = first.high / 1e3 / demand.ttft_seconds
        return found

    def _pool_excess(self, requests: float) -> float:
        """How far the demand passes its share of the pool. Of many requests few are long at once: sums vary by √n."""
        typical = (requests * (self._blocks - self._saved) + self._saved) / self._free
        if not self._longer:
            return typical / FULLEST_POOL
        varied = typical + math.sqrt(requests) * self._longer / self._free
        return max(typical / FULLEST_POOL, varied / FULLEST_POOL_WITH_LONG)

    def _unevenness(self, own: float) -> float:
        """What prompts of uneven length make of the wait: (1 + cv²) / 2, Pollaczek and Khinchine; M/M/1 has 1."""
        long = self._demand.long_prompt_tokens
        if long is None or self.times is None or not own:
            return 1.0
        spread = (self.times.prefill_seconds(max(1, long - self._cached), self._cached) / own - 1) / _Z95
        return max(1.0, (1 + spread * spread) / 2)

    def _seconds(self, running: float) -> tuple[float, float] | None:
        """Mean time to first token without the wait for other prompts, and between tokens."""
        if self.times is None:
            return None
        found = self._known.get(running)
        if found is None:
            found = self._known[running] = self._computed(self.times, running)
        return found

    def _computed(self, times: StepTimes, running: float) -> tuple[float, float]:
        load = self._load
        now = max(1.0, min(running, self._most))
        decoding = max(1.0, now / times.pipeline_parallel)
        tokens = decoding * (load.prompt_tokens + load.output_tokens / 2)
        cached = decoding * self._cached
        yields = self._demand.tokens_per_step
        steady = steady_state(times, Load(load.prompt_tokens, load.output_tokens, now), now, yields)
        more = times.step_seconds(decoding, tokens + cached) - times.step_seconds(decoding, tokens) if cached else 0.0
        itl = self._decode_factor * (steady.tpot_seconds + more / yields)
        ttft = _first_token_seconds(times, load.prompt_tokens, self._cached, decoding, tokens + cached)
        queued = max(0.0, running - now) / now * (ttft + load.output_tokens * itl)
        return ttft + queued, itl

    def _request_seconds(self, times: tuple[float, float]) -> float:
        ttft, itl = times
        return ttft + self._demand.output_tokens * itl

    def _prefill_seconds(self) -> float:
        assert self.times is not None  # noqa: S101 # the caller has step times
        return self.times.prefill_seconds(self._load.prompt_tokens, self._cached)


def wait_quantile(service_seconds: float, share: float, percentile: int) -> float:
    """Seconds that ``percentile`` of prompts wait at most for those ahead: P(W > t) = share x exp(-(1 - share) t / s).

    The M/M/1 queue; 0 where fewer wait at all than the percentile leaves out.
    """
    share = min(share, _ALMOST_ALL)
    late = 1 - percentile / 100
    return service_seconds / (1 - share) * math.log(share / late) if share > late else 0.0


def _longer_blocks(engine: Engine, demand: Demand, typical: int) -> int:
    """Blocks that a request of the lengths which 95 % do not exceed takes beyond a typical one; 0 when not said."""
    prompt = demand.long_prompt_tokens or demand.prompt_tokens
    output = demand.long_output_tokens or demand.output_tokens
    tokens = min(prompt + output, engine.layout.resolved.max_model_len)
    return max(0, blocks_for_request(engine.layout, tokens) - typical)


def request_blocks(engine: Engine, demand: Demand) -> tuple[int, int]:
    """Blocks of a typical request at its end, and how many of them a shared prefix stores once for all."""
    tokens = demand.prompt_tokens + demand.output_tokens
    blocks = blocks_for_request(engine.layout, tokens)
    shared = _cached_tokens(engine, demand, demand.shared_tokens)
    rest = blocks_for_request(engine.layout, max(1, tokens - shared)) if shared else blocks
    return blocks, max(0, blocks - rest)


def _cached_tokens(engine: Engine, demand: Demand, found_tokens: int) -> int:
    """Tokens of a prompt that are found again: whole blocks, never all of it."""
    resolved, block = engine.layout.resolved, max(1, engine.layout.block_tokens)
    if not resolved.prefix_caching:
        return 0
    return min(found_tokens, demand.prompt_tokens - 1) // block * block


def _first_token_seconds(times: StepTimes, prompt: int, cached: int, decoding: float, tokens: float) -> float:
    """Arrival, the steps until one takes the prompt in, and its prefill beside what decodes."""
    constants = times.fit
    waiting = constants.wait_steps * times.step_seconds(max(1.0, decoding), max(1.0, tokens))
    prefill = times.prefill_seconds(prompt, cached, decoding, tokens)
    return constants.arrival_seconds * times.correction + waiting + constants.prefill_share * prefill


def _range(seconds: float, spread: Spread) -> Range:
    low, high = spread.low, spread.high
    return Range(round(1e3 * seconds * low, 3), round(1e3 * seconds, 3), round(1e3 * seconds * high, 3))


def _judged(
    replicas: int,
    running: float,
    limits: dict[Limit, float],
    ttft: Range | None,
    itl: Range | None,
    share: float | None,
    targets: dict[Limit, float],
) -> Serving:
    load = max(limits.values())
    excess = max(load, *targets.values()) if targets else load
    binding = limits if load > 1 or not targets else targets
    worst = max(binding, key=lambda name: binding[name])
    return Serving(
        replicas=replicas,
        running=running,
        excess=excess,
        load_excess=load,
        ttft_ms=ttft,
        itl_ms=itl,
        prefill_share=share,
        limited_by=worst if excess > 1 else None,
    )
