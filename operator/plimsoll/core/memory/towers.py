"""Weight matrices of what sees and hears: vision towers, their projectors, audio encoders.

One rule for all: transformer blocks cut like a decoder's, a patch embedding, and a projector in one of three shapes.
Names start with ``vision.``, so that ignore lists which spare the tower are understood.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import ModelFacts

# MLPs with a gate, by the model type of the vision part.
_GATED: Final = frozenset(
    {"pixtral", "qwen2_5_vl", "exaone4_5_vision", "gemma4_vision", "glm4v", "glm4v_moe", "glm5_next_vision", "mimo_v2"}
)

# Built by transformers: not cut, every rank holds all of it.
_WHOLE: Final = frozenset({"gemma4_vision"})
# Built without quantisation, whatever the file says.
_PLAIN: Final = frozenset({"mimo_v2"})
# Width of a head where a tower groups its queries and does not say.
_GROUPED_HEAD: Final = 64

_QWEN2_VOCABULARY: Final = 151_936
# Towers of wrapper classes whose file describes none: what transformers would build.
_SIGLIP: Final = {"num_hidden_layers": 27, "hidden_size": 1152, "intermediate_size": 4304, "patch_size": 14}
_CLIP: Final = {"num_hidden_layers": 24, "hidden_size": 1024, "intermediate_size": 4096, "patch_size": 14}
_QWEN2: Final = {"depth": 32, "embed_dim": 1280, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2}
_OF_CLASS: Final[Mapping[str, Mapping[str, object]]] = {
    "qwen2_vl": _QWEN2,
    "qwen2_5_vl": {**_QWEN2, "intermediate_size": 3420, "model_type": "qwen2_5_vl"},
    "llava": _CLIP,
    "llava_next": _CLIP,
    "llava_next_video": _CLIP,
    "mistral3": {**_CLIP, "model_type": "pixtral", "spatial_merge_size": 2},
    "gemma3": _SIGLIP,
    "paligemma": _SIGLIP,
    "kimi_vl": {**_SIGLIP, "mm_hidden_size": 1152, "spatial_merge_size": 2},
    "llama4": {"num_hidden_layers": 34, "hidden_size": 1408, "intermediate_size": 5632, "patch_size": 14},
}


@dataclass(frozen=True)
class Tower:
    """Sizes of a vision tower."""

    depth: int
    hidden: int
    intermediate: int
    query_width: int
    kv_width: int
    gated: bool
    patch_inputs: int
    positions: int
    merge: int
    whole: bool


def open_wrapper(facts: ModelFacts) -> Fields:
    """The object that holds a model's towers: the file, or its ``thinker_config`` (Qwen-Omni)."""
    config = facts.config.get("thinker_config")
    config = config if isinstance(config, Mapping) else facts.config
    written = config.get("model_type")
    return Fields(config, "", written if isinstance(written, str) else "")


def vision_part(top: Fields) -> Fields | None:
    """The description of what sees: as written, else that of the wrapper's class."""
    usual = _OF_CLASS.get(top.model_type)
    return top.child("vision_config") or (Fields(usual, "vision_config") if usual else None)


def read_tower(top: Fields) -> Tower | None:
    """The vision part of a wrapper; None where there is none or it is not described."""
    vision = vision_part(top)
    if vision is None:
        return None
    depth = vision.optional_int("depth", "num_hidden_layers", "vt_num_hidden_layers")
    hidden = vision.optional_int("embed_dim", "vt_hidden_size", "hidden_size")
    if not depth or not hidden:
        return None
    heads = vision.optional_int("num_heads", "num_attention_heads", "vt_num_attention_heads") or 16
    grouped = _GROUPED_HEAD if vision.has("num_query_groups") else 0
    head_dim = vision.optional_int("head_dim") or grouped or hidden // heads
    query_width = vision.optional_int("qkv_hidden_size") or heads * head_dim
    kv_heads = vision.optional_int("num_key_value_heads") or heads
    patch = vision.optional_int("patch_size") or 14
    channels = vision.optional_int("in_channels", "in_chans", "num_channels") or 3
    return Tower(
        depth=depth,
        hidden=hidden,
        intermediate=_intermediate(vision, hidden),
        query_width=query_width,
        kv_width=query_width * kv_heads // heads,
        gated=(vision.text("model_type") or top.model_type) in _GATED,
        patch_inputs=channels * patch * patch * (vision.optional_int("temporal_patch_size") or 1),
        positions=_positions(vision, patch),
        merge=_merge(top, vision),
        whole=(vision.text("model_type") or "") in _WHOLE,
    )


def tower_tensors(top: Fields, hidden: int) -> Iterator[Tensor]:
    """Matrices of towers and projectors into a decoder of width ``hidden``."""
    found = chain(_vision(top, hidden), _audio(top))
    return (replace(tensor, linear=False) for tensor in found) if top.model_type in _PLAIN else found


def _audio(top: Fields) -> Iterator[Tensor]:
    """MiMo's encoder of speech: tables of codes, a small transformer with a vocabulary it never uses, a projection."""
    audio = top.child("audio_config") or top
    if not audio.has("input_local_dim"):
        yield from _speech_encoder(audio)
        return
    width, channels = audio.integer("input_local_dim"), audio.optional_int("audio_channels") or 1
    codes = int(str(audio.values.get("speech_vocab_size", 0))) if audio.has("speech_vocab_size") else 0
    yield Tensor("vision.audio.speech_embeddings", channels * codes, width, linear=False)
    yield Tensor("vision.audio.embed_tokens", _QWEN2_VOCABULARY, width, linear=False)
    layers, inner = (
        audio.optional_int("input_local_layers") or 0,
        audio.optional_int("input_local_intermediate_size") or 0,
    )
    yield Tensor("vision.audio.layers", layers * (4 * width + 3 * inner), width, linear=False)
    out, grouped = audio.optional_int("out_hidden_size") or 0, width * (audio.optional_int("group_size") or 1)
    yield Tensor("vision.audio.projection", 4 * grouped, grouped + out, linear=False)


def _speech_encoder(audio: Fields) -> Iterator[Tensor]:
    """Whisper's encoder, alone or as a wrapper's audio part."""
    layers, width = audio.optional_int("encoder_layers"), audio.optional_int("d_model")
    if not layers or not width:
        return
    inner = audio.optional_int("encoder_ffn_dim") or 4 * width
    for index in range(layers):
        path = f"vision.audio.{index}"
        yield Tensor(f"{path}.qkv_proj", 3 * width, width, Cut.OUTPUTS)
        yield Tensor(f"{path}.out_proj", width, width, Cut.INPUTS)
        yield Tensor(f"{path}.fc1", inner, width, Cut.OUTPUTS)
        yield Tensor(f"{path}.fc2", width, inner, Cut.INPUTS)
    yield Tensor("vision.audio.positions", audio.optional_int("max_source_positions") or 0, width, linear=False)
    bins = audio.optional_int("num_mel_bins") or 0
    yield Tensor("vision.audio.convolutions", 3 * (bins + width), width, linear=False)


def _vision(top: Fields, hidden: int) -> Iterator[Tensor]:
    tower = read_tower(top)
    if tower is None:
        yield from _patch_embedder(top, hidden)
        return
    for index in range(tower.depth):
        yield from _block(f"vision.blocks.{index}", tower)
    yield Tensor("vision.patch_embed", tower.hidden, tower.patch_inputs, linear=False)
    if tower.positions:
        yield Tensor("vision.pos_embed", tower.positions, tower.hidden, linear=False)
    yield from _projector(top, tower, hidden)


def _patch_embedder(top: Fields, hidden: int) -> Iterator[Tensor]:
    """Gemma 4's encoder-free variant: one matrix from pixels, positions, one matrix into the decoder."""
    vision = top.child("vision_config")
    if vision is None or not vision.has("mm_embed_dim"):
        return
    width, patch = vision.integer("mm_embed_dim"), vision.optional_int("model_patch_size", "patch_size") or 16
    yield Tensor("vision.patch_dense", width, 3 * patch * patch, Cut.OUTPUTS, linear=False)
    yield Tensor("vision.pos_embedding", 2 * (vision.optional_int("mm_posemb_size") or 0), width, linear=False)
    yield Tensor("vision.embedding_projection", hidden, width)


def _block(path: str, tower: Tower) -> Iterator[Tensor]:
    out, back = (Cut.NONE, Cut.NONE) if tower.whole else (Cut.OUTPUTS, Cut.INPUTS)
    yield Tensor(f"{path}.attn.q", tower.query_width, tower.hidden, out)
    yield Tensor(f"{path}.attn.k", tower.kv_width, tower.hidden, out)
    yield Tensor(f"{path}.attn.v", tower.kv_width, tower.hidden, out)
    yield Tensor(f"{path}.attn.proj", tower.hidden, tower.query_width, back)
    if tower.gated:
        yield Tensor(f"{path}.mlp.gate", tower.intermediate, tower.hidden, out)
    yield Tensor(f"{path}.mlp.up", tower.intermediate, tower.hidden, out)
    yield Tensor(f"{path}.mlp.down", tower.hidden, tower.intermediate, back)


def _projector(top: Fields, tower: Tower, hidden: int) -> Iterator[Tensor]:
    """Qwen's merger (cut, one more a deep-stack level), Kimi's (whole on each rank), Mistral's, or one matrix."""
    vision = vision_part(top)
    assert vision is not None  # noqa: S101 # read_tower found it
    merged = tower.hidden * tower.merge**2
    out = vision.optional_int("out_hidden_size") or (hidden if vision.has("embed_dim") else 0)
    if out:
        mergers = 1 + len(vision.integers("deepstack_visual_indexes") or ())
        for index in range(mergers):
            yield Tensor(f"vision.merger.{index}.fc1", merged, merged, Cut.OUTPUTS)
            yield Tensor(f"vision.merger.{index}.fc2", out, merged, Cut.INPUTS)
    elif vision.has("vt_hidden_size") or vision.has("mm_hidden_size"):
        yield Tensor("vision.mm_projector.linear_1", merged, merged)
        yield Tensor("vision.mm_projector.linear_2", hidden, merged)
    elif tower.merge > 1:
        yield Tensor("vision.multi_modal_projector.merging_layer", tower.hidden, merged)
        yield Tensor("vision.multi_modal_projector.linear_1", hidden, tower.hidden, Cut.OUTPUTS)
        yield Tensor("vision.multi_modal_projector.linear_2", hidden, hidden, Cut.INPUTS)
    else:
        yield Tensor("vision.embedding_projection", hidden, tower.hidden)


def _intermediate(vision: Fields, hidden: int) -> int:
    written = vision.optional_int("intermediate_size", "vt_intermediate_size")
    return written or round(hidden * (vision.number("mlp_ratio") or 4))


def _positions(vision: Fields, patch: int) -> int:
    written = vision.optional_int("num_position_embeddings")
    if written:
        return written
    if vision.has("position_embedding_size"):
        return 2 * (vision.optional_int("position_embedding_size") or 0)
    image = vision.optional_int("image_size")
    return (image // patch) ** 2 if image and not vision.has("rope_parameters") else 0


def _merge(top: Fields, vision: Fields) -> int:
    kernel = vision.integers("merge_kernel_size")
    return (
        (kernel[0] if kernel else None)
        or vision.optional_int("spatial_merge_size")
        or (top.optional_int("spatial_merge_size") or 1)
    )
