"""Gemma 3n and Gemma 4: windows of one width, full layers of another, last layers that share earlier caches."""

from plimsoll.facts.families.attention import FULL, SLIDING
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import Layer, ModelConfigError, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Layers that share point at the last layer of their kind before the shared part, and store nothing.

    Source: vLLM 0.32 ``models/gemma3n.py``, ``models/gemma4.py``.
    """
    kinds = layer_kinds(reading)
    shared = reading.text.optional_int("num_kv_shared_layers", maximum=reading.layer_count) or 0
    first_shared = reading.layer_count - shared
    own = {SLIDING: Layer((_sliding(reading),)), FULL: Layer((_full(reading),))}
    targets = {kind: layer for layer, kind in enumerate(kinds[:first_shared])}
    layers = []
    for layer, kind in enumerate(kinds):
        if layer < first_shared or kind not in targets:
            layers.append(own[kind])
        else:
            layers.append(Layer(shares_cache_of=targets[kind]))
    return tuple(layers)


def layer_kinds(reading: Reading) -> tuple[str, ...]:
    """As written; else every fifth (3n) or sixth (4) layer is full, and Gemma 4's last one always."""
    written = reading.layer_types()
    gemma4 = reading.architecture.startswith("Gemma4")
    if written is None:
        period = 6 if gemma4 else 5
        written = tuple(SLIDING if (layer + 1) % period else FULL for layer in range(reading.layer_count))
    for kind in written:
        if kind not in {SLIDING, FULL}:
            raise ModelConfigError(reading.text.name("layer_types"), kind, f"{SLIDING} or {FULL} is needed")
    return (*written[:-1], FULL) if gemma4 else written


def _sliding(reading: Reading) -> SoftmaxAttention:
    window = reading.window_tokens
    dim = reading.head_dim
    return SoftmaxAttention(
        reading.query_heads, reading.kv_heads, dim, dim, window_tokens=window, kernel=_kernel(reading)
    )


def _full(reading: Reading) -> SoftmaxAttention:
    """Full layers of Gemma 4 are wider, and may have fewer KV heads; K and V are both stored even where equal."""
    dim, kv_heads = _full_dim(reading), reading.kv_heads
    if reading.architecture.startswith("Gemma4"):
        kv_heads = reading.text.optional_int("num_global_key_value_heads", minimum=1) or kv_heads
    return SoftmaxAttention(reading.query_heads, kv_heads, dim, dim, kernel=_kernel(reading))


def _full_dim(reading: Reading) -> int:
    if not reading.architecture.startswith("Gemma4"):
        return reading.head_dim
    return reading.text.optional_int("global_head_dim", minimum=1) or 512


def _kernel(reading: Reading) -> str | None:
    """Layers of different widths run on Triton, where FlashAttention 4 is not there to take them.

    Source: vLLM 0.32 ``models/config.py Gemma4Config``.
    """
    return "TRITON_ATTN" if _full_dim(reading) != reading.head_dim else None
