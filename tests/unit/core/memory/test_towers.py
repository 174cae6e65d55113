"""Towers that see and hear: sizes as their files give them, and the matrices of blocks and projectors."""

from collections.abc import Iterable
from typing import Any

import pytest

from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.core.memory.towers import Tower, read_tower, tower_tensors
from plimsoll.facts.fields import Fields

VISION: dict[str, Any] = {"depth": 2, "hidden_size": 48, "num_heads": 4, "intermediate_size": 90}
O, I, N = Cut.OUTPUTS, Cut.INPUTS, Cut.NONE  # noqa: E741


def top(vision: dict[str, Any] | None = None, model_type: str = "made_up", **more: Any) -> Fields:
    return Fields({**({"vision_config": vision} if vision is not None else {}), **more}, "", model_type)


def tower(**changes: Any) -> Tower:
    found = read_tower(top({**VISION, **changes}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("changes", "field", "expect"),
    [
        ({}, "query_width", 48),
        ({"head_dim": 16}, "query_width", 64),
        ({"num_query_groups": 2}, "query_width", 256),
        ({"qkv_hidden_size": 80}, "query_width", 80),
        ({}, "kv_width", 48),
        ({"num_key_value_heads": 2}, "kv_width", 24),
        ({}, "patch_inputs", 3 * 14 * 14),
        ({"patch_size": 4, "in_channels": 1, "temporal_patch_size": 2}, "patch_inputs", 2 * 16),
        ({}, "intermediate", 90),
        ({"intermediate_size": None}, "intermediate", 192),
        ({"intermediate_size": None, "mlp_ratio": 2.5}, "intermediate", 120),
        ({}, "positions", 0),
        ({"image_size": 60}, "positions", 16),
        ({"image_size": 60, "rope_parameters": {}}, "positions", 0),
        ({"image_size": 60, "num_position_embeddings": 7}, "positions", 7),
        ({"image_size": 60, "position_embedding_size": 5}, "positions", 10),
        ({}, "merge", 1),
        ({"spatial_merge_size": 3}, "merge", 3),
        ({"spatial_merge_size": 3, "merge_kernel_size": [2, 2]}, "merge", 2),
        ({}, "gated", False),
        ({"model_type": "pixtral"}, "gated", True),
        ({}, "whole", False),
        ({"model_type": "gemma4_vision"}, "whole", True),
    ],
)
def test_sizes_of_a_tower(changes: dict[str, Any], field: str, expect: object) -> None:
    assert getattr(tower(**changes), field) == expect


def test_a_tower_of_usual_heads() -> None:
    found = read_tower(top({"depth": 2, "hidden_size": 48}, spatial_merge_size=4))
    assert found is not None
    assert (found.query_width, found.merge) == (48, 4), "sixteen heads of three; the wrapper's merging"


@pytest.mark.parametrize("vision", [None, {}, {"depth": 2}, {"hidden_size": 48}])
def test_what_is_not_described_is_no_tower(vision: dict[str, Any] | None) -> None:
    assert read_tower(top(vision)) is None


def test_a_wrapper_that_describes_none_has_its_classs() -> None:
    found = read_tower(top(model_type="llava"))
    assert found is not None
    assert (found.depth, found.hidden, found.intermediate, found.gated) == (24, 1024, 4096, False)
    assert read_tower(top(model_type="mistral3", vision_config={**VISION, "model_type": "pixtral"})) != found


def shapes(tensors: Iterable[Tensor]) -> dict[str, tuple[int, int, Cut]]:
    return {
        each.path.removeprefix("vision.") + "~" * (not each.linear): (each.outputs, each.inputs, each.cut)
        for each in tensors
    }


def block(index: int, out: Cut = O, back: Cut = I, *, gated: bool = False) -> dict[str, tuple[int, int, Cut]]:
    gate = {f"blocks.{index}.mlp.gate": (90, 48, out)} if gated else {}
    return {
        **{f"blocks.{index}.attn.{name}": (48, 48, out) for name in "qkv"},
        f"blocks.{index}.attn.proj": (48, 48, back),
        **gate,
        f"blocks.{index}.mlp.up": (90, 48, out),
        f"blocks.{index}.mlp.down": (48, 90, back),
    }


PATCHES = {"patch_embed~": (48, 588, N)}


@pytest.mark.parametrize(
    ("changes", "projector"),
    [
        pytest.param({}, {"embedding_projection": (64, 48, N)}, id="one matrix"),
        pytest.param(
            {"spatial_merge_size": 2},
            {
                "multi_modal_projector.merging_layer": (48, 192, N),
                "multi_modal_projector.linear_1": (64, 48, O),
                "multi_modal_projector.linear_2": (64, 64, I),
            },
            id="Mistral's, which merges",
        ),
        pytest.param(
            {"spatial_merge_size": 2, "out_hidden_size": 60},
            {"merger.0.fc1": (192, 192, O), "merger.0.fc2": (60, 192, I)},
            id="Qwen's merger",
        ),
        pytest.param(
            {"spatial_merge_size": 2, "out_hidden_size": 60, "deepstack_visual_indexes": [5]},
            {f"merger.{n}.fc1": (192, 192, O) for n in (0, 1)} | {f"merger.{n}.fc2": (60, 192, I) for n in (0, 1)},
            id="one more a level",
        ),
        pytest.param(
            {"mm_hidden_size": 48},
            {"mm_projector.linear_1": (48, 48, N), "mm_projector.linear_2": (64, 48, N)},
            id="Kimi's",
        ),
    ],
)
def test_blocks_and_projector(changes: dict[str, Any], projector: dict[str, Any]) -> None:
    found = shapes(tower_tensors(top({**VISION, **changes}), 64))
    assert found == {**block(0), **block(1), **PATCHES, **projector}


def test_kimis_and_qwens_names_of_the_width() -> None:
    kimi = {"vt_hidden_size": 48, "vt_num_hidden_layers": 1, "vt_num_attention_heads": 4, "vt_intermediate_size": 90}
    assert shapes(tower_tensors(top(kimi), 64)) == {
        **block(0), **PATCHES, "mm_projector.linear_1": (48, 48, N), "mm_projector.linear_2": (64, 48, N),
    }  # fmt: skip
    qwen = {"embed_dim": 48, "depth": 1, "num_heads": 4, "intermediate_size": 90}
    assert shapes(tower_tensors(top(qwen), 64)) == {
        **block(0), **PATCHES, "merger.0.fc1": (48, 48, O), "merger.0.fc2": (64, 48, I),
    }  # fmt: skip


def test_towers_that_are_gated_whole_or_never_quantised() -> None:
    gated = {**VISION, "depth": 1, "model_type": "pixtral"}
    assert block(0, gated=True).items() <= shapes(tower_tensors(top(gated), 64)).items()
    whole = {**VISION, "depth": 1, "model_type": "gemma4_vision"}
    assert block(0, N, N, gated=True).items() <= shapes(tower_tensors(top(whole), 64)).items()
    plain = tower_tensors(top({**VISION, "image_size": 60}, model_type="mimo_v2"), 64)
    assert all(name.endswith("~") for name in shapes(plain))


def test_positions_are_a_table() -> None:
    assert shapes(tower_tensors(top({**VISION, "image_size": 60}), 64))["pos_embed~"] == (16, 48, N)


def test_pixels_without_an_encoder() -> None:
    vision = {"mm_embed_dim": 32, "model_patch_size": 8, "mm_posemb_size": 10}
    assert shapes(tower_tensors(top(vision), 64)) == {
        "patch_dense~": (32, 192, O), "pos_embedding~": (20, 32, N), "embedding_projection": (64, 32, N),
    }  # fmt: skip
    assert shapes(tower_tensors(top({"mm_embed_dim": 32}), 64))["patch_dense~"] == (32, 3 * 256, O)


def test_an_encoder_of_speech() -> None:
    audio: dict[str, Any] = {"encoder_layers": 1, "d_model": 16, "max_source_positions": 30, "num_mel_bins": 8}
    expect = {
        "audio.0.qkv_proj": (48, 16, O), "audio.0.out_proj": (16, 16, I), "audio.0.fc1": (64, 16, O),
        "audio.0.fc2": (16, 64, I), "audio.positions~": (30, 16, N), "audio.convolutions~": (72, 16, N),
    }  # fmt: skip
    assert shapes(tower_tensors(top(audio_config=audio), 64)) == expect
    assert shapes(tower_tensors(top(**audio), 64)) == expect, "Whisper alone"
    assert shapes(tower_tensors(top(audio_config={"encoder_layers": 1}), 64)) == {}


def test_tables_of_codes() -> None:
    audio = {
        "input_local_dim": 8, "audio_channels": 2, "speech_vocab_size": "10", "input_local_layers": 3,
        "input_local_intermediate_size": 5, "out_hidden_size": 6, "group_size": 4,
    }  # fmt: skip
    assert shapes(tower_tensors(top(audio_config=audio), 64)) == {
        "audio.speech_embeddings~": (20, 8, N), "audio.embed_tokens~": (151_936, 8, N),
        "audio.layers~": (3 * (4 * 8 + 3 * 5), 8, N), "audio.projection~": (128, 38, N),
    }  # fmt: skip
    least = shapes(tower_tensors(top(audio_config={"input_local_dim": 8}), 64))
    assert least["audio.speech_embeddings~"] == (0, 8, N)
    assert least["audio.projection~"] == (32, 8, N)
