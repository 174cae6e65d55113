"""Services whose best setting is known, on simulated engines: how the search for it goes, experiment by experiment.

The planner, the diagnosis, the order of proposals and the judge are the operator's own; only pods and traffic are
simulated. An engine is one pod of a fleet: its share of the traffic is what is given.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import retune
from plimsoll.core.diagnose import Finding, diagnose
from plimsoll.core.evidence import Case
from plimsoll.core.judge import WINDOWS, Pair, Question, Window, alarm, judge
from plimsoll.core.latencies import Targets
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.replica import capacity_of
from plimsoll.core.retune import Seen
from plimsoll.core.signals import FleetView, PodView, Sample, Signal
from plimsoll.core.tuned import OFF, ON, argument
from plimsoll.sim.counters import Histogram, quantile
from plimsoll.sim.engine import NEVER, Engine
from plimsoll.sim.models import EngineModel
from plimsoll.sim.observe import PodSample, sample
from plimsoll.sim.paired import NO_TROUBLE, Trouble, paired
from plimsoll.sim.planned import engine_of
from plimsoll.sim.requests import Request
from plimsoll.sim.traces import made

MODEL: Final = "Qwen/Qwen3-8B"
TTFT_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 480.0
TRIAL_SECONDS: Final = 240.0 + 60.0 * WINDOWS
MOST_EXPERIMENTS: Final = 4
AIMS: Final = {"DecodeBound": "token"}
ALLOWED: Final = (
    "MaxNumSeqs", "MaxNumBatchedTokens", "GPUMemoryUtilization", "KVCacheMemoryBytes", "PrefixCaching",
)  # fmt: skip

Flags = Mapping[str, str]
Rate = Callable[[float], float]


@dataclass(frozen=True, eq=False)
class Scenario:
    """``start``: flags that the plan has by some mistake. ``right``: whether flags at the end are what they should be.

    ``harmful``: whether a change must not be kept. ``trouble``: what becomes of a canary with a change. ``placebo``:
    the canary is its control whatever was changed, so nothing may be kept at all.
    """

    name: str
    rate: float
    right: Callable[[Flags], bool]
    start: Flags = field(default_factory=dict)
    prompt_tokens: int = 500
    output_tokens: int = 150
    shared_prefix_tokens: int = 0
    context_tokens: int = 8192
    itl_seconds: float = 0.06
    shape: Rate = lambda _: 1.0
    harmful: Callable[[str, str], bool] = lambda _flag, _value: False
    trouble: Callable[[str, str], Trouble] = lambda _flag, _value: NO_TROUBLE
    placebo: bool = False
    model: str = MODEL
    pool_shown: bool = False
    """Its pods have reported the pool that they really have."""

    def requests(self, seed: int, seconds: float, pods: int = 1) -> list[Request]:
        """Traffic of so many pods."""
        rate = self.rate * pods
        highest = rate * max(self.shape(at) for at in range(0, int(seconds), 30))
        return made(
            lambda at: rate * self.shape(at),
            highest,
            seconds,
            self.prompt_tokens,
            self.output_tokens,
            seed,
            shared_prefix_tokens=self.shared_prefix_tokens,
        )

    @property
    def spec(self) -> VLLMServiceSpec:
        """As the user wrote it: a load of long ago, and targets."""
        load = {"concurrency": 4, "promptTokens": self.prompt_tokens, "outputTokens": self.output_tokens}
        return VLLMServiceSpec.model_validate(
            {
                "model": {"id": self.model},
                "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
                "contextTokens": self.context_tokens,
                "load": load | {"sharedPrefixTokens": self.shared_prefix_tokens},
                "slo": {"ttft": f"{TTFT_SECONDS}s", "itl": f"{self.itl_seconds * 1000:.0f}ms"},
            }
        )


@dataclass(frozen=True)
class End:
    """What a search came to."""

    right: bool
    wrong_keeps: int
    flags: Flags
    experiments: int
    kept_after: int
    """Experiments until the last change was kept; 0: none was."""
    lost_windows: int
    """Windows in which the canary missed a target that its control met."""


def searched(scenario: Scenario, seed: int) -> End:
    """Experiments one after the other, until nothing is proposed any more or the day's budget is used up."""
    flags, failed = dict(scenario.start), set[tuple[str, str]]()
    wrong = kept_after = lost = count = 0
    while count < MOST_EXPERIMENTS:
        finding, seen = looked(scenario, flags, seed)
        found = _proposal(scenario, flags, finding, failed, seen)
        if found is None:
            break
        count += 1
        change = (found.change.flag, found.change.after)
        pairs, keeps = tried(scenario, flags, change, AIMS.get(finding.word, "ttft"), 1000 * seed + count)
        lost += sum(_missed(pair, scenario.itl_seconds) for pair in pairs)
        if keeps:
            wrong += scenario.placebo or scenario.harmful(*change)
            flags, kept_after = {**flags, change[0]: change[1]}, count
        else:
            failed.add(change)
    return End(scenario.right(flags), wrong, flags, count, kept_after, lost)


def _proposal(
    scenario: Scenario, flags: Flags, finding: Finding, failed: set[tuple[str, str]], seen: Seen
) -> retune.Recommendation | None:
    """What the operator would try, with everything in ``tuning.allow``; fp8 is never tried."""
    plan = to_json(planned(scenario, tuple(sorted(flags.items()))))
    found = retune.recommend(
        finding.word, finding.message, plan, scenario.spec, _planning, flags, failed, first=ALLOWED, seen=seen
    )
    return None if found is None or found.change.setting == "KVCacheDtype" else found


def tried(scenario: Scenario, flags: Flags, change: tuple[str, str], aim: str, seed: int) -> tuple[list[Pair], bool]:
    """One experiment: its pairs as far as it went, and whether the change was kept."""
    control = engine(scenario, flags)
    canary = control if scenario.placebo else engine(scenario, {**flags, change[0]: change[1]})
    requests = scenario.requests(seed, TRIAL_SECONDS, pods=2)
    pairs: list[Pair] = []
    for pair in paired(control, canary, requests, windows=WINDOWS, seed=seed, trouble=scenario.trouble(*change)):
        pairs.append(pair)
        if alarm(pairs):
            return pairs, False
    question = Question("token" if aim == "token" else "ttft", WINDOWS, TTFT_SECONDS, scenario.itl_seconds)
    return pairs, judge(pairs, question).outcome == "keep"


def _missed(pair: Pair, itl_seconds: float) -> bool:
    """The canary misses a target, or says nothing, while its control meets both."""
    return _late(pair.canary, itl_seconds) and not _late(pair.control, itl_seconds)


def _late(window: Window | None, itl_seconds: float) -> bool:
    if window is None:
        return True
    return (window.ttft_seconds or 0.0) > TTFT_SECONDS or (window.token_seconds or 0.0) > itl_seconds


# Engines and what is seen of them.


def _planning(spec: VLLMServiceSpec) -> Plan | Refusal:
    return plan_service(spec, 1, bundled_config(spec.model.id))


@cache
def planned(scenario: Scenario, flags: tuple[tuple[str, str], ...]) -> Plan:
    """The plan with these flags."""
    spec = scenario.spec
    args = tuple(argument(*each) for each in flags)
    found = _planning(spec.model_copy(update={"engine": spec.engine.model_copy(update={"extra_args": args})}))
    assert isinstance(found, Plan), found
    return found


def engine(scenario: Scenario, flags: Flags) -> EngineModel:
    """The simulated engine of that plan."""
    config = bundled_config(scenario.model)
    assert config is not None
    return engine_of(planned(scenario, tuple(sorted(flags.items()))), config)


def looked(scenario: Scenario, flags: Flags, seed: int) -> tuple[Finding, Seen]:
    """What the operator would say limits the service, and what its pods would have shown."""
    requests = scenario.requests(seed, LOOK_SECONDS)
    running = engine(scenario, flags).engine()
    samples = _alone(running, requests, LOOK_SECONDS)
    plan = to_json(planned(scenario, tuple(sorted(flags.items()))))
    view = FleetView((PodView("pod", "ready", engines={"0": _readings(running, samples)}),))
    targets = Targets(TTFT_SECONDS, scenario.itl_seconds, 95)
    last = samples[-1]
    hits = round(100 * last.prefix_hit_tokens / last.prefix_queried_tokens) if last.prefix_queried_tokens else None
    pool = plan["kv"]["numBlocks"] if scenario.pool_shown else None
    return diagnose(Case(view, capacity_of(plan, scenario.spec, view), targets)), Seen(pool, hits)


def attained(scenario: Scenario, flags: Flags, seed: int) -> float:
    """Share of requests within both targets, served with these flags."""
    seconds = 900.0
    requests = scenario.requests(seed, seconds)
    _alone(engine(scenario, flags).engine(), requests, seconds + 120)
    met = [
        r.finish_seconds < NEVER and r.ttft_seconds <= TTFT_SECONDS and r.tpot_seconds <= scenario.itl_seconds
        for r in requests
    ]
    return sum(met) / len(met)


def best_attained(scenario: Scenario, seed: int) -> float:
    """The same with the best of all settings that the operator could come to, every one of them tried."""
    spaces = {
        _SEQS: ("8", "16", "32", "64", "128"),
        _TOKENS: ("512", "1024", "2048", "4096"),
        _SHARE: ("0.6", "0.9", "0.92"),
        _CACHING: (ON, OFF),
    }
    greedy = scenario.harmful(_SHARE, "0.95")
    tried_ones = [
        {**scenario.start, flag: value}
        for flag, values in spaces.items()
        for value in values
        if not (greedy and flag == _SHARE)
    ]
    return max(attained(scenario, flags, seed) for flags in (scenario.start, *tried_ones) if _holds(scenario, flags))


def _holds(scenario: Scenario, flags: Flags) -> bool:
    args = tuple(argument(*each) for each in sorted(flags.items()))
    engine_spec = scenario.spec.engine.model_copy(update={"extra_args": args})
    return isinstance(_planning(scenario.spec.model_copy(update={"engine": engine_spec})), Plan)


def _alone(running: Engine, requests: Sequence[Request], seconds: float) -> list[PodSample]:
    """One engine serves it all, scraped every 15 s."""
    samples, arrivals = [], iter(requests)
    request = next(arrivals, None)
    for look in range(1, int(seconds / 15) + 1):
        until = look * 15.0
        while request is not None and request.arrival_seconds < until:
            _run(running, request.arrival_seconds)
            if running.holds(request):
                running.submit(request, request.arrival_seconds)
            request = next(arrivals, None)
        _run(running, until)
        samples.append(sample(running, until))
    return samples


def _run(running: Engine, until: float) -> None:
    while running.next_seconds < until:
        running.advance()


def _readings(running: Engine, samples: Sequence[PodSample]) -> dict[Signal, Sample]:
    last, first = samples[-1], samples[-5]
    seconds = last.seconds - first.seconds
    figures = {
        Signal.USAGE: last.usage,
        Signal.USAGE_PEAK: max(each.usage for each in samples[-4:]),
        Signal.RUNNING: last.running,
        Signal.WAITING: sum(each.waiting for each in samples[-4:]) / 4,
        Signal.PREEMPTIONS: (last.preemptions - first.preemptions) / seconds,
        Signal.REQUESTS: (last.arrived - first.arrived) / seconds,
        Signal.FINISHED: (last.finished - first.finished) / seconds,
        Signal.PROMPT_TOKENS: (last.prompt_tokens - first.prompt_tokens) / seconds,
        Signal.GENERATION_TOKENS: (last.generation_tokens - first.generation_tokens) / seconds,
        Signal.TTFT: _tail(running.counters.ttft),
        Signal.ITL: _tail(running.counters.itl),
        Signal.HIT_RATIO: last.prefix_hit_tokens / max(1, last.prefix_queried_tokens),
    }
    return {signal: Sample(float(value)) for signal, value in figures.items()}


def _tail(histogram: Histogram) -> float:
    return quantile(histogram.bounds, histogram.counts, 0.95)


# What is right.

_SEQS, _TOKENS, _SHARE = "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization"
_CACHING, _BYTES = "--enable-prefix-caching", "--kv-cache-memory-bytes"


def _at_least(flag: str, value: float) -> Callable[[Flags], bool]:
    return lambda flags: float(flags.get(flag, "0")) >= value


def _less_than(flag: str, value: float) -> Callable[[Flags], bool]:
    return lambda flags: float(flags.get(flag, math.inf)) < value


def _as(**start: str) -> Callable[[Flags], bool]:
    wanted = {f"--{name.replace('_', '-')}": value for name, value in start.items()}
    return lambda flags: dict(flags) == wanted


def _bursts(at: float) -> float:
    """A quiet service with a minute of three times as much in every six."""
    return 3.0 if at % 360 < 60 else 0.6


def _doubles(at: float) -> float:
    return 1.0 if at < TRIAL_SECONDS / 2 else 1.7


def _when(flag: str, trouble: Trouble) -> Callable[[str, str], Trouble]:
    return lambda turned, _value: trouble if turned == flag else NO_TROUBLE


CAPPED: Final = Scenario("sequence cap too low", 3.2, _at_least(_SEQS, 16))
TOO_MUCH: Final = Trouble(crashes_above=200)
"""Out of memory as soon as more than a few requests are there: what a utilisation too greedy does under load."""
KV_BOUND: Final[dict[str, Any]] = {"prompt_tokens": 1200, "output_tokens": 1200, "itl_seconds": 0.2}
SCENARIOS: Final = (
    CAPPED,
    Scenario(
        "steps too long for the token target",
        2.0,
        _less_than(_TOKENS, 4096),
        {_TOKENS: "4096", _SEQS: "64"},
        prompt_tokens=3000,
        output_tokens=100,
        itl_seconds=0.12,
    ),
    Scenario(
        "steps too short for the first token",
        2.4,
        _at_least(_TOKENS, 512),
        {_TOKENS: "256", _SEQS: "64"},
        prompt_tokens=2500,
        output_tokens=60,
    ),
    Scenario("utilisation too cautious", 0.8, _at_least(_SHARE, 0.9), {_SHARE: "0.6", _SEQS: "256"}, **KV_BOUND),
    Scenario(
        "utilisation too greedy: out of memory under load",
        2.2,
        _as(gpu_memory_utilization="0.92", max_num_seqs="256"),
        {_SHARE: "0.92", _SEQS: "256"},
        harmful=lambda flag, _value: flag == _SHARE,
        trouble=_when(_SHARE, TOO_MUCH),
        **KV_BOUND,
    ),
    Scenario(
        "prefix caching off on shared prefixes",
        4.0,
        _as(enable_prefix_caching=ON, max_num_seqs="64"),
        {_CACHING: OFF, _SEQS: "64"},
        prompt_tokens=3000,
        output_tokens=60,
        shared_prefix_tokens=2500,
        itl_seconds=0.2,
    ),
    Scenario(
        "a hybrid caches prefixes that nobody shares",
        1.1,
        lambda flags: flags.get(_CACHING) == OFF,
        {_SHARE: "0.65", _SEQS: "256"},
        model="Qwen/Qwen3.5-9B",
        prompt_tokens=600,
        output_tokens=1200,
        itl_seconds=0.2,
    ),
    Scenario(
        "utilisation too cautious, and the pool was seen",
        0.8,
        _at_least(_BYTES, 10e9),
        {_SHARE: "0.6", _SEQS: "256"},
        pool_shown=True,
        **KV_BOUND,
    ),
    Scenario("prefix caching without anything shared", 1.5, _as(max_num_seqs="64"), {_SEQS: "64"}),
    Scenario("context far above real use", 1.5, _as(max_num_seqs="64"), {_SEQS: "64"}, context_tokens=32768),
    Scenario("noisy, and nothing wrong", 2.0, _as(max_num_seqs="64"), {_SEQS: "64"}, shape=_bursts, placebo=True),
    Scenario("saturated, and the change does nothing", 2.55, _as(), placebo=True),
    Scenario("load shift in the middle, and the change does nothing", 2.3, _as(), shape=_doubles, placebo=True),
    replace(CAPPED, name="canary crashes", right=_as(), trouble=_when(_SEQS, Trouble(crashes_seconds=700))),
    replace(CAPPED, name="canary hangs", right=_as(), trouble=_when(_SEQS, Trouble(hangs_seconds=700))),
    replace(
        CAPPED, name="canary is silent from the start", right=_as(), trouble=_when(_SEQS, Trouble(crashes_seconds=0))
    ),
)
