"""Inkling: every layer keeps the inputs of short convolutions as a small window beside its K and V."""

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_TOKENS
from plimsoll.facts.models import ConvolutionWindow, Layer, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Local layers, named by index, slide; the rest see everything.

    Source: vLLM 0.32 ``models/inkling/nvidia`` (attention, convolution cache).
    """
    text = reading.text
    local = set(text.integers("local_layer_ids") or ())
    window = text.integer("sliding_window_size", maximum=MAX_TOKENS)
    sliding = _layer(
        reading,
        text.optional_int("swa_num_attention_heads", minimum=1) or reading.query_heads,
        text.optional_int("swa_num_key_value_heads", minimum=1) or reading.kv_heads,
        text.optional_int("swa_head_dim", minimum=1) or reading.head_dim,
        window,
    )
    full = _layer(reading, reading.query_heads, reading.kv_heads, reading.head_dim, None)
    return tuple(sliding if layer in local else full for layer in range(reading.layer_count))


def _layer(reading: Reading, heads: int, kv_heads: int, dim: int, window: int | None) -> Layer:
    """K, V and both sublayer outputs of a head, rounded up to a power of two elements."""
    packed = 2 * dim + 2 * (reading.hidden_size // kv_heads)
    convolution = ConvolutionWindow(
        heads=kv_heads,
        head_elements=1 << (packed - 1).bit_length(),
        kernel_tokens=reading.text.integer("sconv_kernel_size"),
    )
    attention = SoftmaxAttention(heads, kv_heads, dim, dim, window_tokens=window, kernel="FLASH_ATTN")
    return Layer((convolution, attention))
