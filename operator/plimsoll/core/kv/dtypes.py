"""Bytes that KV dtypes take, as ``--kv-cache-dtype`` spells them.

Source: vLLM 0.32 ``utils/torch_utils.py``, ``v1/kv_cache_interface.py`` and the ``customize_spec`` of each kernel.
"""

from collections.abc import Mapping
from typing import Final

AUTO: Final = "auto"
FLOATS: Final = frozenset({"auto", "float16", "bfloat16", "float32"})
FP8: Final = frozenset({"fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc"})
PER_TOKEN_HEAD: Final = frozenset({"fp8_per_token_head", "int8_per_token_head", "int4_per_token_head"})
NVFP4: Final = frozenset({"nvfp4", "nvfp4_4over6"})
PACKED_LATENT: Final[Mapping[str, int]] = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}

# TurboQuant: bits of a key element (8: plain fp8 without a norm) and of a value element.
TURBOQUANT: Final[Mapping[str, tuple[int, int]]] = {
    "turboquant_k8v4": (8, 4),
    "turboquant_4bit_nc": (4, 4),
    "turboquant_k3v4_nc": (3, 4),
    "turboquant_3bit_nc": (3, 3),
}
KNOWN: Final = FLOATS | FP8 | PER_TOKEN_HEAD | NVFP4 | PACKED_LATENT.keys() | TURBOQUANT.keys()

_MODEL_DTYPE_BYTES: Final[Mapping[str, int]] = {"float32": 4, "float": 4, "float64": 8}
_SCALE_BYTES: Final = 4
_NORM_BYTES: Final = 2


def float_bytes(dtype: str) -> int:
    """Bytes of one element of a floating-point dtype of torch; half precision unless it says otherwise."""
    return _MODEL_DTYPE_BYTES.get(dtype, 2)


def element_bytes(kv_dtype: str, model_dtype: str) -> int:
    """Bytes of one cached element without its scales."""
    if kv_dtype == AUTO:
        return float_bytes(model_dtype)
    return float_bytes(kv_dtype) if kv_dtype in FLOATS else 1


def head_bytes(kv_dtype: str, model_dtype: str, head_dim: int, value_dim: int, *, scales: bool = True) -> int:
    """Bytes of K and V of one token in one KV head; ``scales``: the kernel keeps one for each beside them."""
    if kv_dtype in PER_TOKEN_HEAD:
        packed = 2 if kv_dtype.startswith("int4") else 1
        return head_dim // packed + value_dim // packed + 2 * _SCALE_BYTES * scales
    if kv_dtype in NVFP4:
        return 2 * (head_dim // 2 + head_dim // 16)
    if kv_dtype in TURBOQUANT:
        return _turboquant_bytes(head_dim, *TURBOQUANT[kv_dtype])
    return (head_dim + value_dim) * element_bytes(kv_dtype, model_dtype)


def latent_bytes(kv_dtype: str, model_dtype: str, row_dim: int) -> int:
    """Bytes of one token's compressed vector."""
    packed = PACKED_LATENT.get(kv_dtype)
    return packed if packed is not None else row_dim * element_bytes(kv_dtype, model_dtype)


def quantised(kv_dtype: str) -> bool:
    """Whether the cache is stored in fewer bits than the model computes in."""
    return kv_dtype not in FLOATS


def _turboquant_bytes(head_dim: int, key_bits: int, value_bits: int) -> int:
    """One slot of packed K and V, rounded up to an even number of bytes."""
    key = head_dim if key_bits == 8 else -(-head_dim * key_bits // 8) + _NORM_BYTES  # noqa: PLR2004 # fp8 has no norm
    value = -(-head_dim * value_bits // 8) + 2 * _NORM_BYTES
    return (key + value + 1) // 2 * 2
