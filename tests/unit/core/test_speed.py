"""Step times of running engines: measured only where that can be done well, believed only when repeated and shared."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import speed
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, to_json
from plimsoll.core.signals import MISSING, NEEDED, FleetView, PodView, Reading, Sample, Signal
from plimsoll.core.speed import Clock, Speed, after, begin, learned, measured, predicted_ms

QWEN = "Qwen/Qwen3-8B"
WINDOW = 300.0


def planned(speeds: Mapping[str, float] | None = None, **more: Any) -> Plan:
    spec = VLLMServiceSpec.model_validate(
        {
            "model": {"id": QWEN},
            "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 4},
            "contextTokens": 16384,
            "load": {"concurrency": 16, "promptTokens": 1000, "outputTokens": 400},
            "slo": {"ttft": "5s", "itl": "300ms"},
            **more,
        }
    )
    found = plan_service(spec, 1, bundled_config(QWEN), Inventory(speeds=speeds or {}))
    assert isinstance(found, Plan)
    return found


PLAN = planned()
TOLD: dict[str, Any] = to_json(PLAN)
TYPICAL = TOLD["typical"]


def engine(factor: float = 1.0, running: float = 12.0, **more: float) -> dict[Signal, Reading]:
    """One that takes so many times the predicted time a step."""
    figures = {
        Signal.RUNNING: running,
        Signal.RUNNING_MEAN: running,
        Signal.USAGE: running * TYPICAL["blocks"] / (PLAN.kv.num_blocks - 1),
        Signal.NUM_BLOCKS: float(PLAN.kv.num_blocks),
        Signal.ITL_MEAN: factor * predicted_ms(TYPICAL["stepsMs"], running) / 1e3,
        **{Signal[name]: value for name, value in more.items()},
    }
    return {**dict.fromkeys(NEEDED, Sample(0.0)), **{signal: Sample(value) for signal, value in figures.items()}}


def fleet(*engines: dict[Signal, Reading]) -> FleetView:
    return FleetView(tuple(PodView(f"p{n}", "ready", engines={"0": said}) for n, said in enumerate(engines)))


@pytest.mark.parametrize(
    ("view", "factor"),
    [
        pytest.param(fleet(engine(1.3)), 1.3, id="slower"),
        pytest.param(fleet(engine(0.8), engine(0.82), engine(0.81)), 0.81, id="the middle of three"),
        pytest.param(fleet(engine(1.0), engine(1.3)), None, id="they do not agree"),
        pytest.param(fleet(engine(1.0), engine(running=1)), 1.0, id="one that idles says nothing, and hinders nothing"),
        pytest.param(fleet(engine(running=1)), None, id="too few requests"),
        pytest.param(fleet(engine(RUNNING_MEAN=24)), None, id="as many as now were not there before"),
        pytest.param(fleet(engine(USAGE=0.9)), None, id="requests are not as long as planned"),
        pytest.param(fleet(engine(PREEMPTIONS=0.1)), None, id="preempted"),
        pytest.param(fleet(engine(PROMPT_TOKENS=9000.0)), None, id="prompts take too much of the time"),
        pytest.param(fleet(engine(PROMPT_TOKENS=9000.0, HIT_RATIO=0.99)), 1.0, id="but not those that are cached"),
        pytest.param(fleet({**engine(), Signal.ITL_MEAN: MISSING}), None, id="no figure"),
        pytest.param(fleet(engine(), {**engine(), Signal.RUNNING_MEAN: MISSING}), None, id="one does not say"),
        pytest.param(replace(fleet(engine()), error="away"), None, id="Prometheus is away"),
        pytest.param(fleet(), None, id="no pod"),
    ],
)
def test_it_is_measured_where_that_can_be_done_well(view: FleetView, factor: float | None) -> None:
    assert measured(view, TOLD) == (None if factor is None else pytest.approx(factor, rel=0.03))


def test_a_plan_that_tells_no_steps_is_not_measured() -> None:
    typical = {k: v for k, v in TYPICAL.items() if k != "stepsMs"}
    assert measured(fleet(engine()), {**TOLD, "typical": typical}) is None
    drafting = planned(engine={"speculative": {"method": "NGram", "tokens": 3}})
    assert drafting.typical is not None
    assert drafting.typical.steps_ms is None, "a step yields nobody knows how many tokens"


def watched(factors: list[float | None], clock: Clock | None = None, plan: Mapping[str, Any] = TOLD) -> Clock:
    clock = clock or Clock()
    start = max(0.0, clock.at_seconds)
    for n, factor in enumerate(factors):
        view = fleet() if factor is None else fleet(engine(factor))
        clock = after(clock, view, plan, start + (n + 1) * WINDOW, WINDOW)
    return clock


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        pytest.param([1.3, 1.3], None, id="twice is not enough"),
        pytest.param([1.3, 1.31, 1.29], 1.3, id="three times"),
        pytest.param([1.3, None, 1.3, None, 1.3], 1.3, id="silence between"),
        pytest.param([1.0, 1.3, 1.6], None, id="no two the same"),
        pytest.param([1.3] * 3 + [1.35] * 5, 1.3, id="a little is no news"),
        pytest.param([1.3] * 3 + [1.6] * 3, 1.6, id="more is"),
        pytest.param([1.3] * 3 + [1.0, 1.6, 1.2], 1.3, id="what was said stays while nothing else is certain"),
        pytest.param([3.0] * 3, None, id="not the model's fault"),
        pytest.param([1.3] * 3 + [3.0] * 3, None, id="and unsays what was said"),
    ],
)
def test_what_is_repeated_is_believed(factors: list[float | None], said: float | None) -> None:
    found = watched(factors).said
    assert (found.factor if found else None) == said


def test_readings_share_no_window() -> None:
    clock = Clock()
    for n in range(100):
        clock = after(clock, fleet(engine(1.3)), TOLD, n * 5.0, WINDOW)
    assert len(clock.factors) == 2
    assert clock.said is None


def test_another_engine_begins_anew_and_a_restart_does_not() -> None:
    clock = watched([1.3] * 3)
    assert clock.said is not None
    status = {"stepTimes": {"key": clock.said.key, "factor": clock.said.factor}}
    again = begin(status)
    assert again.said == clock.said
    assert watched([None], again).said == clock.said
    assert watched([None], again, {**TOLD, "stepKey": "another"}).said is None
    assert begin({}) == Clock()


@pytest.mark.parametrize(
    ("speeds", "found"),
    [
        ([Speed("a", 1.2), Speed("a", 1.25), Speed("b", 0.8)], {"a": 1.25, "b": 0.8}),
        ([Speed("a", 1.0), Speed("a", 1.3)], {}),
        ([], {}),
    ],
)
def test_services_that_differ_teach_nothing(speeds: list[Speed], found: dict[str, float]) -> None:
    assert learned(speeds) == found


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param({"contextTokens": 8192}, True, id="context"),
        pytest.param({"engine": {"extraArgs": ["--max-num-seqs=64"]}}, True, id="a cap"),
        pytest.param({"engine": {"extraArgs": ["--gpu-memory-utilization=0.8"]}}, True, id="utilisation"),
        pytest.param({"engine": {"extraArgs": ["--kv-cache-dtype=fp8"]}}, False, id="fp8 KV"),
        pytest.param({"engine": {"extraArgs": ["--tensor-parallel-size=2"]}}, False, id="parallelism"),
        pytest.param({"engine": {"version": "0.31.0"}}, False, id="engine"),
        pytest.param({"hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"}}, False, id="GPU"),
    ],
)
def test_a_factor_is_of_model_gpu_parallelism_and_engine(change: dict[str, Any], same: bool) -> None:
    assert (planned(**change).step_key == PLAN.step_key) is same


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2.0])
def test_the_next_plan_counts_with_it(factor: float) -> None:
    found = planned({PLAN.step_key: factor})
    assert found.step_factor == factor
    assert found.typical is not None
    assert PLAN.typical is not None
    assert found.typical.decode_step_ms == pytest.approx(factor * (PLAN.typical.decode_step_ms or 0), rel=0.15)
    before, now = PLAN.latency["itlMs"], found.latency["itlMs"]
    assert now.mid == pytest.approx(factor * before.mid, rel=0.15)
    assert now.high / now.mid < before.high / before.mid, "what was measured is known better"
    slower = found.latency["ttftMs"].mid / PLAN.latency["ttftMs"].mid
    # Requests that are done sooner are followed by others sooner, whose prompts are in the way of one another.
    assert slower >= (0.99 if factor < 1 else 0.9 * factor), "quick decoding says nothing of prompts, slow steps do"
    assert found.typical.steps_ms == pytest.approx(PLAN.typical.steps_ms), "what a plan is measured against stays"
    assert any(f"{factor:g} times" in note for note in found.assumptions)
    assert planned({"another key": factor}) == PLAN


@given(st.floats(1, 300), st.floats(1, 300))
def test_more_requests_never_take_a_shorter_step(one: float, other: float) -> None:
    fewer, more = sorted((one, other))
    assert predicted_ms(TYPICAL["stepsMs"], fewer) <= predicted_ms(TYPICAL["stepsMs"], more) + 1e-9
    assert speed.LEAST < 1 < speed.MOST


def test_a_factor_of_another_engine_is_none() -> None:
    observed = {"stepTimes": {"key": PLAN.step_key, "factor": 1.2}}
    assert speed.told(observed, TOLD) == 1.2
    assert speed.told(observed, {**TOLD, "stepKey": "another"}) is None
    assert speed.told(observed, {}) is None
    assert speed.told({}, TOLD) is None


@pytest.mark.parametrize(
    ("running", "ms"), [(0.5, 10), (1, 10), (1.5, 12), (2, 14), (3, 17), (4, 20), (5, 20), (400, 20)]
)
def test_a_step_between_two_that_were_told(running: float, ms: float) -> None:
    assert predicted_ms([10.0, 14.0, 20.0], running) == ms


@pytest.mark.parametrize(
    ("factors", "before", "said"),
    [
        pytest.param([1.0, 1.0, 1.08], None, 1.0, id="readings that agree within their share"),
        pytest.param([0.4] * 3, None, 0.4, id="the least that may be the model's fault"),
        pytest.param([0.39] * 3, None, None, id="less may not"),
        pytest.param([2.5] * 3, None, 2.5, id="the most"),
        pytest.param([2.51] * 3, None, None, id="more may not"),
        pytest.param([1.02] * 3, None, 1.0, id="in steps of a twentieth"),
        pytest.param([1.03] * 3, None, 1.05, id="to the nearest"),
        pytest.param([1.09] * 3, 1.0, 1.0, id="two steps from what was said are no news"),
        pytest.param([1.11] * 3, 1.0, 1.1, id="more are"),
        pytest.param([2.15] * 3, 2.0, 2.0, id="steps grow with the factor"),
        pytest.param([0.89] * 3, 1.0, 0.9, id="quicker is news as well"),
    ],
)
def test_what_is_said_moves_in_steps(factors: list[float], before: float | None, said: float | None) -> None:
    found = speed._said("k", factors, None if before is None else Speed("k", before))
    assert (None if found is None else found.factor) == said


@pytest.mark.parametrize(
    ("values", "share", "agree"), [([1.0, 0.9], 0.1, True), ([1.0, 0.89], 0.1, False), ([2.0], 0.0, True)]
)
def test_values_agree_within_a_share_of_the_largest(values: list[float], share: float, agree: bool) -> None:
    assert speed._agree(values, share) is agree


def test_prompts_take_their_share_of_a_step() -> None:
    """A tenth of a second of prefill each second: nine tenths of a token's time are decoding."""
    per_token = float(TYPICAL["prefillMsPerToken"])
    shown = engine(PROMPT_TOKENS=100 / per_token)
    found = measured(fleet(shown), TOLD)
    assert found == (pytest.approx(0.9) if speed.MOST_PREFILL_SHARE >= 0.1 else None)


def test_an_engine_counts_as_busy_from_the_least_on() -> None:
    busy, idle = ({Signal.RUNNING_MEAN: Sample(n)} for n in (speed.LEAST_RUNNING, speed.LEAST_RUNNING - 0.01))
    assert speed._is_busy(busy)
    assert not speed._is_busy(idle)
    assert speed._is_busy({}), "what is not known is no idleness"
