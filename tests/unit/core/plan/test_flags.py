"""Arguments of ``vllm serve``: every release understands them, and they say all that memory depends on."""

import json

import pytest

from e2e.fleet import vllm_args
from plimsoll.core.plan.extra_args import argv_flags, read_overrides
from plimsoll.facts import engine_flags, engines
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.parsers import parsers_of
from tests.unit.core.plan.asking import B200, H100, H200, L40S, flags, load, plan, refusal

NEWEST = EngineVersion.parse(engines.NEWEST)
TARGETS = {"load": load(8), "slo": {"ttft": "2s", "itl": "45ms"}}


@pytest.mark.parametrize("version", engines.RECORDED)
@pytest.mark.parametrize(
    ("model", "gpu"),
    [
        ("Qwen/Qwen3-32B", L40S), ("openai/gpt-oss-120b", H100), ("google/gemma-3-27b-it", H100),
        ("deepseek-ai/DeepSeek-V3", B200), ("Qwen/Qwen3-VL-8B-Instruct", L40S),
    ],
)  # fmt: skip
def test_the_releases_own_parser_takes_the_arguments(version: str, model: str, gpu: str) -> None:
    found = plan(model, gpu, 8192, 16, engine={"version": version}, textOnly=True, **TARGETS)
    parsed = vllm_args.parse([model, *found.choice.args], version)
    assert parsed["max_model_len"] == 8192
    assert parsed["tensor_parallel_size"] == found.choice.tensor_parallel
    assert parsed.served_name == model


@pytest.mark.parametrize(
    "name", ["--max-model-len", "--max-num-seqs", "--max-num-batched-tokens", "--gpu-memory-utilization",
             "--kv-cache-dtype", "--tensor-parallel-size", "--shutdown-timeout", "--served-model-name"]
)  # fmt: skip
def test_what_moves_with_gpu_and_version_is_written_out(name: str) -> None:
    assert flags(plan("Qwen/Qwen3-8B", L40S, 8192))[name]


def test_several_ranks_run_without_ray() -> None:
    assert flags(plan("Qwen/Qwen3-32B", L40S, 8192))["--distributed-executor-backend"] == "mp"
    assert "--distributed-executor-backend" not in plan("Qwen/Qwen3-8B", L40S, 8192).choice.args


def test_gated_delta_nets_name_their_prefill_backend() -> None:
    assert flags(plan("Qwen/Qwen3.5-9B", H100, 8192))["--gdn-prefill-backend"] == "triton"
    assert "--gdn-prefill-backend" not in plan("Qwen/Qwen3-8B", H100, 8192).choice.args


def test_text_only_is_spelt_as_the_release_knows_it() -> None:
    new = plan("Qwen/Qwen3-VL-8B-Instruct", L40S, 8192, textOnly=True)
    old = plan("Qwen/Qwen3-VL-8B-Instruct", L40S, 8192, textOnly=True, engine={"version": "0.12.0"})
    assert "--language-model-only" in new.choice.args
    assert json.loads(flags(old)["--limit-mm-per-prompt"]) == {"image": 0, "video": 0}
    assert "--language-model-only" not in plan("Qwen/Qwen3-8B", L40S, 8192, textOnly=True).choice.args


def test_targets_are_bounds_of_the_histograms_where_the_release_can() -> None:
    buckets = json.loads(flags(plan("Qwen/Qwen3-8B", L40S, 8192, **TARGETS))["--custom-histogram-buckets"])
    assert 2.0 in buckets["time_to_first_token"]
    assert 0.045 in buckets["inter_token_latency"]
    assert min(buckets["inter_token_latency"]) < 0.01
    assert all(bounds == sorted(bounds) for bounds in buckets.values())
    old = plan("Qwen/Qwen3-8B", L40S, 8192, engine={"version": "0.28.0"}, **TARGETS)
    assert "--custom-histogram-buckets" not in old.choice.args
    assert "--custom-histogram-buckets" not in plan("Qwen/Qwen3-8B", L40S, 8192).choice.args


def test_a_users_argument_replaces_ours_in_any_spelling() -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 8192, args=["--max_num_seqs", "512", "--no-enable-prefix-caching", "-tp=2"])
    args = found.choice.args
    assert args[-4:] == ("--max_num_seqs", "512", "--no-enable-prefix-caching", "-tp=2")
    assert not {"--max-num-seqs", "--enable-prefix-caching", "--tensor-parallel-size"} & set(args)
    assert found.choice.tensor_parallel == 2


def test_a_users_argument_enters_the_arithmetic() -> None:
    plain = plan("Qwen/Qwen3-8B", L40S, 8192)
    for args in (["--kv-cache-dtype=fp8"], ["--max-num-seqs=1024"], ["--enforce-eager"], ["--block-size", "32"],
                 ["--enable-lora", "--max-loras=8", "--max-lora-rank=64"], ["--cpu-offload-gb", "4"]):  # fmt: skip
        assert plan("Qwen/Qwen3-8B", L40S, 8192, args=args).kv != plain.kv, args


def test_offloading_asks_for_host_memory() -> None:
    plain = plan("Qwen/Qwen3-8B", L40S, 8192)
    more = plan("Qwen/Qwen3-8B", L40S, 8192, args=["--kv-offloading-size", "20"])
    assert more.host.memory_bytes - plain.host.memory_bytes == 20 << 30


def test_speculation_counts_the_draft() -> None:
    plain = plan("Qwen/Qwen3-8B", L40S, 8192)
    config = '{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 3}'
    drafted = plan("Qwen/Qwen3-8B", L40S, 8192, args=["--speculative-config", config])
    assert drafted.available_kv_bytes.mid < plain.available_kv_bytes.mid
    assert drafted.kv.bytes_per_block > plain.kv.bytes_per_block


def test_rope_scaling_by_overrides_lifts_the_limit() -> None:
    overrides = '{"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}'
    found = plan("Qwen/Qwen3-8B", H100, 131_072, args=[f"--hf-overrides={overrides}"])
    assert flags(found)["--max-model-len"] == "131072"


@pytest.mark.parametrize(
    ("args", "flags_read"),
    [
        (["--max-num-seqs", "8"], {"--max-num-seqs": "8"}),
        (["--max-num-seqs=8"], {"--max-num-seqs": "8"}),
        (["-tp", "2"], {"--tensor-parallel-size": "2"}),
        (["-ep"], {"--enable-expert-parallel": True}),
        (["-O3"], {"--compilation-config": "3"}),
        (["--served-model-name", "a", "b"], {"--served-model-name": ["a", "b"]}),
        (["--speculative-config.method", "mtp"], {"--speculative-config": {"method": "mtp"}}),
        (['--hf-overrides={"a": 1}'], {"--hf-overrides": {"a": 1}}),
    ],
)
def test_arguments_are_read_as_the_parser_reads_them(args: list[str], flags_read: dict[str, object]) -> None:
    assert argv_flags(args, NEWEST) == flags_read


def test_a_level_of_compilation_is_no_environment() -> None:
    assert read_overrides(["-O0"], NEWEST, 8192).memory.get("enforce_eager")


@pytest.mark.parametrize(
    ("model_type", "model", "version", "reasoning", "tools"),
    [
        ("qwen3_5_text", "Qwen/Qwen3.5-9B", "0.32.0", "qwen3", "qwen3_coder"),
        ("qwen3", "Qwen/Qwen3-8B", "0.10.2", "qwen3", "hermes"),
        ("qwen3_moe", "Qwen/Qwen3-30B-A3B-Instruct-2507", "0.32.0", None, "hermes"),
        ("qwen3_moe", "Qwen/Qwen3-Coder-480B", "0.32.0", None, "qwen3_coder"),
        ("gemma4_text", "google/gemma-4-31B-it", "0.32.0", "gemma4", "gemma4"),
        ("gemma4_text", "google/gemma-4-31B-it", "0.12.0", None, None),
        ("gpt_oss", "openai/gpt-oss-20b", "0.32.0", None, "openai"),
        ("llama", "meta-llama/Llama-3.1-8B-Instruct", "0.32.0", None, None),
        ("qwen3", "Qwen/Qwen3-Embedding-8B", "0.32.0", None, None),
    ],
)
def test_parsers_by_family_and_release(
    model_type: str, model: str, version: str, reasoning: str | None, tools: str | None
) -> None:
    found = parsers_of(model_type, model, "SomethingForCausalLM", EngineVersion.parse(version))
    assert (found.reasoning, found.tools) == (reasoning, tools)


def test_reasoning_parsers_are_among_those_a_release_lists() -> None:
    flag = engine_flags.find("--reasoning-parser")
    assert flag is not None
    for version in ("0.10.2", "0.11.0"):
        parsed = EngineVersion.parse(version)
        listed = flag.choices_of(parsed)
        for model_type in ("qwen3", "qwen3_5_text", "seed_oss", "glm4_moe", "minimax_m2", "gemma4_text", "olmo3"):
            name = parsers_of(model_type, "x/GLM-4.5", "", parsed).reasoning
            assert name is None or name in listed


def test_a_plan_over_two_nodes_names_leader_and_workers() -> None:
    found = plan("deepseek-ai/DeepSeek-V3.2", H100, 65_536, 16)
    assert found.choice.nodes_per_replica == 2
    assert flags(found)["--pipeline-parallel-size"] == "2"
    assert any("rank 0 leads" in note for note in found.assumptions)
    assert plan("deepseek-ai/DeepSeek-V3.2", H200, 65_536, 16).choice.nodes_per_replica == 1


def test_several_nodes_need_a_release_that_knows_them() -> None:
    no = refusal("deepseek-ai/DeepSeek-V3", H100, 65_536, 16, engine={"version": "0.11.0"})
    assert (no.reason, "vLLM 0.11.0 has no --nnodes" in no.message) == ("SeveralNodes", True)
    assert plan("deepseek-ai/DeepSeek-V3", H100, 65_536, 16, engine={"version": "0.12.0"}).choice.nodes_per_replica == 2
