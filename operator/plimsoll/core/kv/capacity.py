"""From bytes that are left to blocks, tokens and concurrency, with vLLM's own check that one request fits.

Source: vLLM 0.32 ``v1/core/kv_cache_utils.py get_kv_cache_configs``, ``get_kv_cache_capacity``.
"""

from bisect import bisect_right
from dataclasses import dataclass

from plimsoll.core.kv.layout import KVLayout
from plimsoll.core.kv.refusals import (
    KV_CACHE_TOO_SMALL,
    MAX_NUM_SEQS_ABOVE_STATE_BLOCKS,
    NO_ATTENTION_BACKEND,
    NO_MEMORY_FOR_KV,
    Refusal,
)
from plimsoll.facts.engines import prints_worst_case_tokens

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Capacity:
    """A pool of blocks.

    ``tokens`` is what vLLM prints as the size of the cache, ``max_concurrency`` how many requests of
    ``max_model_len`` it holds. One of ``num_blocks`` is the null block, which never holds a token.
    """

    num_blocks: int
    bytes_per_block: int
    blocks_per_request: int
    tokens: int
    max_concurrency: float
    max_model_len: int


def capacity(layout: KVLayout, available_bytes: int, max_model_len: int | None = None) -> Capacity:
    """The pool that ``available_bytes`` per GPU make.

    Raises:
        Refusal: nothing is left for the cache, or one request of ``max_model_len`` does not fit beside the null block.
    """
    length = max_model_len or layout.resolved.max_model_len
    if not layout.groups:
        return Capacity(1, 0, 0, 0, 0.0, length)
    available = _overridden(layout, available_bytes)
    for check, needed in enumerate(layout.request_bytes(length)):
        _check_fits(layout, available, check, needed, length)
    blocks = min(available // stage_bytes for stage_bytes in layout.stage_bytes if stage_bytes)
    blocks_per_request = layout.blocks_for_request(length)
    concurrency = blocks / blocks_per_request
    return Capacity(
        num_blocks=blocks,
        bytes_per_block=layout.bytes_per_block,
        blocks_per_request=blocks_per_request,
        tokens=_printed_tokens(layout, blocks, concurrency, length),
        max_concurrency=concurrency,
        max_model_len=length,
    )


def fitting_max_model_len(layout: KVLayout, available_bytes: int, limit: int | None = None) -> int:
    """The longest context up to ``limit`` of which one request fits; 0 when not even one token does.

    This is vLLM's ``--max-model-len -1`` and the estimate in its refusal.
    """
    longest = limit or layout.resolved.max_model_len
    available = _overridden(layout, available_bytes)
    checks = range(len(layout.request_bytes(1))) if layout.groups else range(0)
    return min(
        (_longest_fitting(layout, _usable(layout, available, check), check, longest) for check in checks),
        default=longest,
    )


def check_split(layout: KVLayout) -> None:
    """Refuse blocks that a kernel cannot split into its own, as vLLM does once it knows the pool.

    Raises:
        Refusal: the block size somebody asked for is no multiple of the kernel's.
    """
    kernel = layout.unsplit_by
    if kernel is not None:
        raise Refusal(
            NO_ATTENTION_BACKEND,
            f"block_size {layout.options.block_size}: No common block size for {layout.block_tokens}: {kernel.name} "
            f"works with multiples of {', '.join(map(str, kernel.blocks))}; use one, or leave block_size out.",
        )


def check_sequences(layout: KVLayout, pool: Capacity, max_num_seqs: int) -> None:
    """Refuse more sequences than there are state blocks, as vLLM does when it captures full CUDA graphs.

    Raises:
        Refusal: recurrent state has fewer blocks than ``max_num_seqs``.
    """
    if layout.state_groups and max_num_seqs > pool.num_blocks:
        raise Refusal(
            MAX_NUM_SEQS_ABOVE_STATE_BLOCKS,
            f"max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({pool.num_blocks}). "
            "Lower max_num_seqs or leave more memory to the cache.",
        )


def format_gib(value: int) -> str:
    """Bytes as vLLM prints them in its refusals: GiB with two decimals, trailing zeros dropped."""
    return str(round(value / _GIB, 2))


def _overridden(layout: KVLayout, available_bytes: int) -> int:
    override = layout.options.num_blocks_override
    return available_bytes if override is None else override * layout.bytes_per_block


def _check_fits(layout: KVLayout, available_bytes: int, check: int, needed: int, length: int) -> None:
    """One request must fit beside the null block."""
    usable = _usable(layout, available_bytes, check)
    if usable <= 0:
        raise Refusal(
            NO_MEMORY_FOR_KV,
            "No available memory for the cache blocks. Try increasing gpu_memory_utilization.",
            available_bytes=available_bytes,
        )
    if needed <= usable:
        return
    estimate = _longest_fitting(layout, usable, check, length)
    hint = f"Based on the available memory, the estimated maximum model length is {estimate}. " if estimate else ""
    raise Refusal(
        KV_CACHE_TOO_SMALL,
        f"To serve at least one request with the model's max seq len ({length}), {format_gib(needed)} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({format_gib(usable)} GiB). {hint}"
        "Try increasing gpu_memory_utilization or decreasing max_model_len.",
        needed_bytes=needed,
        available_bytes=usable,
        estimated_max_model_len=estimate or None,
    )


def _usable(layout: KVLayout, available_bytes: int, check: int) -> int:
    """Bytes that the request of one check may take: all, or all but the null block."""
    return available_bytes - (layout.stage_bytes[check] if layout.options.rules.reserves_null_block else 0)


def _longest_fitting(layout: KVLayout, usable_bytes: int, check: int, limit: int) -> int:
    """The longest length that fits, 0 for none: a binary search over them, as in vLLM."""
    return bisect_right(range(1, limit + 1), usable_bytes, key=lambda length: layout.request_bytes(length)[check])


def _printed_tokens(layout: KVLayout, blocks: int, concurrency: float, length: int) -> int:
    """The token figure of the start-up line: worst-case tokens, before 0.20 blocks × block size / groups."""
    if prints_worst_case_tokens(layout.options.version):
        return int(concurrency * length)
    smallest = min(member.spec.block_tokens for group in layout.groups for member in group.members)
    return blocks // len(layout.groups) * smallest * layout.options.decode_context_parallel
