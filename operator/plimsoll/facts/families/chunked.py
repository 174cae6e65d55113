"""Llama 4: attention within chunks, and every few layers over everything."""

from dataclasses import replace

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_TOKENS
from plimsoll.facts.models import Layer, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Layers without rope attend to everything. Source: vLLM 0.32 ``models/llama4.py``."""
    dim = reading.head_dim
    heads = SoftmaxAttention(reading.query_heads, reading.kv_heads, dim, dim)
    chunk = reading.text.optional_int("attention_chunk_size", maximum=MAX_TOKENS)
    full = Layer((heads,))
    local = Layer((replace(heads, chunk_tokens=chunk),)) if chunk else full
    return tuple(local if has_rope else full for has_rope in _ropes(reading))


def _ropes(reading: Reading) -> tuple[bool, ...]:
    written = reading.text.integers("no_rope_layers")
    if written:
        written = reading.text.integers("no_rope_layers", length=reading.layer_count) or ()
        return tuple(bool(value) for value in written)
    interval = reading.text.optional_int("no_rope_layer_interval", minimum=1) or 4
    return tuple((layer + 1) % interval != 0 for layer in range(reading.layer_count))
