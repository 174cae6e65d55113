"""Which recorded vLLM layout a start uses. Nothing here computes a layout: an unrecorded start is an error.

Rows are vLLM 0.32's own planner output (``data/README.md``). The product's planner is never asked, so a planner
error shows as a pool that differs from the prediction.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from e2e.fleet import gpus, recordings
from e2e.fleet.gpus import Gpu
from e2e.fleet.vllm_args import EngineArgs

LAYOUT_FLAGS = (
    "block_size",
    "enable_prefix_caching",
    "disable_hybrid_kv_cache_manager",
)
# Flags that change the layout or the weights and that no recording varied: set, they are an error.
UNRECORDED_FLAGS = (
    *("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size"),
    *("speculative_config", "spec_method", "mamba_cache_dtype", "mamba_ssm_cache_dtype", "mamba_block_size"),
    *("kv_cache_dtype_skip_layers", "num_gpu_blocks_override", "kv_transfer_config", "cpu_offload_gb"),
)
_FLOATS = frozenset({"bfloat16", "float16", "half"})


class NotRecordedError(Exception):
    """Nobody recorded what this start would do; the message says what was asked and what exists."""


@dataclass(frozen=True)
class Spec:
    """Blocks of one layer kind: ``full`` grows with the request, the others stop at a window or are constant."""

    kind: str
    block_tokens: int
    window_tokens: int

    def blocks(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks that a request of ``tokens`` holds while up to ``in_flight_tokens`` are being computed.

        Source: section 2.5 of the memory specification (vLLM 0.32 ``v1/kv_cache_interface.py``); the recorded
        results are the test.
        """
        if self.kind == "full":
            return _ceil(tokens, self.block_tokens)
        if self.kind == "sliding":
            return _ceil(min(self.window_tokens - 1 + in_flight_tokens, tokens), self.block_tokens) + 1
        return _ceil(min(self.window_tokens + in_flight_tokens, tokens), self.block_tokens)


@dataclass(frozen=True)
class Group:
    """Layers that share block ids; a state group (no specs) costs ``state_blocks`` whatever the length."""

    specs: tuple[Spec, ...]
    state_blocks: int
    gated_delta_net: bool = False

    def blocks(self, tokens: int, in_flight_tokens: int) -> int:
        if not self.specs:
            return self.state_blocks
        return max(spec.blocks(tokens, in_flight_tokens) for spec in self.specs)


@dataclass(frozen=True)
class Layout:
    """One recorded engine configuration; bytes are per GPU."""

    model: str
    device: str
    tensor_parallel: int
    kv_cache_dtype: str
    cache_dtype: str
    model_dtype: str
    extra_args: tuple[tuple[str, Any], ...]
    hf_max_model_len: int
    attention_heads: int | None
    block_tokens: int
    bytes_per_block: int
    weight_bytes: int | None
    max_num_batched_tokens: int
    prefix_caching: bool
    mamba_block_tokens: int | None
    mamba_page_bytes: int | None
    mamba_cache_mode: str
    attention_backends: tuple[str, ...]
    stores_model_dtype: bool
    groups: tuple[Group, ...]

    @property
    def has_state(self) -> bool:
        return any(not group.specs for group in self.groups)

    @property
    def gated_delta_net(self) -> bool:
        return any(group.gated_delta_net for group in self.groups)

    @property
    def shape(self) -> tuple[object, ...]:
        """What must be equal on every recorded device before a row may stand in for another device."""
        return (self.block_tokens, self.bytes_per_block, self.groups)

    @property
    def title(self) -> str:
        extra = "".join(f", {name}={value}" for name, value in self.extra_args)
        return f"{self.model} on {self.device}, tp {self.tensor_parallel}, kv {self.kv_cache_dtype}{extra}"

    def blocks(self, tokens: int, in_flight_tokens: int) -> int:
        """Pool blocks that one request of ``tokens`` holds, over all groups."""
        return sum(group.blocks(tokens, in_flight_tokens) for group in self.groups)


@dataclass(frozen=True)
class Rejection:
    """A start that recorded vLLM refused before planning (attention backend, head counts)."""

    model: str
    device: str
    tensor_parallel: int
    kv_cache_dtype: str
    text: str


def find(args: EngineArgs, gpu: Gpu) -> Layout | Rejection:
    """The recorded row of this start.

    Raises:
        NotRecordedError: no recording, or one that does not carry over to this device.

    """
    _refuse_unrecorded_flags(args)
    rows = [row for row in _rows() if row.model == model_key(args.model)]
    if not rows:
        close = difflib.get_close_matches(model_key(args.model), _models(), n=5, cutoff=0.4)
        raise NotRecordedError(f"no layout of model {args.model!r} is recorded; of {len(_models())}, closest: {close}")
    rejection = _rejection(args, gpu, rows)
    if rejection is not None:
        return rejection
    wanted = [row for row in rows if isinstance(row, Layout) and _matches(row, args)]
    row = _on_device(wanted, gpu)
    if row is None:
        raise NotRecordedError(_not_recorded(args, gpu, rows))
    _check_prefill_backend(row, args, gpu)
    return row


def all_layouts() -> list[Layout]:
    """Every recorded engine configuration."""
    return [row for row in _rows() if isinstance(row, Layout)]


def heads_of(model: str) -> int | None:
    """Attention heads as the model's own configuration says; None when unknown."""
    known = [row.attention_heads for row in all_layouts() if row.model == model_key(model)]
    return known[0] if known else None


def model_key(model: str) -> str:
    """The recording's name for an id ('Qwen/Qwen3.5-9B') or a local path ending in one."""
    parts = [part for part in model.replace("--", "/").split("/") if part]
    key = "--".join(parts[-2:])
    if key in _models() or not parts:
        return key
    if f"{key}(text)" in _models():  # recorded without its vision tower
        return f"{key}(text)"
    by_name = [name for name in _models() if name.split("--")[-1] == parts[-1]]
    return by_name[0] if len(by_name) == 1 else key


def _matches(row: Layout, args: EngineArgs) -> bool:
    return (
        row.tensor_parallel == args["tensor_parallel_size"] and _same_dtype(row, args) and _same_layout_flags(row, args)
    )


def _same_dtype(row: Layout, args: EngineArgs) -> bool:
    asked = args["kv_cache_dtype"]
    if asked == "fp8_e4m3":
        asked = "fp8"
    if asked in _FLOATS:
        return row.kv_cache_dtype == "auto" and row.stores_model_dtype and row.model_dtype == asked
    return bool(asked == row.kv_cache_dtype or (row.kv_cache_dtype == "auto" and row.cache_dtype == asked))


def _same_layout_flags(row: Layout, args: EngineArgs) -> bool:
    """A flag that asks for what the row already has is no difference."""
    extra = dict(row.extra_args)
    block = args["block_size"]
    same_block = block == extra.get("block_size") or (not row.has_state and block == row.block_tokens)
    caching_off = args["enable_prefix_caching"] is False
    same_caching = not row.has_state or caching_off == (extra.get("enable_prefix_caching") is False)
    manager_off = bool(args["disable_hybrid_kv_cache_manager"])
    one_group = len(row.groups) == 1
    same_manager = manager_off == bool(extra.get("disable_hybrid_kv_cache_manager")) or one_group
    return bool(same_block and same_caching and same_manager)


def _on_device(rows: Sequence[Layout], gpu: Gpu) -> Layout | None:
    """The device's own row, or any row when all recorded devices agree."""
    ranked = sorted(rows, key=lambda row: len(row.extra_args))
    own = [row for row in ranked if row.device == gpu.device]
    if own:
        return own[0]
    plain = [row for row in ranked if len(row.extra_args) == len(ranked[0].extra_args)]
    return plain[0] if len({row.shape for row in plain}) == 1 else None


def _rejection(args: EngineArgs, gpu: Gpu, rows: Iterable[Layout | Rejection]) -> Rejection | None:
    asked = (gpu.device, args["tensor_parallel_size"], args["kv_cache_dtype"])
    for row in rows:
        if isinstance(row, Rejection) and (row.device, row.tensor_parallel, row.kv_cache_dtype) == asked:
            return row
    return None


def _check_prefill_backend(row: Layout, args: EngineArgs, gpu: Gpu) -> None:
    """Every gated-delta-net row was recorded with Triton; left alone, SM90 and newer take FlashInfer's block size."""
    chosen = args["gdn_prefill_backend"] or ("triton" if gpu.compute_capability < (9, 0) else "flashinfer")
    if row.gated_delta_net and chosen != "triton":
        asked = args["gdn_prefill_backend"] or "unset"
        raise NotRecordedError(
            f"--gdn-prefill-backend {asked} on {gpu.product} is not recorded for {args.model}; only triton is"
        )


def _refuse_unrecorded_flags(args: EngineArgs) -> None:
    single = {"pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size"}
    for name in UNRECORDED_FLAGS:
        value = args[name]
        if name not in args.given or not value or value == "auto" or (name in single and value == 1):
            continue
        raise NotRecordedError(f"--{name.replace('_', '-')} {value} changes the layout and was never recorded")


def _not_recorded(args: EngineArgs, gpu: Gpu, rows: Sequence[Layout | Rejection]) -> str:
    flags = {name: args[name] for name in LAYOUT_FLAGS if name in args.given}
    asked = f"{args.model} on {gpu.product}, tp {args['tensor_parallel_size']}, kv {args['kv_cache_dtype']}, {flags}"
    titles = [row.title for row in rows if isinstance(row, Layout)]
    return f"asked: {asked}; recorded: {'; '.join(titles)}"


@cache
def _models() -> frozenset[str]:
    return frozenset(row["model"] for row in recordings.layout_rows())


@cache
def _rows() -> tuple[Layout | Rejection, ...]:
    return tuple(_row(row) for row in recordings.layout_rows())


def _row(row: dict[str, Any]) -> Layout | Rejection:
    device = gpus.normalise(row["device"])
    if "rejected" in row:
        return Rejection(row["model"], device, row["tp"], row["kv_cache_dtype"], row["rejected"])
    attention = [spec for group in row["groups"] for spec in group["specs"] if spec["kind"] != "state"]
    return Layout(
        model=row["model"],
        device=device,
        tensor_parallel=row["tp"],
        kv_cache_dtype=row["kv_cache_dtype"],
        cache_dtype=row["cache_dtype"],
        model_dtype=row["dtype"],
        extra_args=tuple((k, v) for k, v in row["extra_args"].items() if k != "trust_remote_code"),
        hf_max_model_len=row["hf_max_model_len"],
        attention_heads=row["attention_heads"],
        block_tokens=row["block_size"],
        bytes_per_block=row["bytes_per_block"],
        weight_bytes=row["weight_bytes_rank0"],
        max_num_batched_tokens=row["max_num_batched_tokens"],
        prefix_caching=row["enable_prefix_caching"],
        mamba_block_tokens=row["mamba_block_size"],
        mamba_page_bytes=row["mamba_page_size_padded"],
        mamba_cache_mode=row["mamba_cache_mode"],
        attention_backends=tuple(row["attention_backends"]),
        stores_model_dtype=all(spec["dtype"] == row["dtype"] and not spec["quant"] for spec in attention),
        groups=tuple(_group(group) for group in row["groups"]),
    )


def _group(group: dict[str, Any]) -> Group:
    specs = [spec for spec in group["specs"] if spec["kind"] != "state"]
    if len(specs) < len(group["specs"]):
        return Group((), group["blocks"], any(spec["gdn"] for spec in group["specs"]))
    return Group(tuple(Spec(spec["kind"], spec["block"], spec.get("window", 0)) for spec in specs), 0)


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)
