"""From arguments, GPU and recorded layout to the KV pool, or to the refusal that vLLM would print."""

from __future__ import annotations

import math
from dataclasses import dataclass

from e2e.fleet import layouts
from e2e.fleet.gpus import GIB, Gpu
from e2e.fleet.layouts import Layout, Rejection
from e2e.fleet.vllm_args import EngineArgs

CONCURRENT_BATCHES = 2  # async scheduling, the default on CUDA: two steps may be in flight


@dataclass(frozen=True)
class Pool:
    """The KV cache one engine starts with."""

    layout: Layout
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    available_bytes: int
    num_blocks: int

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

    def blocks_held(self, tokens: int) -> int:
        """Blocks of a decoding request with ``tokens`` computed: windows without the in-flight reservation."""
        return self.layout.blocks(tokens, 0)


class Refusal(Exception):  # noqa: N818 - the field's word for what vLLM does
    """vLLM would not start. ``case`` names the recorded refusal whose log shape is shown."""

    def __init__(self, case: str, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.case = case
        self.exit_code = exit_code


def check_config(args: EngineArgs, visible_gpus: int) -> None:
    """What vLLM refuses from its configuration, before any engine process exists.

    Raises:
        Refusal: utilisation above one, more ranks than GPUs, heads that do not divide.

    """
    utilisation = args["gpu_memory_utilization"]
    if utilisation > 1:
        raise Refusal(
            "bad_value_range",
            f"  Input should be less than or equal to 1 [type=less_than_equal, input_value={utilisation}, "
            "input_type=float]",
        )
    if visible_gpus == 0:
        raise Refusal("missing_model_dir", "RuntimeError: Failed to infer device type, no GPU is visible")
    ranks = args["tensor_parallel_size"]
    heads = layouts.heads_of(args.model)
    if heads is not None and heads % ranks:
        raise Refusal("tp_not_dividing_heads", _heads_text(heads, ranks))
    if ranks > visible_gpus:
        raise Refusal("tp_not_dividing_heads", _world_size_text(ranks, visible_gpus))


def size(args: EngineArgs, gpu: Gpu, *, allow_long: bool = False) -> Pool:
    """The pool of this start.

    Raises:
        Refusal: as vLLM refuses. NotRecordedError: as :func:`layouts.find`.

    """
    found = layouts.find(args, gpu)
    if isinstance(found, Rejection):
        raise Refusal("kv_too_small_for_max_model_len", f"ValueError: {found.text.removeprefix('rejected by vLLM: ')}")
    limit = _max_model_len(found, args, allow_long=allow_long)
    batched = args["max_num_batched_tokens"] or _recorded_batched(found, gpu)
    available = _available_bytes(found, args, gpu)
    pool = Pool(
        layout=found,
        max_model_len=limit,
        max_num_seqs=args["max_num_seqs"] or gpu.default_seqs,
        max_num_batched_tokens=batched,
        available_bytes=available,
        num_blocks=available // found.bytes_per_block,
    )
    pool = _auto_fit(pool) if args["max_model_len"] == -1 else pool
    _check_fit(pool)
    _check_state_blocks(pool, args)
    return pool


def _recorded_batched(layout: Layout, gpu: Gpu) -> int:
    return layout.max_num_batched_tokens if layout.device == gpu.device else gpu.default_batched_tokens


def _max_model_len(layout: Layout, args: EngineArgs, *, allow_long: bool) -> int:
    overrides = args["hf_overrides"] if isinstance(args["hf_overrides"], dict) else {}
    limit = int(overrides.get("max_position_embeddings", layout.hf_max_model_len))
    asked = args["max_model_len"]
    if asked in {None, -1}:
        return limit
    if asked > limit and not allow_long:
        raise Refusal("max_model_len_above_model", _above_model_text(asked, limit))
    return int(asked)


def _available_bytes(layout: Layout, args: EngineArgs, gpu: Gpu) -> int:
    if layout.weight_bytes is None:
        if args["kv_cache_memory_bytes"]:
            return int(args["kv_cache_memory_bytes"])
        raise layouts.NotRecordedError(f"weights of {layout.title} were not recorded; give --kv-cache-memory-bytes")
    if layout.weight_bytes > gpu.free_at_start_bytes:
        raise Refusal("kv_too_small_for_max_model_len", _out_of_memory_text(layout.weight_bytes, gpu))
    if args["kv_cache_memory_bytes"]:
        return int(args["kv_cache_memory_bytes"])
    requested = math.ceil(gpu.torch_total_bytes * args["gpu_memory_utilization"])
    if requested > gpu.free_at_start_bytes:
        raise Refusal("kv_too_small_for_max_model_len", _free_memory_text(gpu, args, requested))
    available = requested - layout.weight_bytes - gpu.reserve_bytes(layout.tensor_parallel)
    if available <= 0:
        raise Refusal("kv_too_small_for_max_model_len", NO_MEMORY)
    return available


def _auto_fit(pool: Pool) -> Pool:
    longest = _longest_that_fits(pool)
    if longest == 0:
        raise Refusal("kv_too_small_for_max_model_len", NO_MEMORY)
    return Pool(**{**vars(pool), "max_model_len": longest})


def _fits(pool: Pool, tokens: int) -> bool:
    """One block of the pool is the null block and holds nothing."""
    block = pool.layout.bytes_per_block
    return block * pool.layout.blocks(tokens, pool.in_flight_tokens) <= pool.available_bytes - block


def _longest_that_fits(pool: Pool) -> int:
    low, high = 0, pool.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _fits(pool, middle) else (low, middle - 1)
    return low


def _check_fit(pool: Pool) -> None:
    if _fits(pool, pool.max_model_len):
        return
    needed = pool.layout.bytes_per_block * pool.blocks_per_max_request
    longest = _longest_that_fits(pool)
    estimate = (
        f"Based on the available memory, the estimated maximum model length is {longest}. " if longest > 0 else ""
    )
    raise Refusal(
        "kv_too_small_for_max_model_len",
        f"ValueError: To serve at least one request with the model's max seq len ({pool.max_model_len}), "
        f"({_gib(needed)} GiB KV cache is needed, which is larger than the available KV cache memory "
        f"({_gib(pool.available_bytes)} GiB). {estimate}Try increasing `gpu_memory_utilization` (which also controls "
        f"CPU memory on the CPU backend) or decreasing `max_model_len` when initializing the engine. {SEE}",
    )


def _check_state_blocks(pool: Pool, args: EngineArgs) -> None:
    """Full CUDA graphs need one state block a sequence; eager engines do not check."""
    if not pool.layout.has_state or args["enforce_eager"] or pool.max_num_seqs <= pool.num_blocks:
        return
    raise Refusal(
        "kv_too_small_for_max_model_len",
        f"ValueError: max_num_seqs ({pool.max_num_seqs}) exceeds available Mamba cache blocks ({pool.num_blocks}). "
        "Each decode sequence requires one Mamba cache block, so CUDA graph capture cannot proceed. Please lower "
        f"max_num_seqs to at most {pool.num_blocks} or increase gpu_memory_utilization.",
    )


SEE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
NO_MEMORY = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
    f"initializing the engine. {SEE}"
)


def _gib(size_bytes: int) -> str:
    return str(round(size_bytes / GIB, 2))


def _heads_text(heads: int, ranks: int) -> str:
    return (
        f"  Value error, Total number of attention heads ({heads}) must be divisible by tensor parallel size ({ranks}). "
        "[type=value_error, input_value=ArgsKwargs((), {'model_co... 'shutdown_timeout': 0}), input_type=ArgsKwargs]"
    )


def _world_size_text(ranks: int, visible: int) -> str:
    return (
        f"  Value error, World size ({ranks}) is larger than the number of available GPUs ({visible}) in this node. "
        "[type=value_error, input_value=ArgsKwargs((), {'model_co... 'shutdown_timeout': 0}), input_type=ArgsKwargs]"
    )


def _above_model_text(asked: int, limit: int) -> str:
    return (
        f"  Value error, User-specified max_model_len ({asked}) is greater than the derived max_model_len "
        f"(max_position_embeddings={float(limit)} or model_max_length=None in model's config.json). To allow "
        "overriding this maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must "
        "be used with extreme caution. [type=value_error, input_value=ArgsKwargs((), {'model': ...nderer_num_workers': "
        "1}), input_type=ArgsKwargs]"
    )


def _out_of_memory_text(weight_bytes: int, gpu: Gpu) -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of {gpu.torch_total_bytes / GIB:.2f} "
        f"GiB of which {gpu.free_at_start_bytes / GIB:.2f} GiB is free; the weights of this rank take "
        f"{weight_bytes / GIB:.2f} GiB."
    )


def _free_memory_text(gpu: Gpu, args: EngineArgs, requested: int) -> str:
    return (
        f"ValueError: Free memory on device cuda:0 ({_gib(gpu.free_at_start_bytes)}/{_gib(gpu.torch_total_bytes)} GiB) "
        f"on startup is less than desired GPU memory utilization ({args['gpu_memory_utilization']}, {_gib(requested)} "
        "GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
