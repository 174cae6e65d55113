"""The running argv beside the planned one: what differs, and why."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from plimsoll.core.workloads.arguments import SECRET_FLAGS, Arguments, Use, read_number

SAME: Final = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "max_model_len",
    "dtype",
    "max_num_seqs",
)
"""What a replacement must share with what it replaces."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "tensor_parallel_size": "1",
    "pipeline_parallel_size": "1",
    "data_parallel_size": "1",
    "dtype": "auto",
    "kv_cache_dtype": "auto",
    "port": "8000",
    "host": "0.0.0.0",  # noqa: S104 - what vLLM does when nobody says otherwise
    "uvicorn_log_level": "info",
}
_WRITTEN_OUT: Final = "what the engine takes by itself, written out: defaults move with GPU and release"
_REASONS: Final[Mapping[str, str]] = {
    "disable_log_requests": "requests are not logged unless asked for",
    "shutdown_timeout": "requests in flight may finish when a pod ends",
    "reasoning_parser": "the model's family needs it to tell thought from answer; drop it with extraArgs of your own",
    "tool_call_parser": "the model's family needs it for tool calls",
    "enable_auto_tool_choice": "tool calls of the model's family are parsed",
    "served_model_name": "the model answers to its own name",
    "custom_histogram_buckets": "the latency targets among the bounds, so that they can be measured",
    "gdn_prefill_backend": "left alone it moves with the GPU, and with it the block size",
    "async_scheduling": "the arithmetic counts on it",
    "distributed_executor_backend": "processes of one pod: left alone, vLLM takes Ray where it finds it",
    "port": "Plimsoll serves on 8000; clients reach the Service",
    "host": "all addresses of the pod, as by default",
    "api_key": "from a Secret, by VLLM_API_KEY",
    "download_dir": "the volume is mounted where the hub's library keeps its cache",
    "enforce_eager": _WRITTEN_OUT,
    "max_num_batched_tokens": _WRITTEN_OUT,
    "max_num_seqs": _WRITTEN_OUT,
    "gpu_memory_utilization": _WRITTEN_OUT,
    "kv_cache_dtype": _WRITTEN_OUT,
    "enable_prefix_caching": _WRITTEN_OUT,
    "enable_chunked_prefill": _WRITTEN_OUT,
    "tensor_parallel_size": _WRITTEN_OUT,
    "max_model_len": "contextTokens",
    "model": "the folder is mounted at Plimsoll's own path",
    "revision": "spec.model.source",
}
_GONE: Final = "the new engine's release has no such flag"


@dataclass(frozen=True)
class Difference:
    """One flag that is not the same, as text before and after; empty where it is not written."""

    what: str
    before: str
    after: str
    reason: str


def differences(running: Arguments, planned: Sequence[str], dropped: Mapping[str, str]) -> list[Difference]:
    """By flag; ``dropped`` are reasons of those that the import left out, by what was written."""
    return list(_differences(running, Arguments(planned, positional_model=False), dropped))


def _differences(running: Arguments, planned: Arguments, dropped: Mapping[str, str]) -> Iterator[Difference]:
    names = dict.fromkeys((*running.by_dest, *planned.by_dest))
    for dest in names:
        old, new = running.get(dest), planned.get(dest)
        if dest in {"model", "model_tag"} or _equal(dest, old, new) or _names_itself(dest, new, running):
            continue
        left = next((why for what, why in dropped.items() if old is not None and what.startswith(old.written)), None)
        known = _REASONS.get(dest, _GONE if new is None else "Plimsoll sets it")
        flag = f"--{dest.replace('_', '-')}"
        yield Difference(flag, _shown(old), _shown(new), left or known)


def _names_itself(dest: str, new: Use | None, running: Arguments) -> bool:
    """A model that answers to its own name does so without being told."""
    return dest == "served_model_name" and new is not None and running.get(dest) is None and new.text == running.model


def _equal(dest: str, old: Use | None, new: Use | None) -> bool:
    before, after = _value(dest, old), _value(dest, new)
    if before is None or after is None:
        return before == after
    one, other = read_number(before), read_number(after)
    return one == other if one is not None and other is not None else before == after


def _value(dest: str, use: Use | None) -> str | None:
    if use is None:
        return _DEFAULTS.get(dest)
    if use.flag is not None and use.flag.switch:
        return "off" if use.off else "on"
    return " ".join(map(str, use.value)) if isinstance(use.value, list) else str(use.value)


def _shown(use: Use | None) -> str:
    if use is None:
        return ""
    return "(a secret)" if use.dest in SECRET_FLAGS else _value(use.dest, use) or "on"


def essential(found: Sequence[Difference]) -> list[Difference]:
    """Those that make another engine of it: parallelism, context, type, sequences; not what is only written out."""
    flags = {f"--{dest.replace('_', '-')}" for dest in SAME}
    return [each for each in found if each.what in flags and each.before and each.after]
