"""What is learned of engines that are slower or quicker than planned, from figures as Prometheus has them."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, to_json
from plimsoll.core.signals import FleetView, PodView, Sample, Signal
from plimsoll.core.speed import Clock, after
from plimsoll.sim.engine import Engine
from plimsoll.sim.observe import PodSample, sample
from plimsoll.sim.planned import engine_of
from plimsoll.sim.requests import Request
from plimsoll.sim.steps import StepCost

SCRAPE = 15.0
WINDOW = 300.0
SCRAPES = int(WINDOW / SCRAPE)


@dataclass(frozen=True)
class Scaled:
    """Steps that take so many times as long."""

    cost: StepCost
    factor: float

    def decode_line(self, requests: int) -> tuple[float, float]:
        fixed, slope = self.cost.decode_line(requests)
        return self.factor * fixed, self.factor * slope

    def mixed_seconds(self, decoding: int, context_tokens: int, chunks: list[tuple[int, int]]) -> float:
        return self.factor * self.cost.mixed_seconds(decoding, context_tokens, chunks)


@dataclass(frozen=True)
class Case:
    """One engine under Poisson arrivals with lengths that vary by half."""

    gpu: str
    prompt: int
    output: int
    rate: float
    factor: float
    model: str = "Qwen/Qwen3-8B"

    def planned(self) -> tuple[dict[str, Any], Engine]:
        load = {"concurrency": 16, "promptTokens": self.prompt, "outputTokens": self.output}
        hardware = {"gpu": self.gpu, "maxGPUs": 4}
        spec = {"model": {"id": self.model}, "hardware": hardware, "contextTokens": 16384, "load": load}
        config = bundled_config(self.model)
        plan = plan_service(VLLMServiceSpec.model_validate(spec), 1, config)
        assert isinstance(plan, Plan)
        assert config is not None
        model = engine_of(plan, config)
        return to_json(plan), replace(model, cost=Scaled(model.cost, self.factor)).engine()

    def watched(self, minutes: int) -> Clock:
        plan, engine = self.planned()
        clock, kept = Clock(), deque[PodSample](maxlen=SCRAPES + 1)
        for tick, scraped in enumerate(self.scrapes(engine, minutes)):
            kept.append(scraped)
            if len(kept) > SCRAPES:
                clock = after(clock, seen(list(kept)), plan, tick * SCRAPE, WINDOW)
        return clock

    def scrapes(self, engine: Engine, minutes: int) -> Iterator[PodSample]:
        rng, scrape = random.Random(7), SCRAPE
        arrival = rng.expovariate(self.rate)
        while scrape <= minutes * 60:
            now = min(arrival, scrape, engine.next_seconds)
            if now == engine.next_seconds:
                engine.advance()
            elif now == arrival:
                prompt, output = (
                    max(2, round(n * rng.lognormvariate(-0.11, 0.47))) for n in (self.prompt, self.output)
                )
                engine.submit(Request(now, prompt, output), now)
                arrival += rng.expovariate(self.rate)
            else:
                yield sample(engine, now)
                scrape += SCRAPE


def seen(scrapes: list[PodSample]) -> FleetView:
    """The view of one pod, from the scrapes of the latencies' window."""
    first, minute, last = scrapes[0], scrapes[-5], scrapes[-1]
    tokens = last.itl_count - first.itl_count
    figures = {
        Signal.RUNNING: last.running,
        Signal.WAITING: last.waiting,
        Signal.USAGE: last.usage,
        Signal.NUM_BLOCKS: last.usable_blocks + 1,
        Signal.PREEMPTIONS: (last.preemptions - minute.preemptions) / 60,
        Signal.PROMPT_TOKENS: (last.prompt_tokens - minute.prompt_tokens) / 60,
        Signal.ITL_MEAN: (last.itl_seconds - first.itl_seconds) / max(1, tokens),
        Signal.RUNNING_MEAN: sum(each.running for each in scrapes[1:]) / SCRAPES,
    }
    return FleetView((PodView("p", "ready", engines={"0": {k: Sample(float(v)) for k, v in figures.items()}}),))


L40S, H100 = "NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3"


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.5])
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(L40S, 1000, 400, 0.8, 1.0), id="chat"),
        pytest.param(Case(L40S, 200, 1500, 0.6, 1.0), id="long answers"),
        pytest.param(Case(H100, 1000, 400, 2.0, 1.0), id="H100"),
        pytest.param(Case(H100, 500, 500, 3.0, 1.0, "Qwen/Qwen3.5-9B"), id="hybrid"),
    ],
)
def test_what_is_learned_is_near_the_truth(case: Case, factor: float) -> None:
    found = replace(case, factor=factor).watched(minutes=40).said
    assert found is not None
    assert found.factor == pytest.approx(factor, rel=0.1)


def test_an_engine_that_mostly_computes_prompts_teaches_nothing() -> None:
    assert Case(L40S, 6000, 100, 0.6, 1.5).watched(minutes=20).factors == ()
