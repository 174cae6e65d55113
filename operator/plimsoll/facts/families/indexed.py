"""MiniMax-M3: grouped-query attention with an indexer on most layers."""

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import IndexerKeys, Layer, SoftmaxAttention

_BFLOAT16_BYTES = 2


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Indexer keys beside K and V where ``sparse_attention_freq`` is not 0.

    Source: vLLM 0.32 ``models/minimax_m3/nvidia/model.py``, ``common/indexer.py``.
    """
    dim = reading.head_dim
    dense = Layer((SoftmaxAttention(reading.query_heads, reading.kv_heads, dim, dim),))
    setting = reading.text.child("sparse_attention_config")
    frequency = setting.integers("sparse_attention_freq") if setting else None
    if setting is None or not frequency:
        return (dense,) * reading.layer_count
    keys = IndexerKeys(setting.integer("sparse_index_dim") * _BFLOAT16_BYTES, kernel="MINIMAX_M3_SPARSE_INDEXER")
    heads = SoftmaxAttention(reading.query_heads, reading.kv_heads, dim, dim, kernel="MINIMAX_M3_SPARSE")
    sparse = Layer((keys, heads))
    padded = (*frequency, *(0,) * reading.layer_count)
    return tuple(sparse if padded[layer] else dense for layer in range(reading.layer_count))
