"""How long a context a checkpoint allows.

Source: vLLM 0.32 ``config/model.py _get_and_verify_max_len``, ``model_arch_config_convertor.py``. The tokenizer's own
``model_max_length``, which vLLM also honours, is in another file and unknown here.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from plimsoll.facts.fields import MAX_TOKENS, Fields

DEFAULT_MAX_MODEL_LEN: Final = 2048
_LENGTH_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
# Rope types whose max_position_embeddings is already the scaled length, or does not scale it.
_UNSCALED_ROPES: Final = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})


def max_model_len(top: Fields, text: Fields) -> int:
    """The longest context in tokens that vLLM accepts for this checkpoint without an override."""
    lengths = [length for key in _LENGTH_KEYS if (length := _length(text, key)) is not None]
    if not lengths:
        text.assumed.append(text.name(_LENGTH_KEYS[0]))
    length = _length(text, "model_max_length") or min(lengths, default=DEFAULT_MAX_MODEL_LEN)
    if "gemma3" in top.model_type:
        return length
    factor = 1.0
    for rope_type, scale in _ropes(text):
        if rope_type not in _UNSCALED_ROPES and scale is not None:
            factor = scale
    return max(1, min(MAX_TOKENS, int(length * factor)))


def writes_max_model_len(text: Fields) -> bool:
    """Whether a decoder's configuration itself says how long a context may be."""
    return any(text.has(key) for key in _LENGTH_KEYS)


def original_max_positions(top: Fields, text: Fields) -> int | None:
    """Where LongRoPE starts when nobody asks for more: ``original_max_position_embeddings``; None for other ropes."""
    if not any(rope_type == "longrope" for rope_type, _ in _ropes(text)):
        return None
    written = (_length(part, "original_max_position_embeddings") for part in (top, text))
    return next((length for length in written if length is not None), None)


def _length(part: Fields, key: str) -> int | None:
    return part.optional_int(key, minimum=1, maximum=MAX_TOKENS)


def _ropes(text: Fields) -> Iterator[tuple[str, float | None]]:
    """Type and factor of each rope: one for the model, or one for each kind of layer."""
    for key in ("rope_parameters", "rope_scaling"):
        rope = text.child(key)
        if rope is None:
            continue
        inner = [rope.child(kind) for kind, value in rope.values.items() if isinstance(value, Mapping)]
        for part in [part for part in inner if part is not None] or [rope]:
            yield part.text("rope_type") or part.text("type") or "default", part.number("factor")
        return
