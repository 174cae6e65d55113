"""Models whose sliding layers have heads of their own: MiMo-V2, Step 3.5."""

from plimsoll.facts.families.attention import SLIDING
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_TOKENS
from plimsoll.facts.models import Layer, ModelConfigError, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """One kind of layer for the windows, one for the rest."""
    return _mimo(reading) if reading.architecture.startswith("MiMoV2") else _step(reading)


def _mimo(reading: Reading) -> tuple[Layer, ...]:
    """V may be narrower than K; windows may have sinks. Source: vLLM 0.32 ``models/mimo_v2.py``."""
    text = reading.text
    full = _heads(reading, reading.kv_heads, reading.head_dim, text.optional_int("v_head_dim", minimum=1))
    dim = text.optional_int("swa_head_dim", minimum=1) or reading.head_dim
    window = text.integer("sliding_window_size", "sliding_window", maximum=MAX_TOKENS)
    kv_heads = text.optional_int("swa_num_key_value_heads", minimum=1) or reading.kv_heads
    sliding = _heads(
        reading,
        kv_heads,
        dim,
        text.optional_int("swa_v_head_dim", minimum=1),
        window_tokens=window,
        sinks=text.flag("add_swa_attention_sink_bias"),
    )
    pattern = text.integers("hybrid_layer_pattern", length=reading.layer_count)
    if pattern is None:
        raise ModelConfigError(text.name("hybrid_layer_pattern"), None, "missing; 0 or 1 for each layer is needed")
    kinds = {0: Layer((full,)), 1: Layer((sliding,))}
    return tuple(kinds[1 if value == 1 else 0] for value in pattern)


def _heads(
    reading: Reading,
    kv_heads: int,
    head_dim: int,
    value_dim: int | None,
    *,
    window_tokens: int | None = None,
    sinks: bool = False,
) -> SoftmaxAttention:
    value = value_dim or head_dim
    return SoftmaxAttention(
        reading.query_heads,
        kv_heads,
        head_dim,
        value,
        window_tokens=window_tokens,
        sinks=sinks,
        kernel=None if value == head_dim else "DIFFKV",
    )


def _step(reading: Reading) -> tuple[Layer, ...]:
    """A second setting of heads for one kind of layer. Source: vLLM 0.32 ``models/step3p5.py``."""
    kinds = reading.layer_types() or tuple(
        SLIDING if layer % 2 == 0 else "full_attention" for layer in range(reading.layer_count)
    )
    layers = {kind: Layer((_step_heads(reading, kind),)) for kind in set(kinds)}
    return tuple(layers[kind] for kind in kinds)


def _step_heads(reading: Reading, kind: str) -> SoftmaxAttention:
    other = reading.text.child("attention_other_setting")
    heads, kv_heads, dim = reading.query_heads, reading.kv_heads, reading.head_dim
    if other is not None and other.text("attention_type") == kind:
        heads = other.optional_int("num_attention_heads", minimum=1) or heads
        kv_heads = other.optional_int("num_attention_groups", minimum=1) or kv_heads
        dim = other.optional_int("head_dim", minimum=1) or dim
    window = reading.window_tokens if kind == SLIDING else None
    return SoftmaxAttention(heads, kv_heads, dim, dim, window_tokens=window)
