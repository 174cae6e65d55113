"""Which attention kernel vLLM picks for a layer, and the block sizes that kernel can work with.

The order of preference and each kernel's limits follow vLLM 0.32: ``platforms/cuda.py _get_backend_priorities`` and
``validate_configuration`` of the classes in ``v1/attention/backends``. FlashAttention 4 is taken as absent, as in the
published image without its optional packages.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Final

from plimsoll.core.kv.dtypes import FLOATS, FP8, NVFP4, PER_TOKEN_HEAD, TURBOQUANT, quantised
from plimsoll.core.kv.options import (
    BAD_FLAG,
    KV_DTYPE_UNSUPPORTED,
    NO_ATTENTION_BACKEND,
    EngineOptions,
    Refusal,
)
from plimsoll.facts.models import IndexerKeys, LatentAttention, ModelFacts, SoftmaxAttention

_FP8_E4M3: Final = frozenset({"fp8", "fp8_e4m3"})
_PLAIN: Final = frozenset({"auto", "float16", "bfloat16"})
_FP8_FLOOR: Final = (8, 9)
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


FLASH_ATTN: Final = Kernel("FLASH_ATTN", (16,), _PLAIN | _FP8_E4M3)
FLASHINFER: Final = Kernel("FLASHINFER", (16, 32, 64), _PLAIN | FP8 - {"fp8_inc"} | NVFP4, multiples=False)
FLASHINFER_LARGE: Final = Kernel("FLASHINFER", (16, 32, 64, 128, 256, 512, 1024), FLASHINFER.kv_dtypes, multiples=False)
TRITON_ATTN: Final = Kernel("TRITON_ATTN", (16,), _PLAIN | FP8 - {"fp8_inc"} | PER_TOKEN_HEAD)
FLEX_ATTENTION: Final = Kernel("FLEX_ATTENTION", (16,), _PLAIN)
TURBOQUANT_ATTN: Final = Kernel("TURBOQUANT", (16, 32, 64, 128), frozenset(TURBOQUANT), multiples=False)
FLASH_ATTN_MLA: Final = Kernel("FLASH_ATTN_MLA", (16,), _PLAIN)
FLASHMLA: Final = Kernel("FLASHMLA", (64,), _PLAIN | _FP8_E4M3, multiples=False)
FLASHINFER_MLA: Final = Kernel("FLASHINFER_MLA", (32, 64), _PLAIN | _FP8_E4M3, multiples=False)
FLASHINFER_MLA_64: Final = Kernel("FLASHINFER_MLA", (64,), FLASHINFER_MLA.kv_dtypes, multiples=False)
CUTLASS_MLA: Final = Kernel("CUTLASS_MLA", (128,), _PLAIN | _FP8_E4M3, multiples=False)
TRITON_MLA: Final = Kernel("TRITON_MLA", (16,), _PLAIN | _FP8_E4M3)
CPU_ATTN: Final = Kernel("CPU_ATTN", (32,), frozenset({"auto"}) | FP8 - {"fp8_inc"}, preferred_block=128)
CPU_MLA: Final = Kernel("CPU_MLA", (16,), CPU_ATTN.kv_dtypes, multiples=False, exact_block=True)

FLASH_ATTN_MLA_SPARSE: Final = Kernel("FLASH_ATTN_MLA_SPARSE", (64,), _PLAIN, sparse=True, row_unit=1)
FLASHMLA_SPARSE: Final = Kernel(
    "FLASHMLA_SPARSE",
    (64,),
    frozenset({"auto", "bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla"}),
    sparse=True,
    row_unit=1,
)
FLASHINFER_MLA_SPARSE: Final = Kernel("FLASHINFER_MLA_SPARSE", (32,), _PLAIN | _FP8_E4M3, sparse=True, row_unit=32)
FLASHINFER_MLA_SPARSE_SM90: Final = Kernel(
    "FLASHINFER_MLA_SPARSE_SM90", (64,), frozenset({"auto", "bfloat16"}) | _FP8_E4M3, sparse=True, row_unit=1
)
FLASHINFER_MLA_SPARSE_SM120: Final = Kernel(
    "FLASHINFER_MLA_SPARSE_SM120", (64,), frozenset({"auto", "fp8_ds_mla"}) | _FP8_E4M3, sparse=True, row_unit=64
)

# Kernels that a model's class insists on, or that read caches out of band, by the name facts give them.
FIXED: Final = {
    kernel.name: kernel
    for kernel in (
        Kernel("DEEPSEEK_V32_INDEXER", (64,), FLOATS, multiples=False),
        Kernel("DEEPSEEK_V4", (256,), FLOATS, multiples=False, preferred_block=256),
        Kernel("DIFFKV", (16,), _PLAIN | _FP8_E4M3),
        Kernel("DOTS3_NOTE_PADDED_MLA_SPARSE", (64,), _PLAIN, sparse=True, row_unit=1),
        Kernel("MINIMAX_M3_SPARSE", (128,), FLOATS | FP8, multiples=False),
        Kernel("MINIMAX_M3_SPARSE_INDEXER", (128,), FLOATS, multiples=False),
        Kernel("QWEN4_QSA", (16,), _PLAIN | _FP8_E4M3),
        Kernel("QWEN4_QSA_STATE", (1,), FLOATS),
        FLASH_ATTN,
        FLASHMLA_SPARSE,
        TRITON_ATTN,
        TRITON_MLA,
    )
}


def indexer_kernel(keys: IndexerKeys) -> Kernel:
    """The kernel that scores an indexer's keys; pooled keys need blocks of 32 or 64 of them."""
    kernel = FIXED[keys.kernel]
    if keys.tokens_per_key == 1 or kernel.name != "DEEPSEEK_V32_INDEXER":
        return kernel
    pool = keys.tokens_per_key
    return Kernel(kernel.name, (32 * pool, 64 * pool), kernel.kv_dtypes, multiples=False)


def softmax_kernel(heads: SoftmaxAttention, facts: ModelFacts, options: EngineOptions, kv_dtype: str) -> Kernel:
    """The kernel of a softmax layer.

    Raises:
        Refusal: no kernel of this device runs it, or the one that does cannot read that cache dtype.
    """
    if options.on_cpu:
        return _readable(CPU_ATTN, kv_dtype, options)
    if heads.kernel is not None:
        return _readable(FIXED[heads.kernel], kv_dtype, options)
    for kernel in _softmax_candidates(heads, facts, options):
        if kv_dtype in kernel.kv_dtypes and _runs_softmax(kernel, heads, facts, options, kv_dtype):
            return _readable(kernel, kv_dtype, options)
    raise _none_found(kv_dtype, f"head size {heads.head_dim}", options)


def latent_kernel(latent: LatentAttention, facts: ModelFacts, options: EngineOptions, kv_dtype: str) -> Kernel:
    """The kernel of an MLA layer.

    Raises:
        Refusal: as ``softmax_kernel``.
    """
    if options.on_cpu:
        return _readable(CPU_MLA, kv_dtype, options)
    if latent.kernel is not None:
        return _readable(FIXED[latent.kernel], kv_dtype, options)
    candidates = _sparse_candidates(latent, options, kv_dtype) if latent.sparse else _latent_candidates(options)
    for kernel in candidates:
        if kv_dtype in kernel.kv_dtypes and _runs_latent(kernel, latent, facts, options, kv_dtype):
            return _readable(kernel, kv_dtype, options)
    kind = "sparse MLA" if latent.sparse else "MLA"
    raise _none_found(kv_dtype, f"{kind} with head size {latent.latent_dim + latent.rope_dim}", options)


def common_block(kernels: Sequence[Kernel]) -> int:
    """The block size vLLM starts from: 16 tokens if every kernel takes it, else the smallest that all take.

    Source: vLLM 0.32 ``platforms/interface.py _preferred_block_size_for_backends``.
    """
    distinct = tuple(dict.fromkeys(kernels))
    if len(distinct) == 1:
        only = distinct[0]
        if only.preferred_block is not None:
            return only.preferred_block
        return DEFAULT_BLOCK if only.accepts(DEFAULT_BLOCK) else only.smallest_block
    if all(kernel.accepts(DEFAULT_BLOCK) for kernel in distinct):
        return DEFAULT_BLOCK
    for candidate in sorted(_common_multiples(distinct)):
        if all(kernel.accepts(candidate) for kernel in distinct):
            return candidate
    names = ", ".join(kernel.name for kernel in distinct)
    raise Refusal(NO_ATTENTION_BACKEND, f"The attention backends share no supported KV cache block size ({names}).")


def _common_multiples(kernels: Sequence[Kernel]) -> set[int]:
    multiples = {1}
    for kernel in kernels:
        multiples = {lcm(size, block) for size in multiples for block in kernel.blocks}
    return multiples


def _softmax_candidates(heads: SoftmaxAttention, facts: ModelFacts, options: EngineOptions) -> Iterator[Kernel]:
    """In order of preference; datacentre Blackwell takes FlashInfer first, everybody else FlashAttention."""
    if options.attention_backend is not None:
        yield _named(options.attention_backend, (FLASH_ATTN, FLASHINFER, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT_ATTN))
        return
    flashinfer = FLASHINFER_LARGE if _large_pages(facts, options) else FLASHINFER
    if options.capability[0] == 10:  # noqa: PLR2004 # SM100 and its family
        yield from (flashinfer, FLASH_ATTN)
    else:
        yield from (FLASH_ATTN, flashinfer)
    yield from (TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT_ATTN)
    del heads


def _large_pages(facts: ModelFacts, options: EngineOptions) -> bool:
    """Whether FlashInfer runs its TensorRT kernels, which take blocks up to 1,024 tokens."""
    queries = facts.dims.query_heads // options.tensor_parallel
    kv_heads = max(1, facts.dims.kv_heads // options.tensor_parallel)
    return options.capability[0] == 10 and queries // kv_heads > 1  # noqa: PLR2004


def _runs_softmax(
    kernel: Kernel, heads: SoftmaxAttention, facts: ModelFacts, options: EngineOptions, kv_dtype: str
) -> bool:
    if options.block_size is not None and not kernel.accepts(options.block_size):
        return False
    capability, dim = options.capability, heads.head_dim
    prefix_lm = facts.prefix_lm and not options.text_only
    if kernel is FLASH_ATTN:
        hopper = capability[0] == 9  # noqa: PLR2004
        fits = capability >= (8, 0) and dim % 8 == 0 and dim <= 256  # noqa: PLR2004
        return fits and not prefix_lm and (hopper or not (heads.sinks or quantised(kv_dtype)))
    if kernel.name == FLASHINFER.name:
        return (
            (8, 0) <= capability <= (12, 1)
            and dim in {64, 128, 256, 512}
            and not prefix_lm
            and (not heads.sinks or capability[0] >= 10)  # noqa: PLR2004
            and (kv_dtype not in NVFP4 or _reads_nvfp4(heads, capability, kv_dtype))
        )
    return kernel is not TRITON_ATTN or dim >= 32  # noqa: PLR2004


def _reads_nvfp4(heads: SoftmaxAttention, capability: tuple[int, int], kv_dtype: str) -> bool:
    """FlashInfer reads NVFP4 natively on SM100; elsewhere through FA2, without head size 64 or sinks."""
    if capability[0] == 10:  # noqa: PLR2004
        return True
    return kv_dtype == "nvfp4" and heads.head_dim != 64 and not heads.sinks  # noqa: PLR2004


def _latent_candidates(options: EngineOptions) -> Iterator[Kernel]:
    if options.attention_backend is not None:
        yield _named(options.attention_backend, (FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, CUTLASS_MLA, TRITON_MLA))
        return
    major, old = options.capability[0], options.rules.flashmla_first
    if major == 10:  # noqa: PLR2004
        yield from (FLASHINFER_MLA_64 if old else FLASHINFER_MLA, CUTLASS_MLA)
    elif major == 9:  # noqa: PLR2004
        yield from (FLASHMLA, FLASH_ATTN_MLA) if old else (FLASH_ATTN_MLA, FLASHMLA)
    yield TRITON_MLA


def _sparse_candidates(latent: LatentAttention, options: EngineOptions, kv_dtype: str) -> Iterator[Kernel]:
    major = options.capability[0]
    if options.attention_backend is not None:
        yield _named(
            options.attention_backend,
            (
                FLASHMLA_SPARSE,
                FLASHINFER_MLA_SPARSE,
                FLASH_ATTN_MLA_SPARSE,
                FLASHINFER_MLA_SPARSE_SM90,
                FLASHINFER_MLA_SPARSE_SM120,
            ),
        )
    elif major == 10:  # noqa: PLR2004
        few_heads = latent.query_heads // options.tensor_parallel <= 16  # noqa: PLR2004
        pair = (FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE)
        yield from pair if quantised(kv_dtype) or few_heads else reversed(pair)
    elif major == 12:  # noqa: PLR2004
        yield FLASHINFER_MLA_SPARSE_SM120
    elif major == 9:  # noqa: PLR2004
        rest = (FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE)
        rope_free = latent.latent_dim + latent.rope_dim == 512  # noqa: PLR2004
        yield from (FLASHINFER_MLA_SPARSE_SM90, *rest) if rope_free else (*rest, FLASHINFER_MLA_SPARSE_SM90)


def _runs_latent(
    kernel: Kernel, latent: LatentAttention, facts: ModelFacts, options: EngineOptions, kv_dtype: str
) -> bool:
    if options.block_size is not None and not kernel.accepts(options.block_size):
        return False
    row = latent.latent_dim + latent.rope_dim
    if kernel is FLASHINFER_MLA_64:
        return latent.nope_dim == 128  # noqa: PLR2004
    if kernel is FLASHINFER_MLA:
        return latent.nope_dim in {0, 64, 128, 192}
    if kernel is FLASHMLA_SPARSE:
        return row == 576 or (row == 512 and options.capability[0] == 9 and kv_dtype in _PLAIN)  # noqa: PLR2004
    if kernel is FLASHINFER_MLA_SPARSE:
        return latent.nope_dim in {128, 192} if latent.rope_dim else latent.nope_dim == 256  # noqa: PLR2004
    if kernel is FLASHINFER_MLA_SPARSE_SM90:
        return latent.latent_dim == 512 and latent.rope_dim in {0, 64}  # noqa: PLR2004
    if kernel is FLASH_ATTN_MLA_SPARSE:
        return "index_topk" in facts.raw and options.decode_context_parallel == 1
    return True


def _readable(kernel: Kernel, kv_dtype: str, options: EngineOptions) -> Kernel:
    """The kernel, unless it turns the cache dtype down when it is built."""
    if kernel.name in {"TRITON_ATTN", "TRITON_MLA"} and kv_dtype.startswith("fp8") and options.capability < _FP8_FLOOR:
        version = ".".join(map(str, options.capability))
        what = "Triton MLA" if kernel is TRITON_MLA else "Triton attention"
        raise Refusal(
            KV_DTYPE_UNSUPPORTED,
            f"FP8 KV cache is not supported by the {what} backend on this device (compute capability {version}); "
            "native FP8 (fp8e4nv) requires SM89+. Use bfloat16, or float16 below capability 8.0.",
        )
    if kv_dtype not in kernel.kv_dtypes:
        raise Refusal(KV_DTYPE_UNSUPPORTED, f"The {kernel.name} backend does not support kv_cache_dtype {kv_dtype}.")
    return kernel


def _named(name: str, known: Sequence[Kernel]) -> Kernel:
    wanted = name.upper()
    for kernel in known:
        if kernel.name == wanted:
            return kernel
    raise Refusal(
        BAD_FLAG, f"attention_backend {name!r} does not fit this model; one of {[k.name for k in known]} does."
    )


def _none_found(kv_dtype: str, what: str, options: EngineOptions) -> Refusal:
    version = ".".join(map(str, options.capability))
    return Refusal(
        NO_ATTENTION_BACKEND,
        f"No valid attention backend found for {what}, kv_cache_dtype {kv_dtype} on compute capability {version}.",
    )
