"""All shapes on all allowed GPUs, each with the replicas the demand needs; which of them is best, and why."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from plimsoll.core import speed
from plimsoll.core.kv import Refusal
from plimsoll.core.plan.fit import Engine, Failed, fit, rounded_down, rounded_up, start_engine
from plimsoll.core.plan.serving import EngineService, Serving, request_blocks
from plimsoll.core.plan.shapes import Fixed, Shape, with_stages, within_a_node
from plimsoll.core.plan.wish import Wish
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts

ALIKE: Final = 0.03
"""Speeds closer than this are the same: the model of latency does not tell them apart."""
SPARE_SEQUENCES: Final = 1.25

Tier = Callable[[ModelFacts, GPU, str, int, Fixed], Iterator[Shape]]


@dataclass(frozen=True)
class Candidate:
    """A configuration that starts, under the demand. ``cost`` is of all replicas, in the unit of ``Wish.inventory``."""

    engine: Engine
    serving: Serving
    cost: float
    service: EngineService
    tokens_per_cost: float = 0.0

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.engine.shape.gpus * self.serving.replicas

    def __str__(self) -> str:
        return f"{self.serving.replicas} x {self.engine}"


@dataclass(frozen=True)
class Skipped:
    """A shape that was not tried: whatever it bears, it costs more than what was found."""

    shape: Shape
    gpus: int
    cost: float


@dataclass
class Found:
    """What a search found: candidates, best first once it is over; what failed; what was not worth trying."""

    candidates: list[Candidate] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def cheapest_good(self) -> float:
        """Cost of the cheapest candidate that meets load and targets."""
        return min((found.cost for found in self.candidates if found.serving.good), default=math.inf)


def search(wish: Wish) -> Found:
    """Try shapes, cheapest first; pipelines only on products where no shape without stages starts within the budget."""
    found = Found()
    _try(wish, [shape for product in wish.products for shape in _tier(wish, product, within_a_node)], found)
    without = [product for product in wish.products if not _serves(product[1], found)]
    for product in without:
        _try(wish, _tier(wish, product, with_stages), found, first_only=True)
    found.candidates.sort(key=lambda candidate: _rank(wish, candidate))
    return found


def _tier(wish: Wish, product: tuple[GPU, str], shapes: Tier) -> list[Shape]:
    gpu, label = product
    return list(shapes(wish.facts, gpu, label, wish.node_gpus(gpu, label), wish.fixed))


def _serves(label: str, found: Found) -> bool:
    shapes = [candidate.engine.shape for candidate in found.candidates] + [skipped.shape for skipped in found.skipped]
    return any(shape.label == label for shape in shapes)


def _try(wish: Wish, shapes: list[Shape], found: Found, *, first_only: bool = False) -> None:
    """Add what shapes give. Where cost decides, what must cost more than a good candidate is not tried."""
    for shape in sorted(shapes, key=lambda shape: (_least_cost(wish, shape), shape.simplicity)):
        least = _least_cost(wish, shape)
        if objective(wish) == "Balanced" and least > found.cheapest_good * (1 + 1e-9):
            found.skipped.append(Skipped(shape, shape.gpus * wish.replicas, least))
            continue
        engines = [fit(wish, shape, kv_dtype) for kv_dtype in wish.kv_dtypes]
        found.failed += [engine for engine in engines if isinstance(engine, Failed)]
        started = [engine for engine in engines if isinstance(engine, Engine)]
        found.candidates += [_candidate(wish, engine) for engine in started]
        if started and first_only:
            return


def _least_cost(wish: Wish, shape: Shape) -> float:
    return wish.replicas * shape.gpus * wish.unit_price(shape)


def anything_starts(wish: Wish) -> Engine | None:
    """The first engine that starts and serves the context, without asking what it makes of the demand."""
    for product in wish.products:
        for tier in (within_a_node, with_stages):
            for shape in _tier(wish, product, tier):
                for kv_dtype in wish.kv_dtypes:
                    found = fit(wish, shape, kv_dtype)
                    if isinstance(found, Engine):
                        return found
    return None


def polished(wish: Wish, candidate: Candidate) -> Candidate:
    """The candidate with no more sequences than its pool and the ITL target bear at typical length.

    Fewer sequences leave more memory to the cache, so nothing that held is lost; a start that would be refused with
    the smaller figure keeps the larger one.
    """
    if "max_num_seqs" in wish.overrides.options:
        return candidate
    engine = candidate.engine
    most = _bearable(wish, candidate)
    if most >= engine.knobs.sequences:
        return candidate
    knobs = replace(engine.knobs, sequences=most)
    try:
        smaller = start_engine(wish, engine.shape, knobs)
    except Refusal:
        return candidate
    service = EngineService(smaller, wish.demand, candidate.service.factor, candidate.service.times)
    if not candidate.serving.good:
        # What bound before still binds; the smaller cap would only take its name.
        return replace(candidate, engine=smaller, service=service)
    serving = service.serve(candidate.serving.replicas)
    return replace(candidate, engine=smaller, serving=serving, service=service) if serving.good else candidate


def why_not(wish: Wish, best: Candidate, other: Candidate) -> tuple[str, str]:
    """Why ``other`` was not chosen: a word and a sentence."""
    if other.serving.load_excess > 1 >= best.serving.load_excess:
        return "LoadNotHeld", f"the load is {other.serving.load_excess:.2f} times what it bears"
    if not other.serving.good:
        return "SLOMissed", f"{latency_text(other.serving)}; passes a limit {other.serving.excess:.2f} times"
    if objective(wish) == "Latency":
        return "Slower", latency_text(other.serving)
    if objective(wish) == "Throughput":
        return "LessThroughput", f"{other.tokens_per_cost:.4g} output tokens a second per unit of cost"
    if math.isclose(other.cost, best.cost):
        return "NotSimplest", f"{other.gpus} GPUs at the same cost, more parts"
    return "Costlier", f"{other.gpus} GPUs, cost {other.cost:.5g} against {best.cost:.5g}"


def latency_text(serving: Serving) -> str:
    """Both latencies in short."""
    if serving.ttft_ms is None or serving.itl_ms is None:
        return "latency unknown"
    return f"TTFT up to {serving.ttft_ms.high / 1e3:.2f} s, ITL up to {serving.itl_ms.high:.1f} ms"


def objective(wish: Wish) -> str:
    """What decides. Without a load nobody can say how many tokens a GPU makes: the cheapest wins."""
    asked = wish.spec.objective
    return "Balanced" if asked == "Throughput" and not wish.demand.given else asked


def _candidate(wish: Wish, engine: Engine) -> Candidate:
    speeds = wish.inventory.speeds
    service = EngineService(engine, wish.demand, speeds.get(speed.key_of(engine.start)) if speeds else None)
    most = wish.most_replicas(engine.shape)
    serving = service.fewest(wish.replicas, most) if wish.demand.given else service.serve(wish.replicas)
    price = wish.unit_price(engine.shape)
    cost = serving.replicas * engine.shape.gpus * price
    rate = 0.0
    if objective(wish) == "Throughput":
        engines = engine.shape.data_parallel
        rate = engines * service.tokens_per_second(service.most_within_targets()) / (engine.shape.gpus * price)
    return Candidate(engine, serving, cost, service, rate)


def _rank(wish: Wish, candidate: Candidate) -> tuple[object, ...]:
    """Smaller is better: first who meets load and targets, then the objective, then the documented ties."""
    serving, shape = candidate.serving, candidate.engine.shape
    good = serving.good
    ties = (
        round(candidate.cost, 6),
        candidate.gpus,
        shape.simplicity,
        candidate.engine.knobs.kv_dtype != "auto",
        candidate.engine.knobs.turned,
        shape.label,
    )
    if not good:
        return (1, _step(serving.excess), *ties)
    if objective(wish) == "Latency":
        return (0, _step(_request_ms(wish, serving)), *ties)
    if objective(wish) == "Throughput":
        return (0, -_step(candidate.tokens_per_cost), *ties)
    return (0, 0, *ties)


def _request_ms(wish: Wish, serving: Serving) -> float:
    """A typical request from its arrival to its last token."""
    if serving.ttft_ms is None or serving.itl_ms is None:
        return 0.0
    return serving.ttft_ms.mid + wish.demand.output_tokens * serving.itl_ms.mid


def _step(value: float) -> int:
    """Values that differ by less than ``ALIKE`` mostly share a step."""
    return round(math.log(max(value, 1e-9)) / math.log1p(ALIKE))


def _bearable(wish: Wish, candidate: Candidate) -> int:
    """Sequences that the pool holds at typical length and the ITL target bears, never fewer than the load needs."""
    engine, serving = candidate.engine, candidate.serving
    blocks, saved = request_blocks(engine, wish.demand)
    each = max(1, blocks - saved)
    fits = rounded_down((engine.low.num_blocks - 1 - saved) // each)
    needed = rounded_up(math.ceil(serving.running * SPARE_SEQUENCES))
    if wish.demand.itl_seconds is not None and serving.good:
        bears = max(needed, rounded_down(candidate.service.most_within_targets()))
        fits = min(fits, bears)
    least = min(needed, engine.knobs.sequences)
    return max(least if serving.good else 1, fits)
