"""LFM2: short convolutions with some attention."""

from plimsoll.facts.families.attention import FULL
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import Layer, RecurrentState, SoftmaxAttention, StateTensor


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Convolution inputs, or K and V. Source: vLLM 0.32 ``models/lfm2.py``, ``layers/mamba/short_conv.py``."""
    dim = reading.head_dim
    attention = Layer((SoftmaxAttention(reading.query_heads, reading.kv_heads, dim, dim),))
    width = reading.text.optional_int("conv_dim", minimum=1) or reading.hidden_size
    kernel = reading.text.integer("conv_L_cache")
    convolution = Layer((RecurrentState("short_conv", (StateTensor("conv", width, kernel - 1),)),))
    return tuple(attention if kind == FULL else convolution for kind in _kinds(reading))


def _kinds(reading: Reading) -> tuple[str, ...]:
    written = reading.layer_types()
    if written is not None:
        return written
    full = reading.text.integers("full_attn_idxs")
    indices = set(range(reading.layer_count) if full is None else full)
    return tuple(FULL if layer in indices else "conv" for layer in range(reading.layer_count))
