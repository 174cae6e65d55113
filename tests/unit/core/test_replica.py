"""What a replica can take: from the plan, from plans of older releases, and from what engines report."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core import rollout
from plimsoll.core.demand import ReplicaCapacity
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.demand import NOTHING_LEARNED, LearnedLoad
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.replica import capacity_of
from plimsoll.core.request import Request, read_request
from plimsoll.core.signals import FleetView, PodView, Sample, Signal

LOAD = {"concurrency": 8, "promptTokens": 2000, "outputTokens": 400}


def request_of(**spec: Any) -> Request:
    base = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 8},
        "contextTokens": 16384,
        "slo": {"ttft": "2s", "itl": "50ms"},
    }
    return read_request({"metadata": {"name": "svc", "namespace": "llm", "uid": "u"}, "spec": {**base, **spec}})


def kept(request: Request) -> dict[str, Any]:
    plan = plan_service(request.spec, 1, bundled_config("Qwen/Qwen3-8B"), Inventory(load=request.load))
    assert isinstance(plan, Plan)
    return dict(rollout.render(request, plan, 1).plan)


def view(**figures: float) -> FleetView:
    engine = {Signal[name]: Sample(value) for name, value in figures.items()}
    return FleetView((PodView("p", "ready", engines={"0": engine}),))


def test_a_plan_says_all_of_it() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    found = capacity_of(plan, request.spec)
    assert found.usable_blocks == plan["kv"]["numBlocks"] - 1
    assert found.prompt_tokens == LOAD["promptTokens"]
    # 2,000 tokens of prompt and half of the output, in blocks of 16.
    assert found.request_blocks == (2000 + 200) / 16 // 1 + 1
    assert 0 < found.prefill_seconds_per_token < 1e-3
    assert 0 < found.decode_step_seconds < 0.1
    assert 0.25 <= found.prefill_share <= 0.75
    assert found.max_num_seqs == float(plan["choice"]["args"][plan["choice"]["args"].index("--max-num-seqs") + 1])


def test_a_plan_of_the_first_release_is_enough() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    planned = capacity_of(plan, request.spec)
    del plan["typical"]
    found = capacity_of(plan, request.spec)
    assert found.usable_blocks == planned.usable_blocks
    assert found.request_blocks >= planned.request_blocks
    assert found.prefill_seconds_per_token == 0


@pytest.mark.parametrize(
    ("reported", "usable"),
    [pytest.param({"NUM_BLOCKS": 501.0}, 500.0, id="reported"), pytest.param({}, None, id="not reported")],
)
def test_what_engines_report_counts_more_than_the_plan(reported: dict[str, float], usable: float | None) -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    found = capacity_of(plan, request.spec, view(USAGE=0.5, **reported))
    assert found.usable_blocks == (usable or plan["kv"]["numBlocks"] - 1)


def test_all_engines_of_a_replica_count() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    one = capacity_of(plan, request.spec)
    four = capacity_of({**plan, "choice": {**plan["choice"], "enginesPerReplica": 4}}, request.spec)
    assert four == ReplicaCapacity(
        **{**vars(one), "usable_blocks": 4 * one.usable_blocks, "max_num_seqs": 4 * one.max_num_seqs}
    )


def test_without_a_load_requests_are_as_large_as_those_that_run() -> None:
    request = request_of()
    plan = kept(request)
    planned = capacity_of(plan, request.spec)
    now = view(USAGE=0.9, RUNNING=3.0)
    assert capacity_of(plan, request.spec, now).request_blocks == pytest.approx(0.3 * planned.usable_blocks)
    assert capacity_of(plan, request.spec, view(USAGE=0.0, RUNNING=0.0)).request_blocks == planned.request_blocks


OLD: dict[str, Any] = {"kv": {"numBlocks": 1001, "maxConcurrency": 4.0}, "choice": {"args": []}}


@pytest.mark.parametrize(
    ("kv", "load", "blocks"),
    [
        pytest.param({"blocksPerRequestAtLoad": 77}, LOAD, 77, id="its own figure"),
        # A request of the whole context takes 250 blocks; this one 8,192 of 16,384 tokens when it is half done.
        pytest.param({}, {"promptTokens": 8000, "outputTokens": 384}, 125, id="a share of the whole context"),
        pytest.param({"maxConcurrency": 2000.0}, {"promptTokens": 800, "outputTokens": 84}, 1, id="a block at least"),
        pytest.param({"maxConcurrency": 0.0}, {"promptTokens": 8192}, None, id="nothing fits, and nothing fails"),
    ],
)
def test_what_a_request_takes_by_a_plan_of_the_first_release(
    kv: dict[str, Any], load: dict[str, Any], blocks: float | None
) -> None:
    found = capacity_of({**OLD, "kv": {**OLD["kv"], **kv}}, request_of(load=load).spec)
    assert found.request_blocks == (pytest.approx(blocks) if blocks else pytest.approx(5e11, rel=0.2))
    assert found.usable_blocks == 1000


def test_what_a_plan_does_not_say_is_not_made_up() -> None:
    found = capacity_of(OLD, request_of(load=LOAD, slo={"ttft": "2s", "percentile": 90}).spec)
    assert found.max_num_seqs == found.load_seconds == 0
    assert found.prefill_seconds_per_token == found.decode_step_seconds == 0
    assert (found.request_seconds, found.prompt_tokens, found.ttft_seconds) == (0, 2000, 2.0)
    assert found.percentile == 0.9


def test_figures_of_a_plan_are_milliseconds() -> None:
    typical = {"blocks": 10, "promptTokens": 500, "prefillMsPerToken": 2.0, "decodeStepMs": 40.0}
    found = capacity_of({**OLD, "typical": typical, "startup": {"seconds": 90}}, request_of(load=LOAD).spec)
    assert (found.request_blocks, found.prompt_tokens, found.load_seconds) == (10, 500, 90)
    assert (found.prefill_seconds_per_token, found.decode_step_seconds) == (0.002, 0.04)
    # 400 tokens at 40 ms, and the prompts of the 85 that run beside it.
    assert found.request_seconds == pytest.approx(400 * 0.04 + 85 * 500 * 0.002)


@pytest.mark.parametrize(
    ("args", "sequences"),
    [
        (["--max-num-seqs", "64"], 64),
        (["--max-num-seqs=128", "--x"], 128),
        (["--x", "--max-num-seqs"], 0),
        (["--max-num-seqs", "many", "--max-num-seqs", "32"], 32),
        (["--x", "64"], 0),
        ("--max-num-seqs 64", 0),
        (None, 0),
    ],
)
def test_the_cap_of_sequences_is_read_from_the_arguments(args: object, sequences: float) -> None:
    assert capacity_of({**OLD, "choice": {"args": args}}, request_of(load=LOAD).spec).max_num_seqs == sequences


@pytest.mark.parametrize(
    ("figures", "blocks"),
    [
        pytest.param({"USAGE": 0.5, "RUNNING": 1.0}, 500, id="one runs"),
        pytest.param({"USAGE": 0.5, "RUNNING": 2.0}, 250, id="two run"),
        pytest.param({"USAGE": 0.5, "RUNNING": 0.5}, 200, id="less than one is no average"),
        pytest.param({"USAGE": 0.5}, 200, id="how many run is not known"),
        pytest.param({"RUNNING": 2.0}, 200, id="what is used is not known"),
    ],
)
def test_blocks_of_those_that_run(figures: dict[str, float], blocks: float) -> None:
    kv = {"numBlocks": 1001, "maxConcurrency": 4.0, "blocksPerRequestAtLoad": 200}
    assert capacity_of({**OLD, "kv": kv}, request_of().spec, view(**figures)).request_blocks == blocks


def test_a_pool_holds_a_block_at_least() -> None:
    found = capacity_of({**OLD, "kv": {"numBlocks": 1, "maxConcurrency": 1.0}}, request_of(load=LOAD).spec)
    assert found.usable_blocks == 1
    assert (
        capacity_of({**OLD, "choice": {"args": [], "enginesPerReplica": 0}}, request_of(load=LOAD).spec).usable_blocks
        == 1000
    )


def test_learned_lengths_move_what_a_request_takes() -> None:
    request = request_of(load=LOAD)
    plan = kept(request)
    planned = capacity_of(plan, request.spec)
    assert capacity_of(plan, request.spec, None, LearnedLoad(concurrency=99)) == planned
    longer = capacity_of(plan, request.spec, None, LearnedLoad(prompt_tokens=4000, output_tokens=800))
    assert longer.prompt_tokens == 4000
    assert longer.request_seconds > planned.request_seconds
    # A request of an attention-only model takes a block for 16 tokens.
    assert longer.request_blocks == pytest.approx((4000 + 400) / 16, rel=0.01)
    short = capacity_of(plan, request.spec, None, LearnedLoad(prompt_tokens=16, output_tokens=2))
    assert 1 <= short.request_blocks < 5


@pytest.mark.parametrize(
    ("blocks", "planned", "learned", "expect"),
    [
        pytest.param(
            10, (500, 400, 100), (4000, 800), 10 + 240 * 3700 / 15784, id="own tokens: the shared are left out"
        ),
        pytest.param(5, (500, 400, 100), (101, 0), 1, id="a block at least"),
        pytest.param(300, (500, 400, 100), (4000, 800), 300, id="as long as the whole context already: no more"),
        pytest.param(250, (16384, 0, 0), (4000, 800), 250, id="planned for the whole context: no line to go along"),
    ],
)
def test_a_request_of_another_length_lies_on_the_line_to_the_whole_context(
    blocks: float, planned: tuple[int, int, int], learned: tuple[int, int], expect: float
) -> None:
    prompt, output, shared = planned
    typical = {"blocks": blocks, "promptTokens": prompt, "outputTokens": output, "sharedTokens": shared}
    request = request_of(load={**LOAD, "sharedPrefixTokens": 100})
    found = capacity_of(
        {**OLD, "typical": typical}, request.spec, None, LearnedLoad(prompt_tokens=learned[0], output_tokens=learned[1])
    )
    assert found.request_blocks == pytest.approx(expect)


def test_engines_of_a_replica_share_its_blocks_and_its_requests() -> None:
    kv = {"numBlocks": 1001, "maxConcurrency": 4.0, "blocksPerRequestAtLoad": 200}
    engine = {Signal.USAGE: Sample(0.5), Signal.RUNNING: Sample(1.0)}
    two = FleetView((PodView("p", "ready", engines={"0": engine, "1": engine}),), engines_per_pod=2)
    found = capacity_of({"kv": kv, "choice": {"args": [], "enginesPerReplica": 2}}, request_of().spec, two)
    assert (found.usable_blocks, found.request_blocks) == (2000, 500)


def test_what_is_no_longer_learned_is_as_declared_again() -> None:
    request = request_of(load=LOAD)
    learned = LearnedLoad(prompt_tokens=4000, output_tokens=800)
    plan = kept(replace(request, load=learned))
    assert plan["typical"]["promptTokens"] == 4000
    again, declared = capacity_of(plan, request.spec), capacity_of(kept(request), request.spec)
    assert again.prompt_tokens == LOAD["promptTokens"]
    assert again.request_blocks == pytest.approx(declared.request_blocks, rel=0.02)


@pytest.mark.parametrize("learned", [NOTHING_LEARNED, LearnedLoad(output_tokens=800)])
def test_a_plan_of_an_older_release_keeps_its_prompt(learned: LearnedLoad) -> None:
    typical = {"blocks": 10, "promptTokens": 500, "prefillMsPerToken": 2.0, "decodeStepMs": 40.0}
    found = capacity_of({**OLD, "typical": typical}, request_of(load=LOAD).spec, None, learned)
    assert found.prompt_tokens == 500
    assert found.request_blocks >= 10


@pytest.mark.parametrize(
    ("planned", "now", "decode", "prefill"),
    [
        pytest.param(None, None, 1.0, 1.0, id="as predicted"),
        pytest.param(None, 1.5, 1.5, 1.5, id="slower: at prompts too"),
        pytest.param(None, 0.8, 0.8, 1.0, id="quicker: at decoding only"),
        pytest.param(1.5, None, 1.0, 1.0, id="the plan knows"),
        pytest.param(1.5, 1.5, 1.0, 1.0, id="the plan knows, and it is still so"),
        pytest.param(1.5, 0.9, 0.6, 1 / 1.5, id="it is no longer so"),
    ],
)
def test_step_times_of_its_own_pods_count(
    planned: float | None, now: float | None, decode: float, prefill: float
) -> None:
    request = request_of(load=LOAD)
    plan = {**kept(request), **({"stepFactor": planned} if planned else {})}
    before, found = capacity_of(plan, request.spec), capacity_of(plan, request.spec, None, NOTHING_LEARNED, now)
    assert found.decode_step_seconds == pytest.approx(decode * plan["typical"]["decodeStepMs"] / 1e3)
    assert found.prefill_seconds_per_token == pytest.approx(prefill * plan["typical"]["prefillMsPerToken"] / 1e3)
    assert (found.request_seconds > before.request_seconds) is (decode > 1)
