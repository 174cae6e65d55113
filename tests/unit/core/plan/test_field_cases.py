"""Kinds of trouble that people had with other systems (field cases A and E, level U), each as it should go."""

import re
from dataclasses import replace

import pytest

from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Refusal
from tests.unit.core.manifests import rendering
from tests.unit.core.plan.asking import A100, H100, L4, L40S, answer, flags, load, plan, refusal

NINE, QWEN8, QWEN32 = "Qwen/Qwen3.5-9B", "Qwen/Qwen3-8B", "Qwen/Qwen3-32B"


def test_a01_an_explicit_count_is_a_bound() -> None:
    no = refusal(QWEN32, L40S, 32_768, 1)
    assert no.reason == "NoMemoryForKV"
    assert "weights" in no.message
    assert any(change.change == "maxGPUs: 1 -> 2" for change in no.nearest)


def test_a02_a08_a_context_that_does_not_fit_is_refused_with_the_one_that_does() -> None:
    no = refusal(NINE, L4, 262_144, 1, textOnly=True)
    assert no.reason == "KVCacheTooSmall"
    fits = next(int(change.change.rsplit(" ", 1)[1]) for change in no.nearest if "contextTokens" in change.change)
    plan(NINE, L4, fits, 1, textOnly=True)
    refusal(NINE, L4, fits + 1056, 1, textOnly=True)


def test_a04_sequences_of_a_hybrid_stay_within_its_state_blocks() -> None:
    found = plan(NINE, L4, 32_768, 1, textOnly=True)
    assert int(flags(found)["--max-num-seqs"]) <= found.kv.num_blocks
    too_many = refusal(NINE, L4, 8192, 1, textOnly=True, args=["--max-num-seqs=1024"])
    assert any("--max-num-seqs 1024 -> " in change.change for change in too_many.nearest), too_many


def test_a07_the_fullest_stage_decides() -> None:
    """61 layers over two stages: 30 and 31; the pool is that of the stage with 31."""
    args = ["--tensor-parallel-size=8", "--pipeline-parallel-size=2"]
    found = plan("deepseek-ai/DeepSeek-V3", H100, 32_768, 16, args=args)
    per_layer = 576 * 2 * found.kv.block_size
    assert found.kv.bytes_per_block == 31 * per_layer
    assert found.choice.nodes_per_replica == 2


def test_a10_what_fails_is_recorded_and_the_next_is_tried() -> None:
    found = plan(QWEN32, L40S, 32_768)
    assert found.choice.tensor_parallel == 2
    assert any(r.choice == "TP1 on NVIDIA-L40S" and r.reason == "NoMemoryForKV" for r in found.rejected)


def test_a11_the_pool_follows_the_share_of_memory() -> None:
    whole, half = plan(QWEN8, H100, 8192), plan(QWEN8, H100, 8192, args=["--gpu-memory-utilization=0.5"])
    assert flags(half).get("--gpu-memory-utilization") is None
    assert half.kv.num_blocks < whole.kv.num_blocks * 0.45


def test_a13_the_divisor_that_fails_is_named() -> None:
    no = refusal("microsoft/phi-4", H100, 8192, args=["--tensor-parallel-size", "8"])
    assert no.reason == "HeadsNotDivisible"
    assert re.search(r"10 KV heads .* 8", no.message)


def test_a14_towers_do_not_decide_the_divisor() -> None:
    """The tower of Qwen3-VL has 16 heads, the decoder 32 and 8 KV heads: TP8 is open to it."""
    found = plan("Qwen/Qwen3-VL-8B-Instruct", L40S, 8192, args=["--tensor-parallel-size=8"])
    assert found.choice.tensor_parallel == 8


def test_a16_a_pod_holds_whole_gpus_and_shared_ones_are_not_guessed_at() -> None:
    """Time slicing parts no memory: a second engine on the card would find less than it was planned with."""
    container = rendering.engine(engine={"extraArgs": ["-tp=2"]})
    assert int(container["resources"]["limits"]["nvidia.com/gpu"]) == 2
    no = refusal(QWEN8, f"{L40S}-SHARED", 8192)
    assert no.reason == "SharedGPU"
    assert "reserveGiB" in no.message
    kept = Inventory({f"{L40S}-SHARED": Stock(reserve_bytes=20 << 30)})
    beside = plan(QWEN8, f"{L40S}-SHARED", 8192, inventory=kept)
    assert float(flags(beside)["--gpu-memory-utilization"]) < 0.52
    assert plan(QWEN8, [f"{L40S}-SHARED", H100], 8192).choice.gpu == H100


def test_a20_a_kind_of_cache_that_nobody_described_is_refused_never_guessed() -> None:
    known = bundled_config(QWEN8)
    assert known is not None
    unheard = {"architectures": ["TomorrowForCausalLM"], "model_type": "tomorrow"}
    strange = replace(known, config={**known.config, **unheard})
    no = answer(QWEN8, L40S, 8192, config=strange)
    assert isinstance(no, Refusal)
    assert no.reason == "UnknownArchitecture"
    assert "TomorrowForCausalLM" in no.message


def test_a22_graphs_are_inside_the_share_only_from_the_release_that_counts_them_there() -> None:
    old, new = (plan(QWEN8, H100, 8192, engine={"version": version}) for version in ("0.19.1", "0.22.1"))
    assert "cuda_graphs" not in {item.item for item in old.memory}
    assert "cuda_graphs" in {item.item for item in new.memory}


@pytest.mark.parametrize("model", [QWEN8, "openai/gpt-oss-20b", "Qwen/Qwen3-30B-A3B", NINE])
def test_a25_a_context_is_promised_at_the_low_end_of_what_profiling_may_leave(model: str) -> None:
    """Dense, experts, experts without blocks of their own, hybrid: what only the middle would hold is not promised."""
    found = plan(model, L40S, 8192, 2, textOnly=True)
    rooms, kv = found.available_kv_bytes, found.kv
    assert rooms.low < rooms.mid - (512 << 20)
    assert kv.num_blocks == int(rooms.mid) // kv.bytes_per_block


def test_a26_sequences_times_vocabulary_take_memory() -> None:
    few, many = (plan(NINE, H100, 8192, args=[f"--max-num-seqs={n}"]) for n in (32, 1024))
    assert many.available_kv_bytes.mid < few.available_kv_bytes.mid


def test_a_tower_that_takes_the_memory_may_be_left_out() -> None:
    no = refusal(NINE, L4, 32_768, 1)
    assert "model.textOnly: false -> true" in [change.change for change in no.nearest]


def test_a28_a_refusal_offers_context_gpus_and_kv_dtype() -> None:
    no = refusal("meta-llama/Llama-3.1-70B", L40S, 131_072, 4)
    changed = {change.change.split(":")[0] for change in no.nearest}
    assert {"contextTokens", "maxGPUs", "engine.extraArgs"} <= changed


def test_a30_a34_a_token_costs_kv_heads_times_head_size() -> None:
    """Qwen3-8B: 36 layers, 8 KV heads of 128 (not 32 query heads, not the hidden size), K and V in bfloat16."""
    found = plan(QWEN8, H100, 8192)
    assert found.kv.bytes_per_block // found.kv.block_size == 36 * 8 * (128 + 128) * 2


def test_a33_a_model_without_a_configuration_is_refused_with_what_to_do() -> None:
    no = refusal("acme/secret-70B", H100, 8192)
    assert no.reason == "UnknownModel"
    assert "spec.model.configRef" in no.message


def test_a36_sequences_never_exceed_what_the_pool_holds_at_typical_length() -> None:
    found = plan(QWEN32, H100, 32_768, 1, load=load(200, prompt=3000, output=1000))
    assert int(flags(found)["--max-num-seqs"]) <= (found.kv.concurrency_at_load or 0)


def test_a37_a_users_own_length_wins_when_it_promises_enough() -> None:
    longer = plan(QWEN8, L40S, 8192, args=["--max-model-len=16384"])
    assert longer.choice.args[-1] == "--max-model-len=16384"
    assert longer.kv.max_concurrency < plan(QWEN8, L40S, 8192).kv.max_concurrency
    no = refusal(QWEN8, L40S, 8192, args=["--max-model-len=4096"])
    assert no.reason == "BadFlag"
    assert "contradicts spec.contextTokens 8192" in no.message


def test_a42_an_unknown_gpu_is_refused_with_names_near_it() -> None:
    no = refusal(QWEN8, "NVIDIA-H999-80GB-HBM3", 8192)
    assert no.reason == "UnknownGPU"
    assert H100 in no.message


def test_a45_a46_shared_memory_grows_with_the_ranks_unless_the_user_says_otherwise() -> None:
    one, four = (plan(QWEN8, L40S, 8192, args=[f"-tp={ranks}"]) for ranks in (1, 4))
    assert four.host.shared_memory_bytes == 4 * one.host.shared_memory_bytes
    own = plan(QWEN8, L40S, 8192, args=["-tp=4"], engine={"sharedMemory": "1Gi"})
    assert own.host.shared_memory_bytes == 1 << 30


def test_a48_the_context_is_the_one_asked_for_never_the_native_one() -> None:
    assert flags(plan(NINE, H100, 4096))["--max-model-len"] == "4096"


def test_a49_the_kv_dtype_is_gated_by_family_and_gpu() -> None:
    fine = plan("openai/gpt-oss-20b", H100, 8192, args=["--kv-cache-dtype=fp8"])
    assert fine.kv.num_blocks > 0
    no = refusal("deepseek-ai/DeepSeek-V2-Lite", A100, 8192, args=["--kv-cache-dtype=fp8"])
    assert no.reason in {"NoAttentionBackend", "KVDtypeUnsupported"}


def test_fp8_kv_stays_off_unless_the_user_or_the_checkpoint_says_so() -> None:
    assert flags(plan(QWEN32, H100, 40_960, 1))["--kv-cache-dtype"] == "auto"


@pytest.mark.parametrize(
    ("version", "args", "says"),
    [
        pytest.param("0.32.0", ["--max-num-partial-prefills=2"], "does not have", id="e03 partial prefills are gone"),
        pytest.param("0.32.0", ["--max-num-sequences=2"], "max_num_seqs", id="e02 the nearest flag is named"),
        pytest.param("0.32.0", ["--swap-space", "4"], "recomputed", id="what replaced it is named"),
        pytest.param("0.12.0", ["--language-model-only"], "first seen in", id="not there yet"),
        pytest.param("0.32.0", ["--port=80"], "8000", id="what is ours is refused"),
        pytest.param("0.32.0", ["lonely"], "stands alone", id="a value without a flag"),
        pytest.param("0.32.0", ["--max-num-seqs"], "needs a value", id="a flag without a value"),
        pytest.param("0.32.0", ["--max-num-seqs=many"], "whole number", id="no number"),
        pytest.param("0.32.0", ["--enable-auto-tool-choice"], "--tool-call-parser", id="half of a pair"),
        pytest.param("0.32.0", ["--max-num-seqs=64", "--max-num-batched-tokens=32"], "at least", id="contradiction"),
    ],
)
def test_e02_e03_flags_are_checked_against_the_release(version: str, args: list[str], says: str) -> None:
    no = refusal(QWEN8, L40S, 8192, args=args, engine={"version": version})
    assert no.reason == "BadFlag", no
    assert says in no.message


def test_e06_what_an_upgrade_makes_of_the_share_is_in_the_plan() -> None:
    old, new = (plan(QWEN8, H100, 8192, engine={"version": version}) for version in ("0.19.1", "0.32.0"))
    assert (flags(old)["--gpu-memory-utilization"], flags(new)["--gpu-memory-utilization"]) == ("0.9", "0.92")
    assert old.available_kv_bytes.mid != new.available_kv_bytes.mid


@pytest.mark.parametrize(
    ("engine", "version", "says"),
    [
        pytest.param({}, "0.32.0", "newest vLLM with a table", id="nothing said"),
        pytest.param({"image": "mirror.example/vllm:v0.28.0"}, "0.28.0", "model facts", id="from the tag"),
        pytest.param({"image": "mirror.example/vllm:nightly"}, "0.32.0", "names no version", id="a tag without one"),
        pytest.param({"version": "0.40.1"}, "0.40.1", "rules of 0.32.0", id="newer than any table"),
        pytest.param(
            {"version": "0.28.0", "image": "m.example/vllm:v0.32.0"}, "0.28.0", "although the tag", id="both, unlike"
        ),
    ],
)
def test_the_engine_version_is_the_declared_one_and_doubts_are_said(
    engine: dict[str, str], version: str, says: str
) -> None:
    found = plan(QWEN8, L40S, 8192, engine=engine)
    assert found.choice.engine_version == version
    assert any(says in note for note in found.assumptions), found.assumptions


def test_a_pair_of_changes_is_offered_when_no_single_one_helps() -> None:
    """Llama 405B at 131k: one L4 node is far too small, and so is its memory with any one change."""
    no = refusal("meta-llama/Meta-Llama-3.1-405B", L4, 131_072, 1)
    assert no.nearest, no.message
    assert all(" and " in change.change or "->" in change.change for change in no.nearest)


def test_an_unreadable_model_is_refused_by_name() -> None:
    known = bundled_config(QWEN8)
    assert known is not None
    spoilt = replace(known, config={**known.config, "num_hidden_layers": "many"})
    no = answer(QWEN8, L40S, 8192, config=spoilt)
    assert getattr(no, "reason", None) == "InvalidModelConfig"
