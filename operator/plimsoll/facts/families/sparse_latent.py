"""Latent attention that reads only what an indexer picks: DeepSeek V3.2, GLM-5, Hunyuan V4, dots3-note."""

from plimsoll.facts.families.latent import head_size, latent
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import IndexerKeys, LatentAttention, Layer, ModelConfigError

__all__ = ["head_size", "read_layers"]

_SCALE_BYTES = 4
_SCALE_GROUP = 128
_SPARSE_KINDS = frozenset({"indexed_attention", "deepseek_sparse_attention"})
_PATTERN = {"F": "full", "S": "shared"}


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Latents in every layer, indexer keys in those that pick for themselves."""
    if reading.architecture == "Dots3NoteForCausalLM":
        return _dots3_layers(reading)
    sink = "FLASHMLA_SPARSE" if reading.text.flag("learnable_sink") else None
    compressed = latent(reading, sparse=True, kernel=sink)
    owner, borrower = Layer((indexer_keys(reading), compressed)), Layer((compressed,))
    return tuple(owner if owns else borrower for owns in owns_indexer(reading))


def indexer_keys(reading: Reading, *, tokens_per_key: int = 1) -> IndexerKeys:
    """Keys in fp8 with a float32 scale for every 128 elements."""
    dim = reading.text.integer("index_head_dim")
    return IndexerKeys(dim + dim // _SCALE_GROUP * _SCALE_BYTES, tokens_per_key)


def owns_indexer(reading: Reading) -> tuple[bool, ...]:
    """Whether each layer picks its own tokens or reuses an earlier layer's picks.

    Source: vLLM 0.32 ``models/deepseek_v32/attention.py``, ``models/hy_v4/nvidia/attention.py``.
    """
    text, layers = reading.text, reading.layer_count
    kinds = _indexer_kinds(reading)
    if kinds is not None:
        return tuple(kind == "full" for kind in kinds)
    period = text.optional_int("index_topk_freq", minimum=1) or 1
    written = text.optional_int("index_skip_topk_offset")
    offset = 2 if written is None else written
    return tuple(max(layer - offset + 1, 0) % period == 0 for layer in range(layers))


def _indexer_kinds(reading: Reading) -> tuple[str, ...] | None:
    """``full`` or ``shared`` for each layer: as a pattern of letters, or spelled out."""
    pattern = reading.text.get("index_topk_pattern")
    if isinstance(pattern, str):
        if len(pattern) < reading.layer_count or set(pattern) - _PATTERN.keys():
            name = reading.text.name("index_topk_pattern")
            raise ModelConfigError(name, pattern, f"{reading.layer_count} letters F or S are needed")
        return tuple(_PATTERN[letter] for letter in pattern[: reading.layer_count])
    return reading.text.strings("indexer_types", length=reading.layer_count)


def _dots3_layers(reading: Reading) -> tuple[Layer, ...]:
    """Sparse layers padded to the wider rows of the sliding ones.

    Source: vLLM 0.32 ``models/dots3_note/nvidia/model.py``.
    """
    text = reading.text
    sliding = LatentAttention(
        query_heads=text.integer("swa_num_attention_heads"),
        latent_dim=text.integer("swa_kv_lora_rank"),
        rope_dim=text.integer("swa_qk_rope_head_dim", minimum=0),
        nope_dim=text.integer("swa_qk_nope_head_dim"),
        value_dim=text.integer("swa_v_head_dim"),
        window_tokens=text.optional_int("sliding_window_size", "sliding_window", minimum=1) or 512,
        kernel="TRITON_MLA",
    )
    row = sliding.latent_dim + sliding.rope_dim
    base = latent(reading, sparse=True)
    full = LatentAttention(
        base.query_heads,
        base.latent_dim,
        base.rope_dim,
        base.nope_dim,
        base.value_dim,
        sparse=True,
        row_dim=row,
        kernel="DOTS3_NOTE_PADDED_MLA_SPARSE",
    )
    kinds = reading.layer_types()
    if kinds is None:
        kinds = tuple("full_attention" if i < 2 or i % 4 == 1 else "sliding" for i in range(reading.layer_count))  # noqa: PLR2004
    owner, window = Layer((indexer_keys(reading), full)), Layer((sliding,))
    return tuple(owner if kind in {"full_attention", *_SPARSE_KINDS} else window for kind in kinds)
