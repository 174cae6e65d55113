"""How many bytes a matrix takes in each format, and which matrices a checkpoint leaves alone."""

from dataclasses import replace

import pytest

from plimsoll.core.memory.checkpoint import likely_quantisations
from plimsoll.core.memory.formats import EIGHT_BIT_TENSOR, MXFP4, NVFP4, Format, fp8_block, grouped, plain
from plimsoll.core.memory.scheme import read_scheme
from plimsoll.core.memory.skips import Skips, canonical
from plimsoll.core.memory.tensors import Cut, Padding, Ranks, Tensor
from plimsoll.core.memory.weights import expert_padding
from plimsoll.facts.models import Quantisation, read_model

MLP = Tensor("layers.3.mlp.up_proj", 4096, 1024, Cut.OUTPUTS)
QUERY = Tensor("layers.3.self_attn.q_proj", 4096, 1024, Cut.OUTPUTS)
EXPERT = Tensor("layers.3.mlp.experts.0.up_proj", 256, 512, Cut.EXPERT_OUTPUTS, 8)
HEAD = Tensor("lm_head", 32000, 1024, Cut.VOCABULARY, linear=False)


@pytest.mark.parametrize(
    ("fmt", "bytes_per_element"),
    [
        pytest.param(plain(2), 2, id="bfloat16"),
        pytest.param(EIGHT_BIT_TENSOR, 1, id="fp8 with one scale"),
        pytest.param(fp8_block(128, 128), 1 + 4 / 16384, id="fp8 in blocks"),
        pytest.param(grouped(4, 128, zero_points=True), 0.5 + 2 / 128 + 0.5 / 128, id="AWQ"),
        pytest.param(grouped(4, 32, zero_points=False), 0.5 + 2 / 32, id="int4 in groups of 32"),
        pytest.param(NVFP4, 0.5 + 1 / 16, id="NVFP4"),
        pytest.param(MXFP4, 0.5 + 1 / 32, id="MXFP4"),
    ],
)
def test_bytes_per_element(fmt: Format, bytes_per_element: float) -> None:
    assert fmt.bytes(4096, 4096) == pytest.approx(4096 * 4096 * bytes_per_element, abs=8)


@pytest.mark.parametrize(
    ("written", "path", "covered"),
    [
        ("lm_head", "lm_head", True),
        ("model.layers.3.mlp", "layers.3.mlp.up_proj", True),
        ("model.layers.3.mlp", "layers.31.mlp.up_proj", False),
        ("gate", "layers.3.mlp.gate", True),
        ("gate", "layers.3.mlp.gate_proj", False),
        ("language_model.model.layers.3.self_attn*", "layers.3.self_attn.o_proj", True),
        ("*.ffn.shared_experts.*", "layers.3.mlp.shared_experts.up_proj", True),
        ("re:.*self_attn.*", "layers.3.self_attn.o_proj", True),
        (r"re:.*mlp\.(gate|up|down)_proj.*", "layers.3.mlp.experts.0.up_proj", False),
        ("model.layers.3.block_sparse_moe.gate", "layers.3.mlp.gate", True),
        ("model.vision_tower*", "vision.blocks.1.mlp.up", True),
    ],
)
def test_skipped_modules(written: str, path: str, covered: bool) -> None:
    assert Skips.read([written]).covers(path) is covered


def bits(config: dict[str, object], method: str, tensor: Tensor) -> float:
    return read_scheme(Quantisation(method, None, config), 2).format_of(tensor).bits


def test_fp8_spares_the_head_and_named_modules() -> None:
    config: dict[str, object] = {"modules_to_not_convert": ["model.layers.3.self_attn"]}
    assert [bits(config, "fp8", tensor) for tensor in (MLP, QUERY, EXPERT, HEAD)] == [8, 16, 8, 16]


def test_mxfp4_is_for_experts() -> None:
    assert [bits({}, "gpt_oss_mxfp4", tensor) for tensor in (MLP, EXPERT)] == [16, 4]


def test_a_mixed_checkpoint_lists_its_modules() -> None:
    config: dict[str, object] = {
        "quantized_layers": {
            "model.layers.3.mlp.experts": {"quant_algo": "NVFP4"},
            "model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
        }
    }
    assert [bits(config, "modelopt_mixed", tensor) for tensor in (MLP, QUERY, EXPERT)] == [16, 8, 4]


def test_compressed_tensors_by_pattern() -> None:
    group = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
    config: dict[str, object] = {"config_groups": {"group_0": group}, "ignore": ["lm_head"]}
    assert [bits(config, "compressed-tensors", tensor) for tensor in (MLP, QUERY)] == [16, 4]


def test_heads_are_repeated_once_ranks_outnumber_them() -> None:
    key = Tensor("k", 4 * 128, 1024, Cut.HEADS, unit=128)
    assert [key.on_rank(Ranks(tp), Padding())[0] for tp in (1, 2, 4, 8)] == [512, 256, 128, 128]


def test_the_vocabulary_is_padded_before_it_is_cut() -> None:
    assert Tensor("e", 49155, 8, Cut.VOCABULARY).on_rank(Ranks(4), Padding()) == (49216 // 4, 8, 1)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


@pytest.mark.parametrize(
    ("flag", "has_fp8", "methods"),
    [
        pytest.param(None, True, [None], id="nothing said"),
        pytest.param("fp8", True, ["fp8"], id="quantised while loading"),
        pytest.param("compressed-tensors", True, ["8", "4"], id="8 bits are likelier where fp8 computes"),
        pytest.param("compressed-tensors", False, ["4", "8"], id="4 bits where it does not"),
    ],
)
def test_formats_that_only_a_flag_names(flag: str | None, has_fp8: bool, methods: list[str | None]) -> None:
    found = likely_quantisations(read_model(LLAMA), flag, has_fp8=has_fp8)
    if flag == "compressed-tensors":
        groups = [each.config["config_groups"] for each in found]
        assert [str(group["group_0"]["weights"]["num_bits"]) for group in groups] == methods  # type: ignore[index]
    else:
        assert [each.method for each in found] == methods


def test_the_configuration_wins_over_the_flag_but_not_over_a_requantised_file() -> None:
    facts = read_model({**LLAMA, "quantization_config": {"quant_method": "fp8"}})
    assert likely_quantisations(facts, "awq", has_fp8=True)[0].method == "fp8"
    assert likely_quantisations(facts, "modelopt_fp4", has_fp8=True)[0].method == "modelopt_fp4"


LINEAR = Tensor("layers.3.self_attn.o_proj", 4096, 4096, Cut.INPUTS)


def per_element(config: dict[str, object], method: str, tensor: Tensor = LINEAR) -> float:
    """Bytes of an element, scales included."""
    fmt = read_scheme(Quantisation(method, None, config), 2).format_of(tensor)
    return fmt.bytes(tensor.outputs, tensor.inputs) / (tensor.outputs * tensor.inputs)


BLOCKS, CHANNELS = 1 + 4 / 128**2, 1 + 4 / 4096


def group(**weights: object) -> dict[str, object]:
    return {"config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


@pytest.mark.parametrize(
    ("method", "config", "size"),
    [
        pytest.param("fp8", {}, 1, id="one scale for all"),
        pytest.param("fp8", {"weight_block_size": [128, 128]}, BLOCKS, id="one a block"),
        pytest.param("fp8_per_block", {}, BLOCKS, id="made in blocks at start"),
        pytest.param("awq", {"bits": 4, "group_size": 64, "zero_point": True}, 0.5 + 2.5 / 64, id="zero points"),
        pytest.param("awq", {"w_bit": 4, "q_group_size": 64, "zero_point": False}, 0.5 + 2 / 64, id="other words"),
        pytest.param("gptq", {"bits": 8, "group_size": 64, "sym": True}, 1 + 2 / 64, id="symmetric"),
        pytest.param("gptq", {"bits": 4, "group_size": 64, "sym": False}, 0.5 + 2.5 / 64, id="asymmetric"),
        pytest.param("gptq", {"sym": True}, 0.5 + 2 / 128, id="four bits in groups of 128"),
        pytest.param("modelopt", {"quant_algo": "FP8"}, 1, id="ModelOpt's fp8"),
        pytest.param("modelopt", {"quant_algo": "FP8_PB_WO"}, BLOCKS, id="ModelOpt's blocks"),
        pytest.param("modelopt", {}, 1, id="ModelOpt's usual"),
        pytest.param("modelopt_fp4", {}, 0.5 + 1 / 16, id="ModelOpt's four bits"),
        pytest.param("modelopt", {"quantization": {"quant_algo": "NVFP4"}}, 0.5 + 1 / 16, id="in a part of its own"),
        pytest.param("bitsandbytes", {}, 0.5 + 2 / 64, id="four bits"),
        pytest.param("quark", {"bits": 4}, 0.5 + 2 / 128, id="bits alone"),
        pytest.param("quark", {}, 2, id="nothing is said"),
        pytest.param("mxfp4", group(num_bits=4, type="int", group_size=64), 0.5 + 2 / 64, id="with groups"),
        pytest.param("mxfp4", {}, 2, id="without them experts only"),
        pytest.param("compressed-tensors", group(num_bits=4, type="int", group_size=64), 0.5 + 2 / 64, id="int4"),
        pytest.param("compressed-tensors", group(num_bits=4, type="int", group_size=64, symmetric=False),
                     0.5 + 2.5 / 64, id="int4 with zero points"),
        pytest.param("compressed-tensors", group(num_bits=4, type="float", group_size=16), 0.5 + 1 / 16, id="NVFP4"),
        pytest.param("compressed-tensors", {**group(num_bits=4, type="float"), "format": "mxfp4-pack-quantized"},
                     0.5 + 1 / 32, id="MXFP4"),
        pytest.param("compressed-tensors", group(num_bits=8, type="float", block_structure=[128, 128]), BLOCKS, id="8"),
    ],
)  # fmt: skip
def test_a_format_by_what_a_checkpoint_writes(method: str, config: dict[str, object], size: float) -> None:
    assert per_element(config, method) == pytest.approx(size, rel=1e-4)


@pytest.mark.parametrize(
    ("method", "config"),
    [
        ("fp8_per_channel", {}),
        ("bitsandbytes", {"load_in_8bit": True}),
        ("compressed-tensors", group(num_bits=8, type="int")),
        ("compressed-tensors", {}),
        ("compressed-tensors", {"config_groups": {"group_0": {"targets": ["Linear"]}}}),
    ],
)
def test_a_scale_a_channel(method: str, config: dict[str, object]) -> None:
    assert 1 < per_element(config, method) <= 1 + 8 / 4096


@pytest.mark.parametrize(
    ("method", "config", "expert", "other"),
    [
        ("gpt_oss_mxfp4", {}, 4, 16),
        ("experts_int8", {}, 8, 16),
        ("deepseek_v4_fp8", {}, 4, 8),
        ("deepseek_v4_fp8", {"expert_dtype": "fp8"}, 8, 8),
        ("deepseek_v4_fp8", {"moe_quant_algo": "NVFP4"}, 4, 8),
        ("modelopt_mixed", {"quantized_layers": {"lm_head": {"quant_algo": "FP8"}}}, 4, 8),
    ],
)
def test_experts_apart(method: str, config: dict[str, object], expert: int, other: int) -> None:
    assert (bits(config, method, EXPERT), bits(config, method, MLP)) == (expert, other)


def test_patterns_are_tried_before_the_rest() -> None:
    four = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}
    eight = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}
    config: dict[str, object] = {"config_groups": {"a": four, "b": eight}}
    assert [bits(config, "compressed-tensors", tensor) for tensor in (QUERY, MLP, HEAD)] == [4, 8, 16]


def test_what_is_not_quantised_may_have_a_size_of_its_own() -> None:
    router = Tensor("layers.3.mlp.gate", 8, 64, linear=False, element_bytes=4)
    for config, method in (({}, "fp8"), ({"quantized_layers": {"layers.9": {"quant_algo": "FP8"}}}, "modelopt_mixed")):
        assert bits(dict(config), method, router) == 32


@pytest.mark.parametrize(
    ("config", "apart"),
    [
        ({}, False),
        ({"ignore": ["lm_head"]}, False),
        ({"ignore": ["model.layers.3.mlp"]}, True),
        ({"ignore": ["re:.*layers\\.3\\..*"]}, True),
        ({"config_groups": {"a": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 4}}}}, False),
        ({"config_groups": {"a": {"targets": ["re:.*layers\\.1\\..*"], "weights": {"num_bits": 4}}}}, True),
    ],
)
def test_layers_are_told_apart_where_the_file_does(config: dict[str, object], apart: bool) -> None:
    assert read_scheme(Quantisation("compressed-tensors", None, config), 2).tells_layers_apart is apart


@pytest.mark.parametrize(
    ("written", "flag", "has_fp8", "methods"),
    [
        pytest.param("fp8", None, True, ["fp8"], id="no flag"),
        pytest.param("fp8", "awq", True, ["fp8"], id="the file's word counts"),
        pytest.param("fp8", "modelopt_fp4", True, ["modelopt_fp4"], id="but where it is quantised anew"),
        pytest.param("quark", "quark", True, ["quark"], id="the same"),
        pytest.param(None, "awq", True, ["awq"], id="the flag's"),
        pytest.param(None, "compressed-tensors", True, [8, 4], id="eight bits first where fp8 is computed"),
        pytest.param(None, "compressed-tensors", False, [4, 8], id="four first elsewhere"),
    ],
)
def test_what_a_flag_may_mean(written: str | None, flag: str | None, has_fp8: bool, methods: list[object]) -> None:
    facts = replace(read_model(LLAMA), quantisation=Quantisation(written))
    found = likely_quantisations(facts, flag, has_fp8=has_fp8)
    if isinstance(methods[0], str):
        assert [each.method for each in found] == methods
        return
    weights = [each.config["config_groups"]["group_0"]["weights"] for each in found]  # type: ignore[index]
    assert [each["num_bits"] for each in weights] == methods
    assert {each["num_bits"]: (each["group_size"], each["symmetric"]) for each in weights} == {
        8: (None, True),
        4: (128, True),
    }


@pytest.mark.parametrize(
    ("fmt", "capability", "padding"),
    [
        (MXFP4, (9, 0), Padding(128, 128)),
        (MXFP4, (10, 0), Padding(256, 128)),
        (plain(2), (10, 0), Padding(1, 128)),
        (plain(2), (9, 0), Padding()),
        (plain(4), (10, 0), Padding()),
        (NVFP4, (10, 0), Padding()),
    ],
)
def test_what_expert_kernels_round_up_to(fmt: Format, capability: tuple[int, int], padding: Padding) -> None:
    assert expert_padding(fmt, capability) == padding


@pytest.mark.parametrize(("group", "scales"), [(128, 4096 * 32), (0, 4096), (-1, 4096)])
def test_scales_of_a_grouped_matrix(group: int, scales: int) -> None:
    assert grouped(4, group, zero_points=False).bytes(4096, 4096) == 4096 * 4096 // 2 + 2 * scales


def test_scales_of_blocks_count_blocks_that_are_begun() -> None:
    assert fp8_block(128, 128).bytes(129, 128) == 129 * 128 + 2 * 4


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("layers.3.mlp", "layers.3.mlp"),
        ("model.layers.3.mlp", "layers.3.mlp"),
        ("vision_tower.layers.3.mlp", "vision.vision_tower.layers.3.mlp"),
        ("model.visual.layers.3.mlp", "vision.model.visual.layers.3.mlp"),
        ("model.layers.3.block_sparse_moe.gate", "layers.3.mlp.gate"),
        ("lm_head", "lm_head"),
    ],
)
def test_names_of_modules_in_our_spelling(written: str, path: str) -> None:
    assert canonical(written) == path


def test_a_module_goes_with_its_parents_down_to_the_first() -> None:
    """What covers a root covers all below it."""
    for written in ("layers.3.mlp.up_proj", "layers.3.mlp", "layers.3", "re:model"):
        assert Skips.read([written]).covers("layers.3.mlp.up_proj"), written
    for written in ("layers.30", "layers.3.mlp.up", "layers.3.mlp.up_proj.weight"):
        assert not Skips.read([written]).covers("layers.3.mlp.up_proj"), written
    assert Skips.read(["layer*"]).covers("layers.3.mlp.up_proj")
    assert Skips.read(["layers"]).covers("layers.3.mlp.up_proj")
