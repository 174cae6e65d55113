"""Shapes of a replica: divisors, nodes, slices."""

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.shapes import Fixed, Shape, node_size, partition_problem, with_stages, within_a_node
from plimsoll.facts import gpus
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts, Quantisation, read_model


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


def _experts(count: int = 8, width: int = 768, block: object = (128, 128)) -> ModelFacts:
    facts = facts_of("Qwen/Qwen3-8B")
    written = Quantisation("fp8", None, {"weight_block_size": list(block) if isinstance(block, tuple) else block})
    dims = replace(facts.dims, experts=count, expert_intermediate_size=width)
    return replace(facts, dims=dims, quantisation=written)


@pytest.mark.parametrize(
    ("facts", "ranks", "whole"),
    [
        pytest.param(_experts(), 1, False, id="one rank cuts nothing"),
        pytest.param(_experts(width=700), 1, False, id="whatever the block"),
        pytest.param(_experts(), 2, False, id="three blocks a rank"),
        pytest.param(_experts(), 4, True, id="a block and a half"),
        pytest.param(_experts(width=768 + 2), 4, True, id="a width that does not divide"),
        pytest.param(_experts(count=1), 4, False, id="no experts"),
        pytest.param(_experts(block=None), 4, False, id="no blocks"),
        pytest.param(_experts(block=["a"]), 4, False, id="no number"),
    ],
)
def test_experts_stay_whole_where_a_share_would_break_a_block(facts: ModelFacts, ranks: int, whole: bool) -> None:
    found = within_a_node(facts, H100, "H100", 4, Fixed())
    plain = [shape for shape in found if shape.data_parallel == 1 and shape.tensor_parallel == ranks]
    assert [shape.expert_parallel for shape in plain] == [whole]


@pytest.mark.parametrize(
    ("changes", "ranks", "problem"),
    [
        ({}, 1, None),
        ({"query_heads": 33}, 1, None),
        ({"query_heads": 33}, 2, "attention heads 33"),
        ({"intermediate_size": 33}, 2, "intermediate_size 33"),
        ({"kv_heads": 3}, 2, "3 KV heads"),
        ({"kv_heads": 2}, 8, None),
        ({"experts": 8, "expert_intermediate_size": 33}, 2, "expert width 33"),
        ({"experts": 1, "expert_intermediate_size": 33}, 2, None),
    ],
)
def test_the_divisor_that_fails(changes: dict[str, Any], ranks: int, problem: str | None) -> None:
    facts = facts_of("Qwen/Qwen3-8B")
    found = partition_problem(replace(facts, dims=replace(facts.dims, **changes)), Shape(H100, "H100", ranks))
    assert (found is None) if problem is None else (found or "").startswith(problem)


@pytest.mark.parametrize(
    ("method", "size", "refused"),
    [("awq", 128, True), ("gptq_marlin", 128, True), ("awq", -1, False), ("awq", "128", False), ("fp8", 128, False),
     ("awq", 64, False)],
)  # fmt: skip
def test_scales_of_a_group_stay_together(method: str, size: object, refused: bool) -> None:
    """Of 12,352 columns a rank of two has 6,176: half a group of 64 over, and a quarter of 128."""
    facts = facts_of("Qwen/Qwen3-8B")
    dims = replace(facts.dims, intermediate_size=2 * 64 * 97)
    grouped = replace(facts, dims=dims, quantisation=Quantisation(method, None, {"group_size": size}))
    assert (partition_problem(grouped, Shape(H100, "H100", 2)) is not None) is refused


def test_no_stage_is_without_a_layer() -> None:
    facts = facts_of("Qwen/Qwen3-8B")
    for layers in (1, 2, 4):
        few = replace(facts, dims=replace(facts.dims, layers=layers))
        stages = {shape.pipeline_parallel for shape in with_stages(few, H100, "H100", 8, Fixed())}
        assert stages == {n for n in (2, 3, 4) if n <= layers}


def test_latents_are_cut_by_tokens_where_every_rank_would_hold_all() -> None:
    shapes = list(within_a_node(facts_of("deepseek-ai/DeepSeek-V3"), H100, "H100", 4, Fixed()))
    assert [shape.decode_context_parallel for shape in shapes if shape.decode_context_parallel > 1] == [2, 4]
