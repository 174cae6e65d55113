"""Tables of sines and cosines: one for each way a model rotates, kept whole on every rank.

Source: vLLM 0.32 ``layers/rotary_embedding``: a table holds every position of the configuration, linear scaling
stretches it by its factor, and tables are in the model's dtype except DeepSeek V4's two.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from plimsoll.core.memory.decoder import Decoder
from plimsoll.core.memory.states import FLOAT32_BYTES
from plimsoll.core.memory.tensors import Tensor
from plimsoll.facts.fields import MAX_TOKENS, Fields

Rope = Mapping[str, object]

# They rotate nothing, or are served through transformers' own classes, which compute angles as they go.
_NO_TABLE: Final = frozenset(
    {"NemotronHForCausalLM", "JambaForCausalLM", "SeedOssForCausalLM", "SmolLM3ForCausalLM", "GPT2LMHeadModel"}
)


def rotary_tables(decoder: Decoder) -> Iterator[Tensor]:
    """The tables of a decoder."""
    text, architecture = decoder.text, decoder.facts.architecture
    positions = text.optional_int("max_position_embeddings", maximum=MAX_TOKENS)
    if not positions or architecture in _NO_TABLE or text.flag("mla_use_nope"):
        return
    if text.has("compress_ratios"):
        width = text.integer("qk_rope_head_dim")
        yield Tensor("rotary", 2 * positions, width, linear=False, element_bytes=FLOAT32_BYTES)
        return
    for kind, rope in _ropes(text):
        width = round(_width(decoder, kind) * _share(rope))
        yield Tensor("rotary", round(positions * _stretch(rope)), width, linear=False)


def _width(decoder: Decoder, kind: str) -> int:
    text = decoder.text
    if kind == "full_attention" and text.has("global_head_dim"):
        return text.integer("global_head_dim")
    return text.optional_int("rotary_dim", "qk_rope_head_dim") or decoder.facts.dims.head_dim


def _ropes(text: Fields) -> tuple[tuple[str, Rope], ...]:
    """Each way of rotating with the layer type it is for; ``rope_parameters`` is one object, or one a layer type."""
    written = text.get("rope_parameters") or text.get("rope_scaling")
    rope: Rope = written if isinstance(written, Mapping) else {}
    share = {"partial_rotary_factor": text.get("partial_rotary_factor") or 1.0}
    nested = {kind: each for kind, each in rope.items() if isinstance(each, Mapping)}
    if nested:
        return tuple((kind, {**share, **each}) for kind, each in nested.items())
    whole = ("", {**share, **rope})
    second = text.has("rope_local_base_freq") or text.has("swa_rope_theta")
    return (whole, ("", share)) if second else (whole,)


def _stretch(rope: Rope) -> float:
    return _number(rope, "factor", 1.0) if rope.get("rope_type", rope.get("type")) == "linear" else 1.0


def _share(rope: Rope) -> float:
    """Part of a head that is rotated; Gemma 4's proportional rotation keeps a table of the whole head."""
    return 1.0 if rope.get("rope_type") == "proportional" else _number(rope, "partial_rotary_factor", 1.0)


def _number(rope: Rope, key: str, default: float) -> float:
    value = rope.get(key)
    return float(value) if isinstance(value, int | float) else default
