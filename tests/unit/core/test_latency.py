"""Latency of single cases: scale, units, what is unknown, and what each argument does."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from plimsoll.core.kv import EngineOptions, Refusal, Speculation, plan_layout
from plimsoll.core.latency import LatencyEstimate, Load, StepTimes, predict_latency, running_limit, step_times
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.plan.result import Range
from plimsoll.facts import catalogue, gpus
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts, read_model

CHAT = Load(prompt_tokens=1024, output_tokens=512, concurrency=16)
ALONE = Load(prompt_tokens=1024, output_tokens=512, concurrency=1)


def facts_of(model: str) -> ModelFacts:
    entry = catalogue.find(model)
    assert entry is not None
    return read_model(entry.config, entry.quant_config)


def device(name: str) -> GPU:
    found = gpus.find(name)
    assert found is not None
    return found


LLAMA = facts_of("meta-llama/Llama-3.1-8B-Instruct")
H100 = device("NVIDIA-H100-80GB-HBM3")
ON_H100 = EngineOptions(device=H100)


def mid(figure: Range | None) -> float:
    assert figure is not None
    return figure.mid


def times_of(facts: ModelFacts, options: EngineOptions) -> StepTimes:
    found = step_times(facts, options)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "gpu", "tensor_parallel", "load", "tpot_ms", "ttft_ms"),
    [
        pytest.param(
            "meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-H100-80GB-HBM3", 1, ALONE, (5, 11), (30, 120), id="8B, H100"
        ),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-A10G", 1, ALONE, (27, 45), (150, 800), id="8B, A10G"),
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", "NVIDIA-L4", 1, ALONE, (54, 90), (150, 900), id="8B, L4"),
        pytest.param("openai/gpt-oss-120b", "NVIDIA-H100-80GB-HBM3", 2, CHAT, (6, 11), (50, 150), id="MoE, 2 H100"),
        pytest.param("deepseek-ai/DeepSeek-V3", "NVIDIA-H200", 8, CHAT, (9, 25), (80, 300), id="MLA MoE, 8 H200"),
    ],
)
def test_scale(
    model: str,
    gpu: str,
    tensor_parallel: int,
    load: Load,
    tpot_ms: tuple[float, float],
    ttft_ms: tuple[float, float],
) -> None:
    found = predict_latency(facts_of(model), EngineOptions(device=device(gpu), tensor_parallel=tensor_parallel), load)
    assert tpot_ms[0] < mid(found.tpot_ms) < tpot_ms[1]
    assert ttft_ms[0] < mid(found.ttft_ms) < ttft_ms[1]


def test_reading_the_weights_once_is_the_least_a_step_takes() -> None:
    bytes_read = 2 * (LLAMA.dims.vocab_size * LLAMA.dims.hidden_size + 32 * 218_112_000)
    found = times_of(LLAMA, ON_H100).step_seconds(1, 1024)
    assert bytes_read / H100.bandwidth_bytes_per_second < found < 2 * bytes_read / H100.bandwidth_bytes_per_second


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(Load(0, 0, 0), id="nothing"),
        pytest.param(Load(1, 1, 1), id="the least"),
        pytest.param(Load(1, 1, 10_000), id="many short ones"),
        pytest.param(Load(10_000_000, 1_000_000, 1_000), id="far too much"),
    ],
)
def test_any_load_has_a_latency(load: Load) -> None:
    found = predict_latency(LLAMA, ON_H100, load)
    assert mid(found.tpot_ms) > 0
    assert mid(found.ttft_ms) > 0


def one_model_of_each_architecture() -> Iterator[str]:
    seen = set()
    for name in catalogue.names():
        entry = catalogue.find(name)
        assert entry is not None
        architecture = str(entry.config.get("architectures"))
        if architecture not in seen:
            seen.add(architecture)
            yield name


def test_every_architecture_of_the_catalogue_has_a_latency() -> None:
    options = EngineOptions(device=device("NVIDIA-H200"))
    odd = {}
    for name in one_model_of_each_architecture():
        facts = facts_of(name)
        try:
            found = predict_latency(facts, options, CHAT)
        except Refusal:
            continue
        # No model decodes a token for less than its overheads, or for longer than reading 3 TB takes.
        if not 0.3 < mid(found.tpot_ms) < 1500 or not mid(found.ttft_ms) > mid(found.tpot_ms):
            odd[name] = found
    assert not odd


UNKNOWN = [
    pytest.param(replace(H100, bandwidth_bytes_per_second=0.0), id="bandwidth"),
    pytest.param(replace(H100, dense_flops={}), id="FLOP/s"),
]


@pytest.mark.parametrize("gpu", UNKNOWN)
def test_a_gpu_without_figures_has_no_latency(gpu: GPU) -> None:
    found = predict_latency(LLAMA, EngineOptions(device=gpu), CHAT)
    assert (found.ttft_ms, found.tpot_ms) == (None, None)
    assert "unknown" in found.assumptions[0]


def test_a_cpu_has_no_latency() -> None:
    assert predict_latency(LLAMA, EngineOptions(device="cpu"), CHAT).tpot_ms is None


def test_a_gpu_older_than_bf16_computes_in_fp16() -> None:
    assert predict_latency(LLAMA, EngineOptions(device=device("Tesla-T4")), ALONE).tpot_ms is not None


def test_accepted_tokens_divide_the_time_of_a_step() -> None:
    one, two = (predict_latency(LLAMA, ON_H100, ALONE, accepted_tokens_per_step=each) for each in (1.0, 2.0))
    assert mid(two.tpot_ms) == pytest.approx(mid(one.tpot_ms) / 2)
    assert two.decode_step_ms == one.decode_step_ms


def test_verifying_drafts_costs_their_tokens() -> None:
    drafting = replace(ON_H100, speculation=Speculation("ngram", 3))
    plain, drafted = (predict_latency(LLAMA, each, replace(CHAT, concurrency=200)) for each in (ON_H100, drafting))
    assert mid(drafted.tpot_ms) > mid(plain.tpot_ms)
    assert any("accepted tokens" in each for each in drafted.assumptions)


def test_drafting_with_the_model_s_own_predictor_costs_its_steps() -> None:
    deepseek, options = (
        facts_of("deepseek-ai/DeepSeek-V3"),
        EngineOptions(device=device("NVIDIA-H200"), tensor_parallel=8),
    )
    free, own = (replace(options, speculation=Speculation(method, 2)) for method in ("ngram", "mtp"))
    assert times_of(deepseek, own).step_seconds(4, 4000) > times_of(deepseek, free).step_seconds(4, 4000)
    assert times_of(deepseek, own).step_seconds(0, 0, 512) == times_of(deepseek, free).step_seconds(0, 0, 512)


def test_a_draft_model_costs_its_steps() -> None:
    draft = facts_of("meta-llama/Llama-3.2-1B-Instruct")
    options = replace(ON_H100, speculation=Speculation("draft_model", 3, draft))
    plain = times_of(LLAMA, replace(options, speculation=Speculation("ngram", 3))).step_seconds(1, 1000)
    assert times_of(LLAMA, options).step_seconds(1, 1000) == pytest.approx(
        plain + 3 * times_of(draft, ON_H100).step_seconds(1, 1000)
    )


def test_online_quantisation_reads_fewer_bytes() -> None:
    plain, narrow = (predict_latency(LLAMA, ON_H100, ALONE, MemoryFlags(quantization=each)) for each in (None, "fp8"))
    assert mid(narrow.tpot_ms) < 0.75 * mid(plain.tpot_ms)


def test_a_learned_correction_multiplies_and_narrows() -> None:
    plain, corrected = (predict_latency(LLAMA, ON_H100, CHAT, correction=each) for each in (None, 1.5))
    for before, after in ((plain.tpot_ms, corrected.tpot_ms), (plain.ttft_ms, corrected.ttft_ms)):
        assert before is not None
        assert after is not None
        assert after.mid == pytest.approx(1.5 * before.mid)
        assert after.high / after.low < before.high / before.low


def test_ranges_are_no_wider_than_a_factor_three() -> None:
    found = predict_latency(LLAMA, ON_H100, CHAT)
    for figure in (found.tpot_ms, found.ttft_ms):
        assert figure is not None
        assert figure.low < figure.mid < figure.high <= 3.01 * figure.low


def busy(limit: float | None) -> LatencyEstimate:
    return predict_latency(LLAMA, ON_H100, replace(CHAT, concurrency=64), running_limit=limit)


def test_requests_beyond_the_pool_queue_and_do_not_slow_the_others() -> None:
    free, limited = busy(None), busy(16)
    assert limited.running == 16
    assert mid(limited.tpot_ms) < mid(free.tpot_ms)
    assert mid(limited.ttft_ms) > 2 * 512 * mid(limited.tpot_ms), "three of four wait for others' whole answers"
    assert any("48 of 64" in each for each in limited.assumptions)


def test_max_num_seqs_limits_as_the_pool_does() -> None:
    found = predict_latency(LLAMA, replace(ON_H100, max_num_seqs=8), replace(CHAT, concurrency=64))
    assert found.running == 8


def test_the_running_limit_is_what_the_pool_holds_without_the_null_block() -> None:
    layout = plan_layout(LLAMA, replace(ON_H100, max_num_seqs=1000))
    blocks = layout.blocks_for_request(CHAT.prompt_tokens + CHAT.output_tokens // 2)
    assert running_limit(layout, 10 * blocks + 1, CHAT) == 10
    assert running_limit(layout, 1, CHAT) == 1, "an engine that runs serves one"
    assert running_limit(layout, 10_000_000, CHAT) == 1000


@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        pytest.param("Qwen/Qwen3-8B-FP8", "NVIDIA-A100-SXM4-80GB", id="fp8 weights without fp8 tensor cores"),
        pytest.param("nvidia/Kimi-K2.6-NVFP4", "NVIDIA-H200", id="fp4 experts without fp4 tensor cores"),
    ],
)
def test_weights_the_gpu_cannot_multiply_are_unpacked(model: str, gpu: str) -> None:
    facts, options = facts_of(model), EngineOptions(device=device(gpu), tensor_parallel=1)
    able = replace(device(gpu), dense_flops={"bf16": 1e15, "fp8": 1e15, "fp4": 1e15})
    unable = replace(able, dense_flops={"bf16": 1e15})
    slow, fast = (times_of(facts, replace(options, device=each)).step_seconds(1, 1024) for each in (unable, able))
    assert slow > fast


def test_a_window_stops_the_growth_of_what_is_read() -> None:
    gemma, llama = (times_of(facts_of(name), ON_H100) for name in ("google/gemma-3-27b-it", "Qwen/Qwen3-32B"))

    def growth(times: StepTimes) -> float:
        return times.step_seconds(1, 100_000) - times.step_seconds(1, 50_000)

    assert growth(gemma) < growth(llama) / 3, "10 of 62 layers look back beyond 1,024 tokens"


@pytest.mark.parametrize(
    ("model", "share"),
    [
        pytest.param("meta-llama/Llama-3.1-8B-Instruct", 1 / 8, id="KV heads are divided"),
        pytest.param("deepseek-ai/DeepSeek-V3", 1.0, id="latents are whole on every rank"),
    ],
)
def test_what_a_rank_reads_of_each_token(model: str, share: float) -> None:
    alone, divided = (
        sum(part.bytes_per_token for part in times_of(facts_of(model), options).work.attention)
        for options in (ON_H100, replace(ON_H100, tensor_parallel=8))
    )
    assert divided == pytest.approx(share * alone)


def test_sparse_attention_reads_what_its_indexer_picked() -> None:
    attention = times_of(facts_of("zai-org/GLM-5.1-FP8"), replace(ON_H100, tensor_parallel=8)).work.attention
    picked = next(part for part in attention if part.reach_tokens == 2048)
    keys = next(part for part in attention if part.reach_tokens > 1_000_000)
    assert picked.bytes_per_token > 5 * keys.bytes_per_token > 0


def test_recurrent_states_are_read_for_each_request_whatever_its_length() -> None:
    times = times_of(facts_of("Qwen/Qwen3.5-9B"), ON_H100)
    for tokens in (1_000, 100_000):
        more = times.step_seconds(17, 17 * tokens) - times.step_seconds(16, 16 * tokens)
        assert more > 2 * times.work.state_bytes / H100.bandwidth_bytes_per_second


def test_more_tokens_wake_more_experts_until_all_are_read() -> None:
    times = times_of(facts_of("openai/gpt-oss-120b"), replace(ON_H100, tensor_parallel=2))
    first, later = (times.step_seconds(n + 1, 0) - times.step_seconds(n, 0) for n in (1, 500))
    assert first > 5 * later


def test_expert_parallelism_over_engines_reads_fewer_experts() -> None:
    kimi, options = facts_of("moonshotai/Kimi-K2.5"), EngineOptions(device=device("NVIDIA-H200"), tensor_parallel=8)
    one, four = (
        predict_latency(kimi, options, CHAT, MemoryFlags(expert_parallel=True, data_parallel=n)) for n in (1, 4)
    )
    assert mid(four.tpot_ms) < mid(one.tpot_ms)


def test_gpus_without_nvlink_pay_for_tensor_parallelism() -> None:
    linked, alone = (replace(H100, nvlink_bytes_per_second=each) for each in (900e9, 0.0))
    options = replace(ON_H100, tensor_parallel=4)
    fast, slow = (predict_latency(LLAMA, replace(options, device=each), CHAT) for each in (linked, alone))
    assert mid(slow.tpot_ms) > mid(fast.tpot_ms)
    assert any("PCIe" in each for each in slow.assumptions)


def test_pipeline_stages_share_the_requests() -> None:
    crowd = replace(CHAT, concurrency=256)
    one, two = (predict_latency(LLAMA, replace(ON_H100, pipeline_parallel=n), crowd) for n in (1, 2))
    assert mid(two.tpot_ms) < mid(one.tpot_ms)


def test_a_step_takes_its_parts_together() -> None:
    times = times_of(LLAMA, ON_H100)
    decode, prefill = times.step_seconds(8, 8 * 2000), times.step_seconds(0, 0, 2000)
    assert max(decode, prefill) < times.step_seconds(8, 8 * 2000, 2000) < decode + prefill


def test_a_prompt_beyond_the_budget_takes_several_steps() -> None:
    times = times_of(LLAMA, replace(ON_H100, max_num_batched_tokens=2048))
    assert [times.chunks(tokens, 0) for tokens in (1, 2048, 2049, 6144)] == [1, 1, 2, 3]
    assert times.prefill_seconds(4096) > 2 * times.step_seconds(0, 0, 2048), "the second chunk also sees the first"


def test_a_cached_prefix_is_not_computed_again() -> None:
    times = times_of(LLAMA, ON_H100)
    whole, rest = times.prefill_seconds(8000), times.prefill_seconds(2000, context_tokens=6000)
    assert times.prefill_seconds(2000) < rest < whole / 2
