"""From arguments, GPU and recorded layout to the KV pool, or to the refusal that vLLM would print."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from e2e.fleet import layouts, refusals
from e2e.fleet.gpus import Gpu
from e2e.fleet.layouts import Layout, Rejection
from e2e.fleet.vllm_args import EngineArgs

CONCURRENT_BATCHES = 2  # async scheduling, the default on CUDA: two steps may be in flight


@dataclass
class Trouble:
    """What an outside hand does to the memory of engines that start from now on (bytes of each GPU)."""

    missing_bytes: int = 0
    """The engine itself takes so much more than recorded: its pool is smaller."""
    taken_bytes: int = 0
    """Somebody else holds so much of the GPU when the engine starts."""


WELL = Trouble()


@dataclass(frozen=True)
class Pool:
    """The KV cache one engine starts with."""

    layout: Layout
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    available_bytes: int

    @property
    def num_blocks(self) -> int:
        return self.available_bytes // self.layout.bytes_per_block

    @property
    def in_flight_tokens(self) -> int:
        return CONCURRENT_BATCHES * self.max_num_batched_tokens

    @property
    def blocks_per_max_request(self) -> int:
        return self.layout.blocks(self.max_model_len, self.in_flight_tokens)

    @property
    def max_concurrency(self) -> float:
        return self.num_blocks / self.blocks_per_max_request

    @property
    def size_tokens(self) -> int:
        return int(self.max_concurrency * self.max_model_len)

    @property
    def longest_that_fits(self) -> int:
        """The largest length one request may have, up to ``max_model_len``; 0 when not even one token fits."""
        low, high = 0, self.max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.fits(middle) else (low, middle - 1)
        return low

    def fits(self, tokens: int) -> bool:
        """One block of the pool is the null block and holds nothing."""
        block = self.layout.bytes_per_block
        return block * self.layout.blocks(tokens, self.in_flight_tokens) <= self.available_bytes - block

    def blocks_held(self, tokens: int) -> int:
        """Blocks of a decoding request with ``tokens`` computed: windows without the in-flight reservation."""
        return self.layout.blocks(tokens, 0)


def check_config(args: EngineArgs, visible_gpus: int) -> None:
    """What vLLM refuses from its configuration, before any engine process exists.

    Raises:
        Refusal: utilisation above one, no GPU, heads that do not divide, more ranks than GPUs.

    """
    ranks, heads = args["tensor_parallel_size"], layouts.heads_of(args.model)
    if args["gpu_memory_utilization"] > 1:
        raise refusals.utilisation_out_of_range(args["gpu_memory_utilization"])
    if visible_gpus == 0:
        raise refusals.no_device()
    if heads is not None and heads % ranks:
        raise refusals.heads_not_divisible(heads, ranks)
    if ranks > visible_gpus:
        raise refusals.world_size_above_gpus(ranks, visible_gpus)


def size(args: EngineArgs, gpu: Gpu, *, allow_long: bool = False, trouble: Trouble = WELL) -> Pool:
    """The pool of this start.

    Raises:
        Refusal: as vLLM refuses. NotRecordedError: as :func:`layouts.find`.

    """
    layout = layouts.find(args, gpu)
    if isinstance(layout, Rejection):
        raise refusals.rejected_before_planning(layout.text)
    pool = Pool(
        layout=layout,
        max_model_len=_max_model_len(layout, args, allow_long=allow_long),
        max_num_seqs=args["max_num_seqs"] or gpu.default_seqs,
        max_num_batched_tokens=args["max_num_batched_tokens"] or _default_batched_tokens(layout, gpu),
        available_bytes=_available_bytes(layout, args, gpu, trouble),
    )
    if args["max_model_len"] == -1 and pool.longest_that_fits:
        pool = replace(pool, max_model_len=pool.longest_that_fits)
    _check_fit(pool, full_graphs=not args["enforce_eager"])
    return pool


def _default_batched_tokens(layout: Layout, gpu: Gpu) -> int:
    return layout.max_num_batched_tokens if layout.device == gpu.device else gpu.default_batched_tokens


def _max_model_len(layout: Layout, args: EngineArgs, *, allow_long: bool) -> int:
    overrides = args["hf_overrides"] if isinstance(args["hf_overrides"], dict) else {}
    limit = int(overrides.get("max_position_embeddings", layout.hf_max_model_len))
    asked: int | None = args["max_model_len"]
    if asked is None or asked == -1:
        return limit
    if asked > limit and not allow_long:
        raise refusals.model_len_above_model(asked, limit)
    return asked


def _available_bytes(layout: Layout, args: EngineArgs, gpu: Gpu, trouble: Trouble) -> int:
    """Bytes for KV cache on the worst rank: utilisation of the device less weights and the committed reserve."""
    free, total = gpu.free_at_start_bytes - trouble.taken_bytes, gpu.torch_total_bytes
    given: int | None = args["kv_cache_memory_bytes"]
    weights = layout.weight_bytes
    if weights is None and given is None:
        raise layouts.NotRecordedError(f"weights of {layout.title} were not recorded; give --kv-cache-memory-bytes")
    weights = weights or 0
    if weights + (given or 0) > free:
        raise refusals.out_of_memory(weights + (given or 0), free, total)
    if given is not None:
        return given
    requested: int = math.ceil(total * args["gpu_memory_utilization"])
    if requested > free:
        raise refusals.not_enough_free_memory(free, total, args["gpu_memory_utilization"], requested)
    available = requested - weights - gpu.reserve_bytes(layout.tensor_parallel) - trouble.missing_bytes
    if available <= 0:
        raise refusals.no_kv_memory()
    return available


def _check_fit(pool: Pool, *, full_graphs: bool) -> None:
    """One request of the maximum length must fit; with full CUDA graphs every sequence needs a state block."""
    if not pool.fits(pool.max_model_len):
        needed = pool.layout.bytes_per_block * pool.blocks_per_max_request
        raise refusals.kv_cache_too_small(pool.max_model_len, needed, pool.available_bytes, pool.longest_that_fits)
    if full_graphs and pool.layout.has_state and pool.max_num_seqs > pool.num_blocks:
        raise refusals.too_few_state_blocks(pool.max_num_seqs, pool.num_blocks)
