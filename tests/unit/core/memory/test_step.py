"""The step that an engine is profiled with, and what it and its ranks need beside weights, by made-up coefficients."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.kv import EngineOptions, Speculation
from plimsoll.core.memory import MemoryFlags, aftermath, reserve
from plimsoll.core.memory.coefficients import Coefficients
from plimsoll.core.memory.loaded import LoadedWeights, adapter_bytes, loaded_weights, ranks_of
from plimsoll.core.memory.mlps import Experts
from plimsoll.core.memory.step import Step, captured_sizes, read_step
from plimsoll.core.memory.tensors import Ranks
from plimsoll.core.memory.towers import Tower
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts, read_model
from tests.unit.core.kv.recorded import GIB, bundled_facts
from tests.unit.core.kv.test_layouts import gpu

FIT = Coefficients(
    sort_bytes_per_logit=10.0, sample_bytes_per_logit=4.0, hidden_states=2.0, layer_activations=0.5,
    encoder_activations=3.0, encoder_outputs=5.0, moe_workspace=0.25, fixed_bytes=1000, non_torch_single_bytes=7,
    non_torch_group_bytes=11, non_torch_rank_bytes=13, non_torch_before_bytes=17, graph_bytes=19, spread_reserve=0.1,
    spread_requested=0.01, spread_elsewhere=0.05, spread_bytes=23,
)  # fmt: skip
TOWER = Tower(
    depth=2, hidden=48, intermediate=96, query_width=48, kv_width=48, gated=False, patch_inputs=588, positions=0,
    merge=2, whole=False,
)  # fmt: skip
STEP = Step(
    tokens=100, sampled=10, tensor_parallel=1, world=1, version=EngineVersion.parse("0.32.0"), cuda=True, discrete=True,
    captured=6, element_bytes=2, hidden=64, vocabulary=1000, layers=4, rank_mlp_width=80, experts=None,
    rank_expert_width=0, experts_per_token=3, four_bit_experts=False, unfused_experts=False, tower=None,
    image_patches=0,
)  # fmt: skip
EXPERTS = Experts(count=8, hidden=64, intermediate=40, shared_intermediate=0)


def of(version: str = "0.32.0", **changes: Any) -> Step:
    return replace(STEP, version=EngineVersion.parse(version), **changes)


@pytest.mark.parametrize(
    ("step", "nbytes"),
    [
        pytest.param(of(), 0.5 * 100 * (3 * 80 + 4 * 64) * 2, id="three of the MLP's width, four of the hidden size"),
    ],
)
def test_tensors_of_one_layer(step: Step, nbytes: float) -> None:
    assert reserve.layer_bytes(step, FIT) == nbytes


@pytest.mark.parametrize(
    ("version", "copies"), [pytest.param("0.19.0", 4, id="copies"), pytest.param("0.18.0", 10, id="sorted before 0.19")]
)
def test_logits_beside_hidden_states(version: str, copies: int) -> None:
    assert reserve.sampler_bytes(of(version), FIT) == 10 * 1000 * (2 + copies) + 2 * 100 * 64 * 2


def test_an_encoder_holds_patches_and_hands_over_a_steps_outputs() -> None:
    seeing = of(tower=TOWER, image_patches=400)
    assert reserve.encoder_bytes(seeing, FIT) == 3 * 400 * 48 * 2
    assert reserve.encoder_output_bytes(seeing, FIT) == 5 * 100 * 64 * 2
    assert (reserve.encoder_bytes(STEP, FIT), reserve.encoder_output_bytes(STEP, FIT)) == (0, 0)


@pytest.mark.parametrize(
    ("step", "peak"),
    [
        pytest.param(of(rank_mlp_width=8000), 0.5 * 100 * (3 * 8000 + 256) * 2, id="a layer"),
        pytest.param(of(sampled=100), 100 * 1000 * 6 + 25600, id="the sampler"),
        pytest.param(of(tower=TOWER, image_patches=40_000), 3 * 40_000 * 48 * 2, id="images"),
    ],
)
def test_the_peak_is_the_largest_of_three(step: Step, peak: float) -> None:
    assert reserve.activation_bytes(step, FIT) == 1000 + peak


@pytest.mark.parametrize(
    ("changes", "both"),
    [
        pytest.param({"rank_expert_width": 40}, 2 * 40 + 64, id="gate and up; the output"),
        pytest.param({"rank_expert_width": 20}, 64 + 64, id="narrow experts: the output twice"),
        pytest.param({"rank_expert_width": 100}, 2 * 100 + 100, id="wide ones"),
        pytest.param({"rank_expert_width": 40, "four_bit_experts": True}, 0, id="four-bit kernels keep none"),
        pytest.param({"rank_expert_width": 40, "experts": None}, 0, id="a dense model"),
    ],
)
def test_two_buffers_for_the_chosen_experts(changes: dict[str, Any], both: int) -> None:
    assert reserve.moe_workspace_bytes(of(**{"experts": EXPERTS, **changes}), FIT) == 0.25 * 100 * 3 * both * 2


@pytest.mark.parametrize(
    ("step", "nbytes"),
    [
        pytest.param(of("0.18.0", world=4), 17, id="before 0.19"),
        pytest.param(of("0.19.0", world=1), 7, id="one GPU"),
        pytest.param(of("0.19.0", world=2), 11 + 2 * 13, id="a group"),
    ],
)
def test_driver_and_libraries(step: Step, nbytes: int) -> None:
    assert reserve.non_torch_bytes(step, FIT) == nbytes


@pytest.mark.parametrize(("version", "nbytes"), [("0.20.0", 0), ("0.21.0", 19 * 4 * 6)])
def test_graphs_are_set_aside_from_0_21(version: str, nbytes: int) -> None:
    assert reserve.graph_bytes(of(version), FIT) == nbytes


def test_what_is_zero_is_no_item() -> None:
    assert [item.item for item in reserve.reserve(of("0.20.0"), FIT)] == ["activations", "non_torch"]


HALF = 1 << 29


@pytest.mark.parametrize(
    ("step", "context"),
    [
        pytest.param(of(), HALF, id="one GPU"),
        pytest.param(of(world=2), 3 * HALF, id="a group"),
        pytest.param(of("0.18.0", world=2), HALF, id="a group before 0.19"),
        pytest.param(of(cuda=False, world=2), HALF // 2, id="another vendor's"),
    ],
)
def test_what_a_device_has_less_before_anybody_counts(step: Step, context: int) -> None:
    assert aftermath.context_bytes(step) == context


@pytest.mark.parametrize(
    ("step", "nbytes"),
    [
        pytest.param(of(), 0, id="from 0.21 graphs are in the budget"),
        pytest.param(of("0.20.0"), 4 * 6 * 460_000, id="before they are not"),
        pytest.param(of("0.20.0", experts=EXPERTS), 4 * 6 * 840_000, id="those of experts are larger"),
        pytest.param(of("0.20.0", cuda=False), 0, id="nothing is known of others"),
        pytest.param(of(experts=EXPERTS, unfused_experts=True, rank_expert_width=40), 2.5 * 100 * 3 * (80 + 64) * 4,
                     id="partial sums of experts"),
        pytest.param(of(experts=EXPERTS, rank_expert_width=40), 0, id="which fused kernels have not"),
    ],
)  # fmt: skip
def test_what_is_allocated_after_the_pool(step: Step, nbytes: float) -> None:
    assert aftermath.after_kv_bytes(step) == nbytes


def asked(label: str = "NVIDIA-H100-80GB-HBM3", **flags: Any) -> EngineOptions:
    return EngineOptions(device=gpu(label), **flags)


@pytest.mark.parametrize(
    ("label", "flags", "seqs", "sizes"),
    [
        pytest.param("NVIDIA-L40S", {}, 4, 3 + 1, id="1, 2, 4, 8"),
        pytest.param("NVIDIA-L40S", {}, 1, 2, id="1, 2"),
        pytest.param("NVIDIA-L40S", {}, 128, 3 + 32, id="eights up to 256"),
        pytest.param("NVIDIA-L40S", {}, 144, 3 + 32 + 2, id="then sixteens"),
        pytest.param("NVIDIA-L40S", {}, 1024, 3 + 32 + 16, id="512 at most"),
        pytest.param("NVIDIA-B200", {}, 1024, 3 + 32 + 48, id="1,024 on datacentre Blackwell"),
        pytest.param("NVIDIA-L40S", {"max_cudagraph_capture_size": 16}, 1024, 3 + 2, id="as far as asked"),
        pytest.param("NVIDIA-L40S", {"cudagraph_capture_sizes": (1, 9)}, 1024, 2, id="those that were listed"),
        pytest.param("NVIDIA-L40S", {"enforce_eager": True}, 1024, 0, id="none"),
    ],
)
def test_sizes_that_graphs_are_captured_for(label: str, flags: dict[str, Any], seqs: int, sizes: int) -> None:
    assert captured_sizes(MemoryFlags(**flags), seqs, asked(label)) == sizes


def test_draft_tokens_need_larger_graphs() -> None:
    assert captured_sizes(MemoryFlags(), 2, asked("NVIDIA-L40S", speculation=Speculation("mtp", 3))) == 3 + 2


LLAMA, MOE = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-30B-A3B"


def test_a_step_of_a_rank() -> None:
    facts = bundled_facts(LLAMA)
    step = read_step(facts, asked(tensor_parallel=4, pipeline_parallel=2), MemoryFlags())
    assert (step.tensor_parallel, step.world, step.rank_mlp_width) == (4, 8, 14336 // 4)
    assert (step.experts, step.rank_expert_width, step.experts_per_token) == (None, 0, 1)
    assert (step.cuda, step.discrete, step.tower, step.image_patches) == (True, True, None, 0)
    three = replace(facts, dims=replace(facts.dims, query_heads=36, kv_heads=12))
    assert read_step(three, asked(tensor_parallel=12), MemoryFlags()).rank_mlp_width == 1195, "the fullest rank's"


def test_experts_are_cut_or_whole() -> None:
    facts = bundled_facts(MOE)
    cut = read_step(facts, asked(tensor_parallel=4), MemoryFlags())
    whole = read_step(facts, asked(tensor_parallel=4), MemoryFlags(expert_parallel=True))
    assert (cut.rank_expert_width, whole.rank_expert_width, cut.rank_mlp_width) == (192, 768, 192)
    assert cut.experts_per_token == 8


@pytest.mark.parametrize(
    ("flags", "memory", "sampled"),
    [
        ({"max_num_seqs": 64}, {}, 64),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, {}, 32),
        ({"max_num_seqs": 64}, {"pooling": True}, 0),
    ],
)
def test_sequences_that_get_a_token(flags: dict[str, Any], memory: dict[str, Any], sampled: int) -> None:
    assert read_step(bundled_facts(LLAMA), asked(**flags), MemoryFlags(**memory)).sampled == sampled


@pytest.mark.parametrize(
    ("method", "label", "four_bits", "unfused"),
    [
        ("gpt_oss_mxfp4", "NVIDIA-H100-80GB-HBM3", True, True),
        ("gpt_oss_mxfp4", "NVIDIA-B200", True, False),
        ("modelopt_fp4", "NVIDIA-H100-80GB-HBM3", True, False),
        ("fp8", "NVIDIA-H100-80GB-HBM3", False, False),
    ],
)
def test_kernels_of_four_bit_experts(method: str, label: str, four_bits: bool, unfused: bool) -> None:
    facts = bundled_facts(MOE)
    facts = replace(facts, quantisation=replace(facts.quantisation, method=method))
    step = read_step(facts, asked(label), MemoryFlags())
    assert (step.four_bit_experts, step.unfused_experts) == (four_bits, unfused)


def test_images_are_profiled_as_large_as_they_come() -> None:
    facts = bundled_facts("Qwen/Qwen3.5-9B")
    step = read_step(facts, asked(max_num_batched_tokens=2048), MemoryFlags())
    assert step.tower is not None
    assert step.image_patches == 16384 * step.tower.merge**2
    more = read_step(facts, asked(max_num_batched_tokens=20_000), MemoryFlags())
    assert more.image_patches == 20_000 * step.tower.merge**2
    assert read_step(facts, asked(text_only=True), MemoryFlags()).tower is None
    assert read_step(facts, asked(), MemoryFlags(unprofiled_encoders=True)).tower is None


@pytest.mark.parametrize(
    ("flags", "ranks"),
    [
        pytest.param({}, Ranks(4, expert_tensor=4), id="matrices and experts are cut"),
        pytest.param({"data_parallel": 2}, Ranks(4, expert_tensor=8), id="experts over data-parallel ranks as well"),
        pytest.param({"data_parallel": 2, "expert_parallel": True}, Ranks(4, expert=8), id="whole experts"),
    ],
)
def test_ranks_that_share(flags: dict[str, Any], ranks: Ranks) -> None:
    assert ranks_of(asked(tensor_parallel=4), MemoryFlags(**flags)) == ranks


def _loaded(
    facts: ModelFacts, memory: dict[str, Any] | None = None, requested: int = 72 * GIB, **flags: Any
) -> LoadedWeights:
    return loaded_weights(facts, asked(**flags), MemoryFlags(**(memory or {})), requested)


def test_adapters_are_thin_matrices_in_slots() -> None:
    """Rank 8, two slots: 8 hidden sizes whole, 6 and three MLP widths cut, in 32 layers, two bytes each."""
    facts = bundled_facts(LLAMA)
    for parallel in (1, 2):
        wide = 8 * 4096 + (6 * 4096 + 3 * 14336) // parallel
        flags = MemoryFlags(max_loras=2, max_lora_rank=8)
        assert adapter_bytes(facts, asked(tensor_parallel=parallel), flags) == 2 * 8 * wide * 32 * 2
    assert adapter_bytes(facts, asked(), MemoryFlags()) == 0


def test_what_speculates_is_loaded_beside() -> None:
    facts = bundled_facts(LLAMA)
    draft = replace(Speculation("eagle3", 3), draft=bundled_facts("Qwen/Qwen3-0.6B"))
    (item,) = _loaded(facts, speculation=draft).beside
    assert item.item == "draft"
    assert item.bytes == pytest.approx(_loaded(bundled_facts("Qwen/Qwen3-0.6B")).bytes, rel=0.001)
    assert _loaded(facts, speculation=Speculation("ngram", 3)).beside == ()


def test_a_head_like_the_target_brings_both_vocabularies() -> None:
    facts = replace(bundled_facts(LLAMA), draft_layers=())
    (item,) = _loaded(facts, speculation=Speculation("eagle3", 3, like_target=True), tensor_parallel=2).beside
    assert (item.bytes, item.basis) == (2 * 2 * 128_256 * 4096 // 2, "assumed")


@pytest.mark.parametrize(("modules", "times"), [(0, 1), (1, 1), (3, 3)])
def test_each_module_of_a_predictor_is_loaded(modules: int, times: int) -> None:
    facts = bundled_facts(MOE)
    facts = replace(facts, draft_layers=facts.layers[:1], draft_modules=modules)
    one = replace(facts, draft_modules=1)
    (item,), (single,) = (_loaded(each, speculation=Speculation("mtp", 3)).beside for each in (facts, one))
    assert item.bytes == times * single.bytes > 0


def test_what_is_moved_to_the_host_is_not_on_the_device() -> None:
    facts = bundled_facts(LLAMA)
    known = replace(facts, weights_bytes=16_060_522_496)
    for each in (facts, known):
        whole, less = _loaded(each), _loaded(each, {"cpu_offload_bytes": 4 * GIB})
        assert whole.bytes - less.bytes == 4 * GIB
        assert _loaded(each, {"cpu_offload_bytes": 99 * GIB}).bytes == 0


def test_a_predictor_on_disk_is_no_weight_of_the_engine() -> None:
    """A file of twice the model, of which half is its one module: half of it is loaded."""
    facts = bundled_facts(MOE)
    facts = replace(facts, draft_layers=facts.layers[:1], draft_modules=1)
    rules = _loaded(facts).bytes
    (module,) = _loaded(facts, speculation=Speculation("mtp", 1)).beside
    on_disk = replace(facts, weights_bytes=rules + module.bytes)
    assert _loaded(on_disk).bytes == pytest.approx(rules, rel=0.002)


@pytest.mark.parametrize(("requested", "basis", "bits"), [(72, "assumed", 8), (7, "assumed", 4), (1, "assumed", 4)])
def test_of_two_formats_the_likelier_that_fits_is_taken(requested: int, basis: str, bits: int) -> None:
    facts = read_model({**LLAMA_CONFIG})
    found = _loaded(facts, {"quantization": "compressed-tensors"}, requested * GIB)
    plain = _loaded(facts).bytes
    assert found.item.basis == basis
    assert found.bytes == pytest.approx(plain * (0.13 + 0.87 * bits / 16), rel=0.06), "the ends are not quantised"
    assert any("how many bits" in note for note in found.assumptions)
    assert found.may_be_less == (0 if bits == 4 else pytest.approx(found.bytes * 0.4, rel=0.2))


LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_a_file_without_a_name_may_have_a_tower() -> None:
    named = _loaded(read_model(LLAMA_CONFIG))
    assert (named.may_be_more, named.may_be_less, named.assumptions, named.item.basis) == (0, 0, (), "fitted")
    for unnamed in ("architectures", "model_type"):
        config = {key: value for key, value in LLAMA_CONFIG.items() if key != unnamed}
        assert _loaded(replace(read_model(LLAMA_CONFIG), config=config)).may_be_more == 0, "one name is enough"
    found = _loaded(replace(read_model(LLAMA_CONFIG), config={}))
    assert found.may_be_more == 5 * GIB
    assert "names no architecture" in found.assumptions[0]


def test_a_guessed_width_may_be_twice_or_seven_tenths() -> None:
    config = {key: value for key, value in LLAMA_CONFIG.items() if key != "intermediate_size"}
    found = _loaded(read_model(config))
    guessed = 32 * 11008 * 4096 * 3 * 2  # as wide as the class is by itself
    assert found.item.basis == "assumed"
    assert (found.may_be_more, found.may_be_less) == (guessed, round(0.3 * guessed))
    halved = _loaded(read_model(config), pipeline_parallel=2)
    assert halved.may_be_more == guessed // 2
