"""Attention kernels: block sizes each works with, cache dtypes each reads.

Source: vLLM 0.32, ``get_supported_kernel_block_sizes`` and ``supported_kv_cache_dtypes`` of the classes in
``v1/attention/backends``.
"""

from dataclasses import dataclass
from math import gcd
from typing import Final

from plimsoll.core.kv.dtypes import FLOATS, FP8, NVFP4, PER_TOKEN_HEAD, TURBOQUANT

_FP8_E4M3: Final = frozenset({"fp8", "fp8_e4m3"})
PLAIN_DTYPES: Final = frozenset({"auto", "float16", "bfloat16"})
DEFAULT_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Kernel:
    """One attention backend.

    ``blocks`` are kernel block sizes in tokens; with ``multiples`` each may also be a whole multiple. ``kv_dtypes`` are
    the cache dtypes it reads, ``preferred_block`` overrides its choice of a block size. A sparse kernel that addresses
    the cache in rows wants blocks whole multiples of ``row_unit`` rows apart.
    """

    name: str
    blocks: tuple[int, ...]
    kv_dtypes: frozenset[str]
    multiples: bool = True
    preferred_block: int | None = None
    exact_block: bool = False
    sparse: bool = False
    row_unit: int = 0

    @property
    def smallest_block(self) -> int:
        """The smallest block it works with, in tokens."""
        return min(self.blocks)

    def accepts(self, block_tokens: int) -> bool:
        """Whether the manager may use blocks of that size (whole multiples are split)."""
        if self.exact_block:
            return block_tokens in self.blocks
        return any(block_tokens % block == 0 for block in self.blocks)

    def stride_bytes(self, block_tokens: int, page_bytes: int) -> int:
        """What the distance between blocks must be a multiple of: rows, or whole kernel blocks where it splits them.

        Source: vLLM 0.32 ``v1/worker/utils.py customize_attention_spec``, ``sparse_utils.py align_blocks_to_rows``.
        """
        if self.row_unit:
            return self.row_unit * (page_bytes // block_tokens)
        if self.multiples:
            return 1
        kernel_block = gcd(max(self.blocks), block_tokens)
        return 1 if kernel_block == block_tokens else page_bytes * kernel_block // block_tokens

    def largest_block_within(self, block_tokens: int) -> int:
        """The largest kernel block not above ``block_tokens``; the smallest one when none fits.

        Source: vLLM 0.32 ``layers/attention/attention.py _largest_kernel_block_within``.
        """
        if self.multiples:
            sizes = [max(block, block_tokens // block * block) for block in self.blocks]
        else:
            sizes = list(self.blocks)
        return max((size for size in sizes if size <= block_tokens), default=min(sizes))


FLASH_ATTN: Final = Kernel("FLASH_ATTN", (16,), PLAIN_DTYPES | _FP8_E4M3)
FLASHINFER: Final = Kernel("FLASHINFER", (16, 32, 64), PLAIN_DTYPES | FP8 - {"fp8_inc"} | NVFP4, multiples=False)
FLASHINFER_LARGE: Final = Kernel("FLASHINFER", (16, 32, 64, 128, 256, 512, 1024), FLASHINFER.kv_dtypes, multiples=False)
TRITON_ATTN: Final = Kernel("TRITON_ATTN", (16,), PLAIN_DTYPES | FP8 - {"fp8_inc"} | PER_TOKEN_HEAD)
FLEX_ATTENTION: Final = Kernel("FLEX_ATTENTION", (16,), PLAIN_DTYPES)
TURBOQUANT_ATTN: Final = Kernel("TURBOQUANT", (16, 32, 64, 128), frozenset(TURBOQUANT), multiples=False)
FLASH_ATTN_MLA: Final = Kernel("FLASH_ATTN_MLA", (16,), PLAIN_DTYPES)
FLASHMLA: Final = Kernel("FLASHMLA", (64,), PLAIN_DTYPES | _FP8_E4M3, multiples=False)
FLASHINFER_MLA: Final = Kernel("FLASHINFER_MLA", (32, 64), PLAIN_DTYPES | _FP8_E4M3, multiples=False)
FLASHINFER_MLA_64: Final = Kernel("FLASHINFER_MLA", (64,), FLASHINFER_MLA.kv_dtypes, multiples=False)
CUTLASS_MLA: Final = Kernel("CUTLASS_MLA", (128,), PLAIN_DTYPES | _FP8_E4M3, multiples=False)
TRITON_MLA: Final = Kernel("TRITON_MLA", (16,), PLAIN_DTYPES | _FP8_E4M3)
# Nothing on a CPU asks a kernel which dtypes it reads: an engine starts with any of these.
CPU_ATTN: Final = Kernel("CPU_ATTN", (32,), FLOATS | FP8 - {"fp8_inc"} | PER_TOKEN_HEAD, preferred_block=128)
CPU_MLA: Final = Kernel("CPU_MLA", (16,), CPU_ATTN.kv_dtypes, multiples=False, exact_block=True)

FLASH_ATTN_MLA_SPARSE: Final = Kernel("FLASH_ATTN_MLA_SPARSE", (64,), PLAIN_DTYPES, sparse=True, row_unit=1)
FLASHMLA_SPARSE: Final = Kernel(
    "FLASHMLA_SPARSE",
    (64,),
    frozenset({"auto", "bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla"}),
    sparse=True,
    row_unit=1,
)
FLASHINFER_MLA_SPARSE: Final = Kernel(
    "FLASHINFER_MLA_SPARSE", (32,), PLAIN_DTYPES | _FP8_E4M3, sparse=True, row_unit=32
)
FLASHINFER_MLA_SPARSE_SM90: Final = Kernel(
    "FLASHINFER_MLA_SPARSE_SM90", (64,), frozenset({"auto", "bfloat16"}) | _FP8_E4M3, sparse=True, row_unit=1
)
FLASHINFER_MLA_SPARSE_SM120: Final = Kernel(
    "FLASHINFER_MLA_SPARSE_SM120", (64,), frozenset({"auto", "fp8_ds_mla"}) | _FP8_E4M3, sparse=True, row_unit=64
)

ROCM_AITER_MLA: Final = Kernel("ROCM_AITER_MLA", (1,), PLAIN_DTYPES | _FP8_E4M3)
ROCM_AITER_MLA_SPARSE: Final = Kernel(
    "ROCM_AITER_MLA_SPARSE", (1,), frozenset({"auto", "bfloat16", "fp8_ds_mla"}) | _FP8_E4M3, sparse=True, row_unit=1
)
ROCM_INDEXER: Final = Kernel("ROCM_AITER_MLA_SPARSE_INDEXER", (1,), FLOATS)

# Kernels that a model's class insists on, or that read caches out of band, by the name facts give them.
FIXED: Final = {
    kernel.name: kernel
    for kernel in (
        Kernel("DEEPSEEK_V32_INDEXER", (64,), FLOATS, multiples=False),
        Kernel("DEEPSEEK_V4", (256,), FLOATS, multiples=False, preferred_block=256),
        Kernel("DIFFKV", (16,), PLAIN_DTYPES | _FP8_E4M3),
        Kernel("DOTS3_NOTE_PADDED_MLA_SPARSE", (64,), PLAIN_DTYPES, sparse=True, row_unit=1),
        Kernel("MINIMAX_M3_SPARSE", (128,), FLOATS | FP8, multiples=False),
        Kernel("MINIMAX_M3_SPARSE_INDEXER", (128,), FLOATS, multiples=False),
        Kernel("QWEN4_QSA", (16,), PLAIN_DTYPES | _FP8_E4M3),
        Kernel("QWEN4_QSA_STATE", (1,), FLOATS),
        FLASH_ATTN,
        FLASHMLA_SPARSE,
        TRITON_ATTN,
        TRITON_MLA,
    )
}
