"""Shapes of a replica: divisors, nodes, slices."""

import pytest

from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.shapes import Fixed, node_size, partition_problem, with_stages, within_a_node
from plimsoll.facts import gpus
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts, read_model


def facts_of(model: str) -> ModelFacts:
    found = bundled_config(model)
    assert found is not None
    return read_model(found.config, found.quant_config)


def gpu_of(name: str) -> GPU:
    found = gpus.find(name)
    assert found is not None
    return found


H100 = gpu_of("NVIDIA-H100-80GB-HBM3")


def names(model: str, node: int) -> list[str]:
    shapes = within_a_node(facts_of(model), H100, "H100", node, Fixed())
    return [str(shape).removesuffix(" on H100") for shape in shapes]


@pytest.mark.parametrize(
    ("model", "node", "expected"),
    [
        pytest.param("Qwen/Qwen3-8B", 8, ["TP1", "TP2", "TP4", "TP8"], id="dense: powers of two"),
        pytest.param("Qwen/Qwen3-8B", 1, ["TP1"], id="one GPU a node"),
        pytest.param("meta-llama/Llama-3.2-3B-Instruct", 3, ["TP1", "TP2", "TP3"], id="three GPUs: 24 heads"),
        pytest.param("Qwen/Qwen3-8B", 7, ["TP1", "TP2", "TP4"], id="seven ranks do not divide the vocabulary"),
        pytest.param(
            "Qwen/Qwen3-30B-A3B-FP8", 8,
            ["TP1", "TP2", "TP4 EP", "TP8 EP", "TP4 DP2 EP"],
            id="block-quantised experts stay whole; KV heads are not copied",
        ),
        pytest.param(
            "deepseek-ai/DeepSeek-V3", 4,
            ["TP1", "TP2", "TP4", "TP1 DP2 EP", "TP1 DP4 EP", "TP2 DCP2", "TP4 DCP4"],
            id="MLA: engines side by side, or contexts spread",
        ),
        pytest.param(
            "deepseek-ai/DeepSeek-V3.2", 2, ["TP1", "TP2", "TP1 DP2 EP"], id="sparse MLA spreads no contexts"
        ),
    ],
)  # fmt: skip
def test_shapes_on_a_node(model: str, node: int, expected: list[str]) -> None:
    assert names(model, node) == expected


@pytest.mark.parametrize(
    ("label", "known", "expected"),
    [
        ("NVIDIA-H100-80GB-HBM3", None, 8),
        ("NVIDIA-H100-80GB-HBM3", 4, 4),
        ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", None, 1),
        ("NVIDIA-L4-SHARED", None, 1),
        ("NVIDIA-A30", None, 8),
    ],
)
def test_peers_of_a_gpu(label: str, known: int | None, expected: int) -> None:
    assert node_size(gpu_of(label), label, known) == expected


def test_stages_come_smallest_first_and_whole_nodes_last() -> None:
    shapes = list(with_stages(facts_of("microsoft/phi-4"), H100, "H100", 8, Fixed()))
    assert [shape.gpus for shape in shapes] == sorted(shape.gpus for shape in shapes)
    assert all(shape.tensor_parallel <= 2 for shape in shapes)
    assert [shape.nodes for shape in shapes if shape.gpus > 8] == [2, 3, 4]


def test_what_the_user_fixed_is_the_only_shape() -> None:
    fixed = Fixed(tensor=4, pipeline=4)
    shapes = list(within_a_node(facts_of("Qwen/Qwen3-8B"), H100, "H100", 8, fixed))
    assert [(shape.gpus, shape.nodes) for shape in shapes] == [(16, 2)]
    assert not list(with_stages(facts_of("Qwen/Qwen3-8B"), H100, "H100", 8, fixed))


def test_a_group_of_scales_is_not_cut() -> None:
    """13,824 columns in groups of 128: 108 groups, which eight ranks cannot share whole."""
    found = bundled_config("meta-llama/Llama-2-13b-hf")
    assert found is not None
    quantised = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    facts = read_model({**found.config, "quantization_config": quantised})
    eight = next(s for s in within_a_node(facts, H100, "H100", 8, Fixed()) if s.tensor_parallel == 8)
    assert "group 128" in (partition_problem(facts, eight) or "")
