"""Which attention kernel vLLM picks for a layer, and the block sizes that kernel can work with.

The order of preference and each kernel's limits follow vLLM 0.32: ``platforms/cuda.py _get_backend_priorities`` and
``validate_configuration`` of the classes in ``v1/attention/backends``. FlashAttention 4 is taken as absent, as in the
published image without its optional packages.
"""

from collections.abc import Iterator, Sequence
from math import lcm
from typing import Final

from plimsoll.core.kv.dtypes import NVFP4, quantised
from plimsoll.core.kv.kernels import (
    CPU_ATTN,
    CPU_MLA,
    CUTLASS_MLA,
    DEFAULT_BLOCK,
    FIXED,
    FLASH_ATTN,
    FLASH_ATTN_MLA,
    FLASH_ATTN_MLA_SPARSE,
    FLASHINFER,
    FLASHINFER_LARGE,
    FLASHINFER_MLA,
    FLASHINFER_MLA_64,
    FLASHINFER_MLA_SPARSE,
    FLASHINFER_MLA_SPARSE_SM90,
    FLASHINFER_MLA_SPARSE_SM120,
    FLASHMLA,
    FLASHMLA_SPARSE,
    FLEX_ATTENTION,
    PLAIN_DTYPES,
    ROCM_AITER_MLA,
    ROCM_AITER_MLA_SPARSE,
    ROCM_INDEXER,
    TRITON_ATTN,
    TRITON_MLA,
    TURBOQUANT_ATTN,
    Kernel,
)
from plimsoll.core.kv.options import BLACKWELL, BLACKWELL_WORKSTATION, HOPPER, EngineOptions
from plimsoll.core.kv.refusals import BAD_FLAG, KV_DTYPE_UNSUPPORTED, NO_ATTENTION_BACKEND, Refusal
from plimsoll.facts.models import IndexerKeys, LatentAttention, ModelFacts, SoftmaxAttention

_AMPERE: Final = (8, 0)
_FP8_FLOOR: Final = (8, 9)
_NO_CUDA: Final = (0, 0)
# What kernels were written for: head sizes, and elements of a latent row with and without its rope part.
_FLASH_ATTN_LARGEST_HEAD: Final = 256
_FLASHINFER_HEADS: Final = frozenset({64, 128, 256, 512})
_FLASHINFER_RANGE: Final = ((8, 0), (12, 1))
_FP4_UNREAD_HEAD: Final = 64
_TRITON_SMALLEST_HEAD: Final = 32
_ROW_WITH_ROPE: Final = 576
_ROW_WITHOUT_ROPE: Final = 512
_DEEPSEEK_NOPE: Final = 128
_ROPELESS_NOPE: Final = 256
_FEW_HEADS: Final = 16

_DENSE: Final = (FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, CUTLASS_MLA, TRITON_MLA, ROCM_AITER_MLA)
_SPARSE: Final = (
    FLASHMLA_SPARSE,
    FLASHINFER_MLA_SPARSE,
    FLASH_ATTN_MLA_SPARSE,
    FLASHINFER_MLA_SPARSE_SM90,
    FLASHINFER_MLA_SPARSE_SM120,
)


def indexer_kernel(keys: IndexerKeys, options: EngineOptions) -> Kernel:
    """The kernel that scores an indexer's keys; pooled keys need blocks of 32 or 64 of them."""
    kernel = FIXED[keys.kernel]
    if options.on_rocm:
        return ROCM_INDEXER
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
    for kernel in _softmax_candidates(facts, options):
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


def _softmax_candidates(facts: ModelFacts, options: EngineOptions) -> Iterator[Kernel]:
    """In order of preference; datacentre Blackwell takes FlashInfer first, everybody else FlashAttention."""
    flashinfer = FLASHINFER_LARGE if _large_pages(facts, options) else FLASHINFER
    if options.attention_backend is not None:
        yield _named(options.attention_backend, (FLASH_ATTN, flashinfer, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT_ATTN))
        return
    first = (flashinfer, FLASH_ATTN) if options.generation == BLACKWELL else (FLASH_ATTN, flashinfer)
    yield from (*first, TRITON_ATTN, FLEX_ATTENTION, TURBOQUANT_ATTN)


def _large_pages(facts: ModelFacts, options: EngineOptions) -> bool:
    """Whether FlashInfer runs its TensorRT kernels, which take blocks up to 1,024 tokens."""
    queries = facts.dims.query_heads // options.tensor_parallel
    kv_heads = max(1, facts.dims.kv_heads // options.tensor_parallel)
    return options.generation == BLACKWELL and queries > kv_heads


def _runs_softmax(
    kernel: Kernel, heads: SoftmaxAttention, facts: ModelFacts, options: EngineOptions, kv_dtype: str
) -> bool:
    if options.block_size is not None and not kernel.accepts(options.block_size):
        return False
    bidirectional = facts.prefix_lm and not options.text_only
    if kernel is FLASH_ATTN:
        fits = heads.head_dim % 8 == 0 and heads.head_dim <= _FLASH_ATTN_LARGEST_HEAD
        plain = not (heads.sinks or quantised(kv_dtype))
        return options.capability >= _AMPERE and fits and not bidirectional and (plain or options.generation == HOPPER)
    if kernel.name == FLASHINFER.name:
        first, last = _FLASHINFER_RANGE
        fits = first <= options.capability <= last and heads.head_dim in _FLASHINFER_HEADS
        return fits and not bidirectional and _flashinfer_reads(heads, options, kv_dtype)
    return kernel is not TRITON_ATTN or heads.head_dim >= _TRITON_SMALLEST_HEAD


def _flashinfer_reads(heads: SoftmaxAttention, options: EngineOptions, kv_dtype: str) -> bool:
    """Sinks need Blackwell; NVFP4 is native on its datacentre parts, elsewhere FA2 reads it with limits."""
    if kv_dtype in NVFP4 and options.generation != BLACKWELL:
        return kv_dtype == "nvfp4" and heads.head_dim != _FP4_UNREAD_HEAD and not heads.sinks
    return not heads.sinks or options.generation >= BLACKWELL


def _latent_candidates(options: EngineOptions) -> Iterator[Kernel]:
    if options.attention_backend is not None:
        yield _named(options.attention_backend, _DENSE)
        return
    old = options.rules.flashmla_first
    if options.generation == BLACKWELL:
        yield from (FLASHINFER_MLA_64 if old else FLASHINFER_MLA, CUTLASS_MLA)
    elif options.generation == HOPPER:
        yield from (FLASHMLA, FLASH_ATTN_MLA) if old else (FLASH_ATTN_MLA, FLASHMLA)
    yield TRITON_MLA
    if options.on_rocm:
        yield ROCM_AITER_MLA


def _sparse_candidates(latent: LatentAttention, options: EngineOptions, kv_dtype: str) -> Iterator[Kernel]:
    if options.attention_backend is not None:
        yield _named(options.attention_backend, _SPARSE)
    elif options.on_rocm:
        yield ROCM_AITER_MLA_SPARSE
    elif options.generation == BLACKWELL:
        few_heads = latent.query_heads // options.tensor_parallel <= _FEW_HEADS
        pair = (FLASHINFER_MLA_SPARSE, FLASHMLA_SPARSE)
        yield from pair if quantised(kv_dtype) or few_heads else reversed(pair)
    elif options.generation == BLACKWELL_WORKSTATION:
        yield FLASHINFER_MLA_SPARSE_SM120
    elif options.generation == HOPPER:
        rest = (FLASH_ATTN_MLA_SPARSE, FLASHMLA_SPARSE)
        without_rope = latent.latent_dim + latent.rope_dim == _ROW_WITHOUT_ROPE
        yield from (FLASHINFER_MLA_SPARSE_SM90, *rest) if without_rope else (*rest, FLASHINFER_MLA_SPARSE_SM90)


def _runs_latent(
    kernel: Kernel, latent: LatentAttention, facts: ModelFacts, options: EngineOptions, kv_dtype: str
) -> bool:
    if options.block_size is not None and not kernel.accepts(options.block_size):
        return False
    row = latent.latent_dim + latent.rope_dim
    if kernel is FLASHINFER_MLA_64:
        return latent.nope_dim == _DEEPSEEK_NOPE
    if kernel is FLASHINFER_MLA:
        return latent.nope_dim in {0, 64, 128, 192}
    if kernel is FLASHMLA_SPARSE:
        plain_on_hopper = options.generation == HOPPER and kv_dtype in PLAIN_DTYPES
        return row == _ROW_WITH_ROPE or (row == _ROW_WITHOUT_ROPE and plain_on_hopper)
    if kernel is FLASHINFER_MLA_SPARSE:
        return latent.nope_dim in {128, 192} if latent.rope_dim else latent.nope_dim == _ROPELESS_NOPE
    if kernel is FLASHINFER_MLA_SPARSE_SM90:
        return latent.latent_dim == _ROW_WITHOUT_ROPE and latent.rope_dim in {0, 64}
    if kernel is FLASH_ATTN_MLA_SPARSE:
        return "index_topk" in facts.raw and options.decode_context_parallel == 1
    return True


def _readable(kernel: Kernel, kv_dtype: str, options: EngineOptions) -> Kernel:
    """The kernel, unless it turns the cache dtype down when it is built."""
    too_old = _NO_CUDA < options.capability < _FP8_FLOOR
    if kernel.name in {"TRITON_ATTN", "TRITON_MLA"} and kv_dtype.startswith("fp8") and too_old:
        version = ".".join(map(str, options.capability))
        what = "Triton MLA" if kernel is TRITON_MLA else "Triton attention"
        raise Refusal(
            KV_DTYPE_UNSUPPORTED,
            f"FP8 KV cache is not supported by the {what} backend on this device (compute capability {version}); "
            "native FP8 (fp8e4nv) requires SM89+. Use bfloat16, or float16 below capability 8.0.",
        )
    if kernel is FLASHMLA_SPARSE and options.decode_context_parallel > 1 and not quantised(kv_dtype):
        raise Refusal(
            KV_DTYPE_UNSUPPORTED,
            f"{kernel.name} with decode_context_parallel_size above 1 needs an fp8_ds_mla cache, not {kv_dtype}.",
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
