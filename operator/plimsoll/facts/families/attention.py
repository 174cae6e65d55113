"""Decoders of plain softmax attention (MHA, GQA, MQA), with or without sliding windows.

Most of the registry: Llama, Mistral, Qwen, Gemma 1-3, Phi, Granite, OLMo, GPT-OSS, GLM-4.5, Hunyuan, MiniMax-M2… Which
layers slide comes from ``layer_types``, else from the rule transformers fills it with (``_default_pattern``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_TOKENS
from plimsoll.facts.models import Layer, ModelConfigError, SoftmaxAttention

SLIDING: Final = "sliding_attention"
FULL: Final = "full_attention"

# Their classes ignore head_dim and divide.
_QUOTIENT_HEADS: Final = frozenset(
    {
        "BloomForCausalLM",
        "ChatGLMForConditionalGeneration",
        "ChatGLMModel",
        "DbrxForCausalLM",
        "FalconForCausalLM",
        "InternLM2ForCausalLM",
        "MiniCPMForCausalLM",
        "OlmoeForCausalLM",
        "OrionForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
    }
)
# Their classes take one window for all layers, or none when layer types are mixed.
_UNIFORM_WINDOW: Final = frozenset(
    {
        "BailingMoeForCausalLM",
        "BailingMoeV2ForCausalLM",
        "Ernie4_5_MoeForCausalLM",
        "Glm4ForCausalLM",
        "Glm4MoeForCausalLM",
        "HYV3ForCausalLM",
        "MixtralForCausalLM",
        "OlmoeForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)
_WINDOW_PLUS_ONE: Final = frozenset({"Cohere2ForCausalLM", "Cohere2MoeForCausalLM"})
_WINDOW_LISTS: Final = ("interleaved_sliding_window", "sliding_windows", "sliding_window")
_SINKS: Final = frozenset({"GptOssForCausalLM"})


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Layers of the decoder."""
    heads = SoftmaxAttention(
        query_heads=reading.query_heads,
        kv_heads=_kv_heads(reading),
        head_dim=head_size(reading),
        value_dim=head_size(reading),
        sinks=has_sinks(reading),
    )
    full = Layer((heads,))
    listed = listed_windows(reading)
    if listed is not None:
        return tuple(Layer((replace(heads, window_tokens=window),)) if window else full for window in listed)
    kinds = layer_kinds(reading)
    window = window_tokens(reading)
    if window is None or SLIDING not in kinds:
        return (full,) * reading.layer_count
    sliding = Layer((replace(heads, window_tokens=window),))
    return tuple(sliding if kind == SLIDING else full for kind in kinds)


def head_size(reading: Reading) -> int:
    """Head size as the architecture's class computes it."""
    return reading.quotient_head_dim if reading.architecture in _QUOTIENT_HEADS else reading.head_dim


def has_sinks(reading: Reading) -> bool:
    """Whether softmax has a learnt extra term, which not every kernel computes.

    Source: vLLM 0.32 ``models/granite.py``: Granite's have them as soon as layer types are written.
    """
    granite_window = reading.architecture.startswith("Granite") and reading.text.has("layer_types")
    return reading.architecture in _SINKS or reading.text.flag("attention_sinks", default=granite_window)


def listed_windows(reading: Reading) -> tuple[int | None, ...] | None:
    """A window for each layer (null: none) where the file lists them; a short list repeats.

    Source: vLLM 0.32 ``models/openpangu.py``, ``models/plamo3.py``, ``models/exaone_moe.py``.
    """
    key = next((key for key in _WINDOW_LISTS if isinstance(reading.text.values.get(key), list)), None)
    if key is None:
        return None
    windows = reading.text.integers_or_nulls(key, maximum=MAX_TOKENS)
    kinds = reading.layer_types()
    if not windows:
        return None
    listed = [windows[layer % len(windows)] for layer in range(reading.layer_count)]
    return tuple(None if kinds is not None and kinds[layer] == FULL else window for layer, window in enumerate(listed))


def window_tokens(reading: Reading) -> int | None:
    """The window its sliding layers use: Cohere's see one token more than they write."""
    window = reading.window_tokens
    return window + 1 if window is not None and reading.architecture in _WINDOW_PLUS_ONE else window


def layer_kinds(reading: Reading) -> tuple[str, ...]:
    """``sliding_attention`` or ``full_attention`` for each layer.

    A window without layer types applies to every layer; with mixed types a class that takes only one window for all
    uses none. Source: vLLM 0.32 ``engine/arg_utils.py create_engine_config``, ``layers/attention/attention.py``.
    """
    kinds = reading.layer_types() or default_kinds(reading)
    if kinds is None:
        return (SLIDING if reading.window_tokens else FULL,) * reading.layer_count
    kinds = tuple(_plain_kind(reading, kind) for kind in kinds)
    if reading.architecture in _UNIFORM_WINDOW and not all(kind == SLIDING for kind in kinds):
        return (FULL,) * reading.layer_count
    return kinds


def _plain_kind(reading: Reading, kind: str) -> str:
    """The kind in our two words; Rnj-1 calls its windows chunks.

    Raises:
        ModelConfigError: a layer that is not plain attention, whose cache this family does not know.
    """
    if kind == "chunked_attention" and reading.architecture == "Rnj1ForCausalLM":
        return SLIDING
    if kind not in {SLIDING, FULL}:
        raise ModelConfigError(reading.text.name("layer_types"), kind, f"{SLIDING} or {FULL} is needed")
    return kind


def default_kinds(reading: Reading) -> tuple[str, ...] | None:
    """Layer types of a family that fills them in when the file leaves them out; None for families that do not."""
    rule = _PATTERNS.get(reading.text.model_type)
    return None if rule is None else rule(reading)


def every(period: int, *, first: bool = False) -> Callable[[Reading], tuple[str, ...]]:
    """Every ``period``-th layer is full: the last of each period, or the first."""
    offset = 0 if first else 1

    def rule(reading: Reading) -> tuple[str, ...]:
        return _periodic(reading.layer_count, period, offset)

    return rule


def _periodic(layers: int, period: int, offset: int) -> tuple[str, ...]:
    return tuple(SLIDING if (layer + offset) % period else FULL for layer in range(layers))


def _period_from(key: str, default: int) -> Callable[[Reading], tuple[str, ...]]:
    """As ``every``, with the period written in the file."""

    def rule(reading: Reading) -> tuple[str, ...]:
        period = reading.text.optional_int(key, minimum=1) or default
        return _periodic(reading.layer_count, period, 1)

    return rule


def _exaone(reading: Reading) -> tuple[str, ...]:
    """A number as above, or letters (L local, G global) that repeat; the last layer of a lettered pattern is global."""
    if reading.window_tokens is None:
        return (FULL,) * reading.layer_count
    pattern = reading.text.get("sliding_window_pattern")
    if not isinstance(pattern, str):
        return _period_from("sliding_window_pattern", 4)(reading)
    if not pattern or set(pattern) - {"L", "G"}:
        raise ModelConfigError(reading.text.name("sliding_window_pattern"), pattern, "letters L and G are needed")
    last = reading.layer_count - 1
    return tuple(
        FULL if layer == last or pattern[layer % len(pattern)] == "G" else SLIDING for layer in range(last + 1)
    )


def _from_layer(reading: Reading) -> tuple[str, ...]:
    """Qwen2 and Qwen3: the layers from ``max_window_layers`` on slide, if there is a window."""
    first = reading.text.optional_int("max_window_layers") or 0
    slides = reading.window_tokens is not None
    return tuple(SLIDING if slides and layer >= first else FULL for layer in range(reading.layer_count))


def _ropes(reading: Reading) -> tuple[str, ...]:
    """Muse Glimmer: layers with rope slide, the others see everything."""
    ropes = reading.text.integers("no_rope_layers", length=reading.layer_count)
    if ropes is None:
        raise ModelConfigError(reading.text.name("no_rope_layers"), None, "missing; 0 or 1 for each layer is needed")
    return tuple(SLIDING if has_rope else FULL for has_rope in ropes)


_PATTERNS: Final[Mapping[str, Callable[[Reading], tuple[str, ...]]]] = {
    "afmoe": _period_from("global_attn_every_n_layers", 4),
    "cohere2": _period_from("sliding_window_pattern", 4),
    "cohere2_moe": _period_from("sliding_window_pattern", 4),
    "cwm": every(4, first=True),
    "exaone4": _exaone,
    "exaone4_5_text": _exaone,
    "exaone_moe": _exaone,
    "gemma2": every(2),
    "gemma3_text": _period_from("sliding_window_pattern", 6),
    "gpt_oss": every(2),
    "granite_swa": every(4, first=True),
    "granitemoe_swa": every(4, first=True),
    "muse_glimmer_text": _ropes,
    "olmo3": every(4),
    "qwen2": _from_layer,
    "qwen2_5_vl_text": _from_layer,
    "qwen2_vl_text": _from_layer,
    "qwen3": _from_layer,
    "vaultgemma": every(2),
}


def _kv_heads(reading: Reading) -> int:
    """KV heads; Falcon and DBRX write them their own way.

    Source: vLLM 0.32 ``model_arch_config_convertor.py`` (Falcon, Dbrx).
    """
    if reading.text.model_type in {"falcon", "RefinedWeb", "RefinedWebModel"}:
        new_decoder = reading.text.flag("new_decoder_architecture")
        return 1 if reading.text.flag("multi_query") and not new_decoder else reading.kv_heads
    attention = reading.text.child("attn_config") if reading.text.model_type == "dbrx" else None
    if attention is not None:
        return attention.optional_int("kv_n_heads", minimum=1) or reading.query_heads
    return reading.kv_heads
