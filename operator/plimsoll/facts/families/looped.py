"""IQuest LoopCoder: the decoder runs over itself, and each pass but the first looks at a short window of its own."""

from dataclasses import replace

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_TOKENS
from plimsoll.facts.models import Layer, SoftmaxAttention

_MAX_LOOPS = 64


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """K and V of the first pass over everything, of each later one over a window.

    Source: vLLM 0.32 ``models/iquest_loopcoder.py``.
    """
    dim = reading.quotient_head_dim
    first = SoftmaxAttention(reading.query_heads, reading.kv_heads, dim, dim)
    window = reading.text.optional_int("loop_window_size", minimum=1, maximum=MAX_TOKENS) or 64
    passes = reading.text.optional_int("loop_num", minimum=1, maximum=_MAX_LOOPS) or 2
    layer = Layer((first, *(replace(first, window_tokens=window),) * (passes - 1)))
    return (layer,) * reading.layer_count


def head_size(reading: Reading) -> int:
    """Hidden size over heads."""
    return reading.quotient_head_dim
