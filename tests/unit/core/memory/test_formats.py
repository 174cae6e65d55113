"""How many bytes a matrix takes in each format, and which matrices a checkpoint leaves alone."""

import pytest

from plimsoll.core.memory.checkpoint import likely_quantisations
from plimsoll.core.memory.formats import EIGHT_BIT_TENSOR, MXFP4, NVFP4, Format, fp8_block, grouped, plain
from plimsoll.core.memory.scheme import read_scheme
from plimsoll.core.memory.skips import Skips
from plimsoll.core.memory.tensors import Cut, Padding, Ranks, Tensor
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
