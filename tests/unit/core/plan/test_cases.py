"""What a careful person would choose, with the reasoning beside it."""

from typing import Any

import pytest

from plimsoll.core.plan.inventory import Inventory, Stock
from plimsoll.core.plan.result import Plan
from tests.unit.core.plan.asking import A100, B200, H100, H200, L4, L40S, answer, load, plan, refusal

CHAT = {"load": load(16), "slo": {"ttft": "3s", "itl": "80ms"}}
BUSY = {"load": load(rate=4), "slo": {"ttft": "3s", "itl": "80ms"}}
LLAMA70, LLAMA70_FP8 = "meta-llama/Llama-3.3-70B-Instruct", "nvidia/Llama-3.3-70B-Instruct-FP8"
NINE, QWEN32 = "Qwen/Qwen3.5-9B", "Qwen/Qwen3-32B"


@pytest.mark.parametrize(
    ("model", "gpu", "context", "shape"),
    [
        # 16.7 GiB of weights leave about 3 GiB of an L4: 32k needs 17 KV and 6 state blocks of 16.5 MiB each a group.
        pytest.param(NINE, L4, 32_768, "TP1", id="9B at 32k fits one L4"),
        pytest.param(NINE, L4, 131_072, "TP2", id="9B at 131k needs 4.2 GiB beside the weights: two L4"),
        pytest.param(NINE, L4, 262_144, "TP2", id="9B at 262k: half the weights leave 9 GiB a GPU"),
        # From 44 GiB on, one GPU holds the longest context with room to spare.
        *(
            pytest.param(NINE, gpu, context, "TP1", id=f"9B at {context} on one {gpu}")
            for gpu in (L40S, A100, H100)
            for context in (32_768, 131_072, 262_144)
        ),
        pytest.param(QWEN32, L40S, 32_768, "TP2", id="61 GiB of weights on 44 GiB GPUs"),
        pytest.param(QWEN32, H100, 32_768, "TP1", id="61 of 73 GiB are weights: 8 GiB of KV fit a smaller step"),
        pytest.param(LLAMA70, A100, 32_768, "TP2", id="131 GiB and 5 a GPU: two A100, share raised"),
        pytest.param(LLAMA70, H200, 32_768, "TP2", id="131 GiB of weights leave nothing of one H200's 138"),
        pytest.param(LLAMA70_FP8, H100, 32_768, "TP1", id="67 of 75 GiB, fp8 KV: one H100"),
        pytest.param(LLAMA70_FP8, L40S, 32_768, "TP2", id="67 GiB on two L40S, share raised"),
        pytest.param(
            "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", H100, 32_768, "TP2", id="67 GiB, bf16 KV: two H100"
        ),
        pytest.param("openai/gpt-oss-120b", H100, 131_072, "TP1", id="mxfp4 experts: 61 GiB on one H100"),
        pytest.param("openai/gpt-oss-120b", L40S, 131_072, "TP2", id="mxfp4 experts: 61 GiB on two L40S"),
        pytest.param("Qwen/Qwen3-235B-A22B", H200, 32_768, "TP4", id="438 GiB in bf16 over four H200"),
        pytest.param("Qwen/Qwen3-235B-A22B", H100, 32_768, "TP8", id="438 GiB in bf16 over eight H100"),
        pytest.param("Qwen/Qwen3-235B-A22B-FP8", H100, 32_768, "TP4", id="220 GiB over four H100"),
        pytest.param("Qwen/Qwen3-235B-A22B-FP8", H200, 32_768, "TP2", id="220 GiB over two H200"),
        pytest.param("deepseek-ai/DeepSeek-V3.2", H200, 65_536, "TP8", id="642 GiB over eight H200"),
        pytest.param("deepseek-ai/DeepSeek-V3.2", H100, 65_536, "TP8 PP2", id="642 GiB are more than one H100 node"),
        pytest.param("moonshotai/Kimi-K2-Instruct", B200, 65_536, "TP8", id="about 1 TB over eight B200"),
        pytest.param("moonshotai/Kimi-K2-Instruct", H200, 65_536, "TP8", id="about 960 GiB over eight H200"),
        pytest.param("zai-org/GLM-4.6", H200, 65_536, "TP8", id="bf16 355B over eight H200"),
        pytest.param("zai-org/GLM-4.6", H100, 65_536, "TP8 PP2", id="662 GiB are more than one H100 node"),
        pytest.param("google/gemma-3-27b-it", L40S, 65_536, "TP2", id="51 GiB on two L40S"),
        pytest.param("google/gemma-3-27b-it", H100, 65_536, "TP1", id="51 GiB on one H100, five of six layers slide"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", H100, 131_072, "TP1", id="Nemotron on one H100"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", L40S, 131_072, "TP2", id="Nemotron on two L40S"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", H100, 32_768, "TP2", id="87 GiB on two H100"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", L40S, 32_768, "TP4", id="87 GiB: two L40S hold 88 in all"),
        pytest.param("Qwen/Qwen3-VL-8B-Instruct", L40S, 32_768, "TP1", id="a vision model with its tower on one L40S"),
        pytest.param("Qwen/Qwen3-VL-8B-Instruct", L4, 32_768, "TP2", id="a vision model with its tower on two L4"),
        # 10 KV heads: 1, 2, 5 and 10 ranks; 27 GiB of weights need two L4.
        pytest.param("microsoft/phi-4", L4, 16_384, "TP2", id="phi-4 stops at TP2"),
    ],
)
def test_context_alone_takes_the_smallest_shape(model: str, gpu: str, context: int, shape: str) -> None:
    choice = plan(model, gpu, context, 64, textOnly="VL" not in model).choice
    stages = f" PP{choice.pipeline_parallel}" if choice.pipeline_parallel > 1 else ""
    assert f"TP{choice.tensor_parallel}{stages}" == shape
    assert (choice.data_parallel, choice.decode_context_parallel, choice.replicas) == (1, 1, 1)


@pytest.mark.parametrize("asked", [CHAT, BUSY], ids=["16 at once", "4 a second"])
@pytest.mark.parametrize(
    ("model", "gpus", "context"),
    [
        pytest.param(NINE, (L40S, H100), 32_768, id="Qwen3.5-9B"),
        pytest.param(QWEN32, (L40S, H100), 32_768, id="Qwen3-32B"),
        pytest.param(LLAMA70, (A100, H100), 32_768, id="Llama 70B"),
        pytest.param(LLAMA70_FP8, (H100, H200), 32_768, id="Llama 70B fp8"),
        pytest.param("openai/gpt-oss-120b", (A100, H100), 131_072, id="gpt-oss-120b"),
        pytest.param("Qwen/Qwen3-235B-A22B", (H100, H200), 32_768, id="Qwen3-235B"),
        pytest.param("zai-org/GLM-4.6", (H200, B200), 65_536, id="GLM 4.6"),
        pytest.param("deepseek-ai/DeepSeek-V3.2", (H200, B200), 65_536, id="DeepSeek V3.2"),
        pytest.param("moonshotai/Kimi-K2-Instruct", (H200, B200), 65_536, id="Kimi K2"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", (L40S, H100), 131_072, id="Nemotron 3 Nano"),
        pytest.param("google/gemma-3-27b-it", (L40S, H100), 65_536, id="Gemma 3 27B"),
        pytest.param("mistralai/Mixtral-8x7B-v0.1", (L40S, H100), 32_768, id="Mixtral"),
        pytest.param("Qwen/Qwen3-VL-8B-Instruct", (L4, L40S), 32_768, id="Qwen3-VL"),
    ],
)
def test_a_load_is_held_within_its_targets(
    model: str, gpus: tuple[str, ...], context: int, asked: dict[str, Any]
) -> None:
    for gpu in gpus:
        found = plan(model, gpu, context, 64, **asked)
        assert found.slo_met == "yes"
        assert found.latency["ttftMs"].high <= 3000
        assert found.latency["itlMs"].high <= 80
        assert found.kv.concurrency_at_load is not None
        if "concurrency" in asked["load"]:
            engines = found.choice.replicas * found.choice.engines_per_replica
            assert found.kv.concurrency_at_load * engines >= 16


def test_of_several_products_the_cheapest_that_meets_the_targets_wins() -> None:
    """An L40S costs less, but reads 61 GiB of weights too slowly for 30 ms however many share them."""
    asked = {"load": load(4), "slo": {"itl": "30ms"}}
    alone = plan(QWEN32, L40S, 32_768, 16, **asked)
    both = plan(QWEN32, [L40S, H100], 32_768, 16, **asked)
    assert alone.slo_met == "no"
    assert any("bandwidth" in note for note in alone.assumptions if note.startswith("limit: "))
    assert (both.choice.gpu, both.slo_met) == (H100, "yes")


def test_prices_decide_when_every_product_has_one() -> None:
    """By memory an L40S is the cheaper; with a price table it is what the table says."""
    by_memory = plan("Qwen/Qwen3-8B", [L40S, H100], 8192)
    priced = plan(
        "Qwen/Qwen3-8B", [L40S, H100], 8192, inventory=Inventory({L40S: Stock(price=3.0), H100: Stock(price=2.0)})
    )
    assert (by_memory.choice.gpu, priced.choice.gpu) == (L40S, H100)
    assert any("price table" in note and "no price table" not in note for note in priced.assumptions)


def test_latency_takes_more_gpus_than_balanced() -> None:
    asked = {"load": load(4), "slo": {"itl": "60ms"}}
    calm = plan("Qwen/Qwen3-8B", H100, 32_768, 8, **asked)
    fast = plan("Qwen/Qwen3-8B", H100, 32_768, 8, objective="Latency", **asked)
    assert calm.choice.gpus_per_replica == 1
    assert fast.choice.tensor_parallel > 1
    assert fast.latency["itlMs"].mid < calm.latency["itlMs"].mid


def test_more_traffic_takes_more_replicas_before_larger_ones() -> None:
    """Two small replicas cost what one of twice the size does: the simpler parallelism wins the tie."""
    counts = [plan("Qwen/Qwen3-8B", H100, 8192, 16, load=load(n), slo={"itl": "40ms"}).choice for n in (8, 64, 256)]
    assert [choice.tensor_parallel for choice in counts] == [1, 1, 1]
    assert counts[0].replicas < counts[1].replicas < counts[2].replicas


@pytest.mark.parametrize("gpus", [1, 7])
def test_a_pool_is_never_exceeded(gpus: int) -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 8192, gpus, load=load(900), slo={"itl": "50ms"})
    assert found.choice.replicas * found.choice.gpus_per_replica <= gpus
    assert found.slo_met == "no"
    assert any(f"{gpus} GPUs allowed" in note for note in found.assumptions)


def test_nodes_of_three_gpus_take_three_ranks_where_everything_divides() -> None:
    """24 query and 4 KV heads (Qwen3.5-27B): 3 does not divide 4 and 4 does not divide 3, so two stages or TP2 serve.

    Qwen2.5-14B has 40 heads: TP3 is out; on three-GPU nodes TP2 is the largest.
    """
    three = Inventory({L4: Stock(gpus_per_node=3)})
    found = plan("Qwen/Qwen2.5-14B-Instruct", L4, 8192, 8, inventory=three)
    assert (found.choice.tensor_parallel, found.choice.nodes_per_replica) == (2, 1)
    big = answer("Qwen/Qwen3-32B", L4, 8192, 12, inventory=three)
    assert isinstance(big, Plan)
    assert big.choice.gpus_per_replica // big.choice.nodes_per_replica <= 3


def test_phi4_stops_at_two_ranks_and_says_which_divisor_fails() -> None:
    found = plan("microsoft/phi-4", L4, 16_384, 8)
    why = {r.choice: r.message for r in found.rejected}
    assert found.choice.tensor_parallel == 2
    larger = refusal("microsoft/phi-4", "NVIDIA-L4", 16_384, 8, args=["--tensor-parallel-size=4"])
    assert larger.reason == "HeadsNotDivisible"
    assert "10 KV heads" in larger.message
    assert why


def test_a_tower_whose_heads_do_not_divide_is_no_obstacle() -> None:
    """SigLIP has 16 heads of 1152/16 and 4304 columns; the decoder's heads alone decide."""
    found = plan("google/gemma-3-27b-it", H100, 32_768, 8, objective="Latency", load=load(2))
    assert found.choice.tensor_parallel in {4, 8}


def test_block_quantised_experts_stay_whole_where_a_share_would_break_the_block() -> None:
    """768 columns an expert: over four ranks 192, no multiple of 128."""
    found = plan("Qwen/Qwen3-30B-A3B-FP8", L4, 8192, 8, args=[], objective="Latency", load=load(2))
    experts_whole = found.choice.expert_parallel
    assert experts_whole == (found.choice.tensor_parallel >= 4)


def test_data_parallel_attention_where_ranks_would_hold_the_same_latents() -> None:
    """MLA latents are whole on every rank: with TP8 the pool is that of one GPU, with eight engines eight times it."""
    args = ["--tensor-parallel-size=1", "--data-parallel-size=8", "--enable-expert-parallel"]
    engines = plan("deepseek-ai/DeepSeek-V3", B200, 65_536, 8, args=args)
    ranks = plan("deepseek-ai/DeepSeek-V3", B200, 65_536, 8, args=["--tensor-parallel-size=8"])
    assert engines.choice.engines_per_replica == 8
    assert engines.kv.tokens * 8 > 4 * ranks.kv.tokens


def test_without_a_load_one_request_at_a_time_is_planned_and_said() -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 32_768)
    assert found.slo_met == "unknown"
    assert any(note.startswith("load: no concurrency") for note in found.assumptions)
    assert any("1024 prompt and 256 output" in note for note in found.assumptions)


def test_a_shared_prefix_is_stored_once_an_engine() -> None:
    shared = load(64, prompt=6000, output=200) | {"sharedPrefixTokens": 4000}
    alone = plan("Qwen/Qwen3-8B", L40S, 8192, 8, load=load(64, prompt=6000, output=200))
    together = plan("Qwen/Qwen3-8B", L40S, 8192, 8, load=shared)
    assert (together.kv.concurrency_at_load or 0) > 2 * (alone.kv.concurrency_at_load or 0)
    assert together.choice.replicas <= alone.choice.replicas


def test_fixed_replicas_are_what_the_user_says() -> None:
    found = plan("Qwen/Qwen3-8B", L40S, 8192, 8, scaling={"mode": "Fixed"}, replicas=3)
    assert found.choice.replicas == 3
    capped = plan("Qwen/Qwen3-8B", L40S, 8192, 2, scaling={"mode": "Fixed"}, replicas=3)
    assert capped.choice.replicas == 2


def test_what_was_not_chosen_is_weighed_as_it_was_whatever_count_is_set() -> None:
    """Found by a walk of the rig: with two replicas set, "at least 2 GPUs, cost 90 against 90" was called costlier."""
    one, two = (plan(NINE, L40S, 32_768, scaling={"mode": "Fixed"}, replicas=count) for count in (1, 2))
    assert (one.choice.replicas, two.choice.replicas) == (1, 2)
    assert one.rejected == two.rejected != ()
