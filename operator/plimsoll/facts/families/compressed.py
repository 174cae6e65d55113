"""DeepSeek V4 and V4.1: windows of latents beside pooled ones."""

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_TOKENS
from plimsoll.facts.models import CompressedAttention, Layer, ModelConfigError

_RATIOS = {"v4": frozenset({0, 1, 4, 128}), "v41": frozenset({0, 1, 2})}
_INDEXED_RATIO = 4


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """One entry a layer: its pooling ratio, and whether it owns pooled keys and an indexer.

    Source: vLLM 0.32 ``models/deepseek_v4/attention.py``, ``models/deepseek_v41/attention.py``.
    """
    generation = "v41" if reading.architecture == "DeepseekV41ForCausalLM" else "v4"
    text, layers = reading.text, reading.layer_count
    ratios = text.integers("compress_ratios")
    if ratios is None:
        raise ModelConfigError(text.name("compress_ratios"), None, "missing; one ratio a layer is needed")
    ratios = (*ratios, *(0,) * (layers - len(ratios)))[:layers]
    unknown = next((ratio for ratio in ratios if ratio not in _RATIOS[generation]), None)
    if unknown is not None:
        raise ModelConfigError(text.name("compress_ratios"), unknown, f"not one of {sorted(_RATIOS[generation])}")
    kinds = {
        (ratio, owns): Layer((_attention(reading, ratio, owns=owns),))
        for ratio in set(ratios)
        for owns in (True, False)
    }
    sources = set(text.integers("kv_source_layer_ids") or ())
    return tuple(kinds[ratio, layer in sources if generation == "v41" else True] for layer, ratio in enumerate(ratios))


def _attention(reading: Reading, ratio: int, *, owns: bool) -> CompressedAttention:
    later = reading.architecture == "DeepseekV41ForCausalLM"
    indexed = ratio > 0 if later else ratio == _INDEXED_RATIO
    return CompressedAttention(
        generation="v41" if later else "v4",
        head_dim=reading.text.integer("head_dim"),
        window_tokens=reading.text.integer("sliding_window", maximum=MAX_TOKENS),
        ratio=ratio if later or ratio > 1 else 0,
        owns_keys=owns,
        indexer_dim=reading.text.integer("index_head_dim") if indexed else None,
    )
