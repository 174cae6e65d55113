"""What vLLM makes of flags that were left open, release by release."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv import EngineOptions, Refusal, Speculation, plan_layout, resolve
from plimsoll.core.kv.layout import stages
from plimsoll.core.kv.resolve import Resolved, resolve_batch
from plimsoll.core.kv.rules import rules_of
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import CrossAttention, Layer, ModelFacts, read_model
from tests.unit.core.kv.recorded import bundled_facts
from tests.unit.core.kv.test_layouts import LLAMA, options

TURING, AMD = "Tesla-T4", "AMD_Instinct_MI300X_OAM"
FACTS = read_model(LLAMA)
CHUNKED = "meta-llama/Llama-4-Scout-17B-16E-Instruct"
HYBRID, LATENT, SLIDING = "Qwen/Qwen3.5-9B", "deepseek-ai/DeepSeek-V3.2", "google/gemma-3-27b-it"


def _on_cpu(version: str = "0.32.0", **flags: Any) -> EngineOptions:
    return replace(options(version=version, **flags), device="cpu")


def _resolved(facts: ModelFacts = FACTS, version: str = "0.32.0", **flags: Any) -> Resolved:
    return resolve(facts, options(version=version, **flags))


@pytest.mark.parametrize(
    ("asked", "steps"),
    [
        pytest.param(options(), 2, id="a step is scheduled ahead"),
        pytest.param(options(async_scheduling=False), 1, id="unless turned off"),
        pytest.param(options(pipeline_parallel=2), 3, id="beside one a stage"),
        pytest.param(options(version="0.27.0", pipeline_parallel=2), 1, id="before 0.28 one step counted"),
        pytest.param(_on_cpu(), 1, id="never on a CPU"),
        pytest.param(options(speculation=Speculation("ngram", 3)), 1, id="nor with n-grams of the CPU"),
        pytest.param(options(speculation=Speculation("ngram_gpu", 3)), 2, id="but with those of the GPU"),
        pytest.param(options(speculation=Speculation("draft_model", 3)), 2, id="with a model that drafts"),
        pytest.param(options(speculation=Speculation("eagle3", 3)), 2, id="and with EAGLE"),
    ],
)
def test_steps_whose_tokens_are_in_flight(asked: EngineOptions, steps: int) -> None:
    found = resolve(FACTS, asked)
    assert found.in_flight_tokens == steps * found.max_num_batched_tokens


@pytest.mark.parametrize(
    ("method", "modules", "tokens", "retained"),
    [
        ("mtp", 2, 2, 1),
        ("mtp", 2, 3, 2),
        ("mtp", 1, 3, 0),
        ("mtp", 2, 1, 0),
        ("eagle3", 2, 3, 0),
    ],
)
def test_a_chain_of_modules_reads_the_last_tokens_again(method: str, modules: int, tokens: int, retained: int) -> None:
    facts = replace(FACTS, draft_modules=modules)
    assert _resolved(facts, speculation=Speculation(method, tokens)).retained_tokens == retained


@pytest.mark.parametrize(
    ("version", "flags", "manages"),
    [
        pytest.param("0.32.0", {}, True, id="from 0.16"),
        pytest.param("0.15.0", {}, False, id="not before"),
        pytest.param("0.33.0", {}, False, id="and not from 0.33"),
        pytest.param("0.33.0", {"environment": {"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1"}}, True,
                     id="unless the environment says so"),
        pytest.param("0.32.0", {"environment": {"VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "0"}}, False,
                     id="or forbids it"),
        pytest.param("0.32.0", {"speculation": Speculation("eagle3", 3)}, False, id="not with EAGLE"),
        pytest.param("0.32.0", {"speculation": Speculation("ngram", 3)}, True, id="with n-grams"),
        pytest.param("0.32.0", {"disable_hybrid_manager": True}, False, id="turned off"),
        pytest.param("0.33.0", {"disable_hybrid_manager": False}, True, id="turned on"),
    ],
)  # fmt: skip
def test_chunks_may_be_managed_in_groups(version: str, flags: dict[str, Any], manages: bool) -> None:
    assert _resolved(bundled_facts(CHUNKED), version, **flags).hybrid_manager is manages


@pytest.mark.parametrize(
    ("label", "changes", "asked", "dtype"),
    [
        pytest.param("NVIDIA-L40S", {"dtype": "float32"}, "auto", "bfloat16", id="full precision is run in half"),
        pytest.param("NVIDIA-L40S", {"dtype": "float16"}, "auto", "float16", id="half precision as written"),
        pytest.param("NVIDIA-L40S", {"dtype": "half"}, "auto", "float16", id="by another name"),
        pytest.param(TURING, {"dtype": "bfloat16"}, "auto", "float16", id="no bfloat16 before Ampere"),
        pytest.param(TURING, {"model_type": "gemma3"}, "auto", "float32", id="a model that half precision breaks"),
        pytest.param(AMD, {"dtype": "bfloat16"}, "auto", "bfloat16", id="bfloat16 on AMD"),
        pytest.param("NVIDIA-L40S", {}, "half", "float16", id="as asked"),
        pytest.param("NVIDIA-L40S", {}, "float32", "float32", id="full precision if asked"),
    ],
)
def test_what_a_model_computes_in(label: str, changes: dict[str, Any], asked: str, dtype: str) -> None:
    facts = replace(FACTS, **changes)
    assert resolve(facts, options(label, dtype=asked)).dtype == dtype


@pytest.mark.parametrize(
    ("changes", "flags", "length"),
    [
        pytest.param({}, {}, 131072, id="the model's own"),
        pytest.param({}, {"max_model_len": -1}, 131072, id="the longest that fits: the model's own"),
        pytest.param({}, {"max_model_len": 131072}, 131072, id="just the model's own"),
        pytest.param({}, {"max_model_len": 200_000, "allow_long_max_model_len": True}, 200_000, id="longer with leave"),
        pytest.param({"original_max_positions": 4096}, {}, 4096, id="LongRoPE starts at its original length"),
        pytest.param({"original_max_positions": 4096}, {"max_model_len": 9000}, 9000, id="and may be longer"),
    ],
)
def test_the_context(changes: dict[str, Any], flags: dict[str, Any], length: int) -> None:
    assert _resolved(replace(FACTS, **changes), **flags).max_model_len == length


def test_without_windows_the_window_is_the_context() -> None:
    facts = bundled_facts(SLIDING)
    assert facts.window_tokens is not None
    assert _resolved(facts, disable_sliding_window=True).max_model_len == facts.window_tokens
    assert _resolved(facts).max_model_len > facts.window_tokens


@pytest.mark.parametrize(
    ("flags", "length", "batch"),
    [
        pytest.param({"max_num_seqs": 2}, 100, (200, 2), id="no more tokens than the sequences have"),
        pytest.param({"max_num_batched_tokens": 16}, 4096, (16, 16), id="no more sequences than tokens"),
        pytest.param({"max_num_batched_tokens": 16, "max_num_seqs": 32}, 4096, (16, 32), id="both as asked"),
        pytest.param(
            {"enable_chunked_prefill": False, "max_num_seqs": 8}, 100_000, (100_000, 8), id="a prompt in a piece"
        ),
    ],
)
def test_tokens_and_sequences_of_a_step(flags: dict[str, Any], length: int, batch: tuple[int, int]) -> None:
    assert resolve_batch(options(**flags), length) == batch


THREES = {"num_attention_heads": 24}


@pytest.mark.parametrize(
    ("config", "flags", "fits"),
    [
        pytest.param({}, {"tensor_parallel": 16, "decode_context_parallel": 2}, True, id="as many as heads are copied"),
        pytest.param({}, {"tensor_parallel": 16, "decode_context_parallel": 4}, False, id="more than that"),
        pytest.param({}, {"tensor_parallel": 8, "decode_context_parallel": 2}, False, id="no head is copied"),
        pytest.param(THREES, {"tensor_parallel": 24, "decode_context_parallel": 3}, True, id="three of three queries"),
        pytest.param(THREES, {"tensor_parallel": 24, "decode_context_parallel": 2}, False, id="two of three"),
        pytest.param({}, {"tensor_parallel": 32, "decode_context_parallel": 3}, False, id="does not divide the ranks"),
    ],
)  # fmt: skip
def test_ranks_that_share_a_context(config: dict[str, Any], flags: dict[str, Any], fits: bool) -> None:
    facts = read_model(LLAMA | config | {"head_dim": 128})
    if fits:
        assert resolve(facts, options(**flags))
        return
    with pytest.raises(Refusal) as caught:
        resolve(facts, options(**flags))
    assert caught.value.reason == "bad_flag"


@pytest.mark.parametrize(
    ("model", "version", "flags", "starts"),
    [
        (LATENT, "0.28.0", {}, False),
        (LATENT, "0.29.0", {}, True),
        (HYBRID, "0.11.0", {}, False),
        (HYBRID, "0.12.0", {}, True),
        (HYBRID, "0.16.0", {}, True),
        (HYBRID, "0.17.0", {}, False),
        (HYBRID, "0.19.0", {}, False),
        (HYBRID, "0.20.0", {}, True),
        (SLIDING, "0.11.0", {}, False),
        (SLIDING, "0.12.0", {}, True),
        ("Qwen/Qwen3-8B", "0.19.0", {"kv_cache_dtype": "fp8"}, False),
        ("Qwen/Qwen3-8B", "0.19.0", {"kv_cache_dtype": "bfloat16"}, True),
        ("Qwen/Qwen3-8B", "0.20.0", {"kv_cache_dtype": "fp8"}, True),
    ],
)
def test_what_builds_for_a_cpu_could_run(model: str, version: str, flags: dict[str, Any], starts: bool) -> None:
    asked = _on_cpu(version, **flags)
    if starts:
        assert resolve(bundled_facts(model), asked)
        return
    with pytest.raises(Refusal, match="CPU"):
        resolve(bundled_facts(model), asked)


@pytest.mark.parametrize("name", ["tensor_parallel", "block_size", "max_num_seqs", "num_blocks_override"])
def test_numbers_are_at_least_one(name: str) -> None:
    assert resolve(FACTS, replace(options(), **{name: 1}))  # type: ignore[arg-type]
    for value in (0, -1):
        with pytest.raises(Refusal, match=f"{name} must be at least 1, not {value}"):
            resolve(FACTS, replace(options(), **{name: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "version", "flags", "caches"),
    [
        pytest.param("Qwen/Qwen3-8B", "0.32.0", {}, True, id="decoders"),
        pytest.param("Qwen/Qwen3-8B", "0.32.0", {"enable_prefix_caching": False}, False, id="turned off"),
        pytest.param(HYBRID, "0.32.0", {}, True, id="hybrids from 0.28"),
        pytest.param(HYBRID, "0.27.0", {}, False, id="not by themselves before"),
        pytest.param(HYBRID, "0.27.0", {"enable_prefix_caching": True}, True, id="but if asked"),
        pytest.param(HYBRID, "0.14.0", {"enable_prefix_caching": True}, False, id="what a release cannot"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "0.14.0", {"enable_prefix_caching": True}, True,
                     id="Mamba's before the others"),
        pytest.param("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "0.10.2", {"enable_prefix_caching": True}, False,
                     id="and nobody's before that"),
    ],
)  # fmt: skip
def test_prefixes_are_found_again(model: str, version: str, flags: dict[str, Any], caches: bool) -> None:
    assert _resolved(bundled_facts(model), version, **flags).prefix_caching is caches


def test_with_an_encoder_nothing_is_found_again() -> None:
    facts = replace(FACTS, layers=(*FACTS.layers, Layer((CrossAttention(32, 8, 128, encoder_tokens=1500),))))
    assert not _resolved(facts, enable_prefix_caching=True).prefix_caching


def test_a_cpu_finds_no_latents_again_and_reads_a_prompt_in_a_piece() -> None:
    found = resolve(bundled_facts(LATENT), _on_cpu(max_model_len=4096))
    assert (found.prefix_caching, found.max_num_batched_tokens) == (False, 4096)
    assert resolve(bundled_facts(LATENT), _on_cpu(max_model_len=100)).max_num_batched_tokens == 2048


@pytest.mark.parametrize(
    ("rule", "first", "before", "since"),
    [
        ("nearly_equal", 11, 1.0, 1.25),
        ("nearly_equal", 19, 1.25, 1.5),
        ("state_caching", 11, "never", "mamba_only"),
        ("state_caching", 15, "mamba_only", "every_token"),
        ("state_caching", 28, "every_token", "aligned"),
        ("counts_in_flight", 28, False, True),
        ("request_check", 15, "layers", "model"),
        ("request_check", 19, "model", "stage"),
        ("reserves_null_block", 29, False, True),
        ("pads_pages", 25, False, True),
        ("pads_states", 28, False, True),
        ("chunks_in_groups", 16, False, True),
        ("chunks_in_groups", 33, True, False),
        ("state_unit_from_kernel", 20, False, True),
        ("latent_state_unit", 28, 1, 128),
        ("mamba_checkpoints", 32, False, True),
        ("gdn_checkpoints", 33, False, True),
        ("window_blocks", 25, False, True),
        ("float32_state_on_cpu", 32, False, True),
        ("flashmla_first", 19, True, False),
    ],
)
def test_a_rule_counts_from_the_release_that_has_it(rule: str, first: int, before: object, since: object) -> None:
    """As read from the wheels: a bound that slips plans a release by another one's rule."""
    assert getattr(rules_of(EngineVersion.parse(f"0.{first - 1}.0")), rule) == before
    assert getattr(rules_of(EngineVersion.parse(f"0.{first}.0")), rule) == since


@pytest.mark.parametrize(
    ("layers", "count", "sizes"),
    [
        pytest.param(32, 1, [32], id="one stage"),
        pytest.param(32, 4, [8, 8, 8, 8], id="equal parts"),
        pytest.param(33, 4, [8, 8, 9, 8], id="one over: the second-last"),
        pytest.param(35, 4, [9, 9, 9, 8], id="three over: all but the last"),
        pytest.param(4, 4, [1, 1, 1, 1], id="a layer each"),
    ],
)
def test_layers_of_each_stage(layers: int, count: int, sizes: list[int]) -> None:
    found = stages(layers, options(pipeline_parallel=count))
    assert [len(stage) for stage in found] == sizes
    assert [layer for stage in found for layer in stage] == [*range(layers)]


@pytest.mark.parametrize(
    ("layers", "flags"),
    [
        pytest.param(3, {"pipeline_parallel": 4}, id="more stages than layers"),
        pytest.param(32, {"pipeline_parallel": 2, "layer_partition": (16, 15)}, id="a layer is left over"),
        pytest.param(32, {"pipeline_parallel": 2, "layer_partition": (16, 8, 8)}, id="a stage too many"),
    ],
)
def test_stages_that_do_not_add_up(layers: int, flags: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="layers"):
        stages(layers, options(**flags))


def test_a_draft_runs_on_the_last_stage() -> None:
    draft = read_model(LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1})
    layout = plan_layout(FACTS, options(pipeline_parallel=2, speculation=Speculation("eagle3", 3, draft)))
    assert layout.stage_bytes == (16 * 65536, 17 * 65536)


def test_of_a_device_that_is_no_cuda_part_nothing_is_known() -> None:
    assert (options(AMD).on_rocm, options(AMD).capability, options(AMD).generation) == (True, (0, 0), 0)
    assert (options().on_rocm, options().capability, options().generation) == (False, (9, 0), 9)
    assert (_on_cpu().on_rocm, _on_cpu().capability) == (False, (0, 0))
    assert (options().speculative_tokens, options(speculation=Speculation("mtp", 3)).speculative_tokens) == (0, 3)
