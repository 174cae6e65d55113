"""Whisper: a decoder that also attends over a fixed number of encoder positions."""

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_LAYERS
from plimsoll.facts.models import CrossAttention, Layer, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Self and cross attention in every decoder layer."""
    text = reading.text
    heads = text.integer("decoder_attention_heads")
    dim = text.integer("d_model") // heads
    cross = CrossAttention(heads, heads, dim, text.integer("max_source_positions"))
    return (Layer((SoftmaxAttention(heads, heads, dim, dim), cross)),) * layer_count(reading)


def layer_count(reading: Reading) -> int:
    """Decoder layers."""
    return reading.text.integer("decoder_layers", maximum=MAX_LAYERS)


def query_heads(reading: Reading) -> int:
    """Decoder heads."""
    return reading.text.integer("decoder_attention_heads")


def head_size(reading: Reading) -> int:
    """Width of a head."""
    return reading.text.integer("d_model") // query_heads(reading)
