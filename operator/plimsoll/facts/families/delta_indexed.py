"""Qwen4Exp (Qwen3.8-Flash-Next): gated delta nets, indexed attention, and convolutions of n-gram embeddings."""

from plimsoll.facts.families.gated_delta import FULL, full_attention, layer_kinds, state
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import Cache, IndexerKeys, Layer, RecurrentState, RingBuffer, SoftmaxAttention, StateTensor

__all__ = ["read_layers", "state_dtype"]

_BFLOAT16_BYTES = 2
_ELEMENTS_PER_POSITION = 4
_ROPE_AXES = 3


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Full layers carry indexer caches; layers named in ``ple_layer_ids`` (from 1) an embedding convolution too.

    Source: vLLM 0.32 ``models/qwen4_exp``.
    """
    embedded = set(reading.text.integers("ple_layer_ids") or ())
    linear: tuple[Cache, ...] = (state(reading),)
    full = _full(reading)
    convolution = (_embedding_state(reading),) if embedded else ()
    kinds = {
        (kind, has): Layer((*(full if kind == FULL else linear), *(convolution if has else ())))
        for kind in set(layer_kinds(reading))
        for has in (False, True)
    }
    return tuple(kinds[kind, layer + 1 in embedded] for layer, kind in enumerate(layer_kinds(reading)))


def state_dtype(reading: Reading) -> str | None:
    """As written; else that of the convolution."""
    return reading.text.text("mamba_ssm_dtype")


def _full(reading: Reading) -> tuple[Cache, ...]:
    heads = full_attention(reading)
    dim = reading.text.optional_int("indexer_head_dim", minimum=1)
    if dim is None or not reading.text.has("indexer_n_heads"):
        return (heads,)
    ratio = reading.text.integer("indexer_compress_ratio")
    indexed = SoftmaxAttention(heads.query_heads, heads.kv_heads, heads.head_dim, heads.value_dim, kernel="QWEN4_QSA")
    return (
        RingBuffer(ratio, _raw_key_elements(reading, dim) * _BFLOAT16_BYTES),
        IndexerKeys(dim * _BFLOAT16_BYTES, ratio, kernel="QWEN4_QSA_STATE"),
        indexed,
    )


def _raw_key_elements(reading: Reading, dim: int) -> int:
    """A raw key, followed in multimodal models by its three exact rope positions."""
    if not reading.wrapped:
        return dim
    return -(-dim // _ELEMENTS_PER_POSITION) * _ELEMENTS_PER_POSITION + _ROPE_AXES * _ELEMENTS_PER_POSITION


def _embedding_state(reading: Reading) -> RecurrentState:
    """A dilated convolution over the widened residual stream, whole on every rank."""
    text = reading.text
    length = (text.integer("ple_conv_kernel_size") - 1) * text.integer("ngram_size")
    width = reading.hidden_size * text.integer("hc_count")
    tensor = StateTensor("conv", width, length, grows=True, replicated=True)
    return RecurrentState("embedding_conv", (tensor,))
