"""Flags of ``vllm serve`` by name (underscores) → options of the planner, refused as the release would refuse them."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.core.kv.refusals import BAD_FLAG, Refusal
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion

_SUFFIXES: Final[Mapping[str, int]] = {
    "": 1, "k": 1000, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30
}  # fmt: skip
_COUNT: Final = re.compile(r"(\d{1,15})([kKmMgG]?)(?:i?[bB])?")
_GIB: Final = 1 << 30
_LARGEST: Final = 1 << 50
_WORDS: Final[Mapping[str, bool]] = {"true": True, "false": False, "1": True, "0": False}

_NO_GRAPHS: Final = frozenset({"none", "0"})
_POOLING: Final = frozenset({"pooling", "embed", "embedding", "classify", "score", "reward"})

# Set by the same name in two releases, or by an alias.
_ALIASES: Final[Mapping[str, str]] = {
    "device_memory_utilization": "gpu_memory_utilization",
    "kv_cache_memory": "kv_cache_memory_bytes",
    "cuda_graph_sizes": "cudagraph_capture_sizes",
}


_GROUPS_SINCE: Final = 21
"""First release whose connectors keep the groups of the hybrid KV manager."""
_GROUP_AWARE: Final = frozenset(
    {"OffloadingConnector", "SimpleCPUOffloadConnector", "NixlConnector", "MooncakeConnector", "LMCacheMPConnector"}
)


@dataclass(frozen=True)
class ServeFlags:
    """What the flags set, by field of ``EngineOptions`` and ``MemoryFlags``; the rest as read."""

    options: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    hf_overrides: Mapping[str, Any] = field(default_factory=dict)
    speculative: Mapping[str, Any] = field(default_factory=dict)


def read_serve_flags(flags: Mapping[str, Any], version: EngineVersion) -> ServeFlags:
    """Sort flags into what they set.

    Raises:
        Refusal: ``bad_flag``, with the nearest flag, what replaced it, or what values are allowed.
    """
    options: dict[str, Any] = {}
    memory: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for written, given in _nested(flags).items():
        if given is None:
            continue
        name, value = _checked(written, given, version)
        for table, target in ((_OPTIONS, options), (_MEMORY, memory), (_REST, rest)):
            if name in table:
                key, read = table[name]
                target[key] = read(written, value)
    if rest.pop("no_images", False):
        options["text_only"] = True
    if rest.pop("pooling_task", False):
        memory["pooling"] = True
    if memory.pop("lora", False):
        memory.setdefault("max_loras", 1)
    else:
        memory.pop("max_loras", None)
    memory |= rest.pop("compilation", {})
    if _gives_up_groups(rest, version):
        options.setdefault("disable_hybrid_manager", True)
    environment = {name: str(value) for name, value in flags.items() if name.isupper()}
    if environment:
        options |= _from_environment(environment)
    return ServeFlags(options, memory, rest.get("hf_overrides", {}), _speculative(rest))


def _gives_up_groups(rest: Mapping[str, Any], version: EngineVersion) -> bool:
    """Whether a KV connector turns the hybrid manager off: any did up to 0.20, later only those without support.

    Source: vLLM ``config/vllm.py``, pull request 41847; connectors' classes with ``SupportsHMA``.
    """
    connector = rest.get("kv_connector") or ("OffloadingConnector" if rest.get("kv_offloading") else None)
    return connector is not None and (not version.at_least(_GROUPS_SINCE) or connector not in _GROUP_AWARE)


def _nested(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Dotted names, which set one key of a flag that takes an object, gathered below that flag."""
    if not any("." in name for name in flags):
        return flags
    found = {name: value for name, value in flags.items() if "." not in name.strip(".")}
    for dotted, value in flags.items():
        name, _, key = dotted.partition(".")
        if dotted not in found and value is not None:
            same = next((other for other in found if engine_flags.find(other) is engine_flags.find(name)), name)
            found[same] = {**_object(same, found.get(same) or {}), key: value}
    return found


def _checked(written: str, value: object, version: EngineVersion) -> tuple[str, object]:
    """The flag's canonical name and its value; negative forms turned around."""
    if written.isupper():
        return written, value
    problem = engine_flags.flag_problem(written, version)
    if problem:
        raise Refusal(BAD_FLAG, problem)
    flag = engine_flags.find(written)
    assert flag is not None  # noqa: S101 # flag_problem looked
    folded = written.lstrip("-").replace("-", "_")
    if folded.startswith("no_") and f"--{folded.replace('_', '-')}" in flag.names and folded != flag.dest:
        value = not _flag(written, value)
    elif flag.switch:
        value = _flag(written, value)
    elif isinstance(value, str) and (choices := flag.choices_of(version)) and value not in choices:
        raise Refusal(BAD_FLAG, f"{written}: {value!r} is not one of {', '.join(choices)}")
    elif flag.type in _NUMERIC:
        _NUMERIC[flag.type](written, value)
    return _ALIASES.get(flag.dest, flag.dest), value


def _bad(name: str, value: object, allowed: str) -> Refusal:
    shown = repr(value)
    return Refusal(BAD_FLAG, f"{name}: {shown if len(shown) <= 40 else shown[:37] + '…'} is not {allowed}")  # noqa: PLR2004


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int) and str(value).lower() in _WORDS:
        return _WORDS[str(value).lower()]
    raise _bad(name, value, "true or false")


def _count(name: str, value: object) -> int:
    """A whole number of at least 1, or text such as 8k (thousands) and 8K (of 1,024)."""
    found = _whole(name, value)
    if found < 1:
        raise _bad(name, value, "a whole number of at least 1")
    return found


def _whole(name: str, value: object) -> int:
    """A whole number in any of the spellings the parser takes."""
    if isinstance(value, str):
        match = _COUNT.fullmatch(value.strip())
        value = int(match[1]) * _SUFFIXES[match[2]] if match else value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _LARGEST:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= _LARGEST:
        raise _bad(name, value, "a whole number")
    return value


def _length(name: str, value: object) -> int:
    """A context length; -1 and ``auto`` mean what fits."""
    return -1 if value in (-1, "-1", "auto") else _count(name, value)


def _real(name: str, value: object) -> float:
    try:
        found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else float("nan")
    except (ValueError, OverflowError):
        found = float("nan")
    if not abs(found) < _LARGEST:
        raise _bad(name, value, "a number")
    return found


def _share(name: str, value: object) -> float:
    found = _real(name, value)
    if not 0 < found <= 1:
        raise _bad(name, value, "above 0 and at most 1")
    return found


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _bad(name, value, "a word")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, Sequence):
        raise _bad(name, value, "a list")
    return tuple(str(entry) for entry in listed)


def _sizes(name: str, value: object) -> tuple[int, ...]:
    listed = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return tuple(_count(name, entry) for entry in listed)


def _gibibytes(name: str, value: object) -> int:
    return round(_real(name, value) * _GIB)


def _object(name: str, value: object) -> Mapping[str, Any]:
    """An object, or its JSON as a command line has it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _bad(name, value, "an object in JSON") from None
    if not isinstance(value, Mapping):
        raise _bad(name, value, "an object")
    return value


def _no_images(name: str, value: object) -> bool:
    """Whether every kind of input beside text is limited to none."""
    limits = _object(name, value)
    return bool(limits) and all(limit == 0 for limit in limits.values())


def _compilation(name: str, value: object) -> dict[str, Any]:
    """What a level or a configuration of compilation says of CUDA graphs: which sizes, or none at all."""
    if isinstance(value, int) or (isinstance(value, str) and not value.lstrip().startswith("{")):
        written: Mapping[str, Any] = {"level": value}
    else:
        written = _object(name, value)
    off = any(str(written.get(key, "")).lower() in _NO_GRAPHS for key in ("level", "mode", "cudagraph_mode"))
    found: dict[str, Any] = {"enforce_eager": True} if off else {}
    for key in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        if written.get(key) is not None:
            found[key] = _MEMORY[key][1](f"{name}.{key}", written[key])
    return found


def _connector(name: str, value: object) -> str | None:
    found = _object(name, value).get("kv_connector")
    return found if isinstance(found, str) else None


def _is_data(_name: str, value: object) -> bool:
    return value == "data"


def _is_pooling(_name: str, value: object) -> bool:
    return isinstance(value, str) and value in _POOLING


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {"environment": environment}
    if environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        found["allow_long_max_model_len"] = True
    partition = environment.get("VLLM_PP_LAYER_PARTITION")
    if partition:
        found["layer_partition"] = tuple(_count("VLLM_PP_LAYER_PARTITION", part) for part in partition.split(","))
    return found


def _speculative(rest: Mapping[str, Any]) -> Mapping[str, Any]:
    """``speculative_config``, or the three flags that stand for it."""
    written = dict(rest.get("speculative_config", {}))
    for key in ("method", "model", "num_speculative_tokens"):
        if f"spec_{key}" in rest:
            written[key] = rest[f"spec_{key}"]
    return written


_Reader = Callable[[str, object], Any]
_NUMERIC: Final[Mapping[str | None, _Reader]] = {
    "int": _whole,
    "optional_type(int)": _whole,
    "float": _real,
    "optional_type(float)": _real,
}
_OPTIONS: Final[Mapping[str, tuple[str, _Reader]]] = {
    "tensor_parallel_size": ("tensor_parallel", _count),
    "pipeline_parallel_size": ("pipeline_parallel", _count),
    "decode_context_parallel_size": ("decode_context_parallel", _count),
    "dtype": ("dtype", _text),
    "kv_cache_dtype": ("kv_cache_dtype", _text),
    "kv_cache_dtype_skip_layers": ("kv_cache_dtype_skip_layers", _texts),
    "block_size": ("block_size", _count),
    "max_model_len": ("max_model_len", _length),
    "max_num_batched_tokens": ("max_num_batched_tokens", _count),
    "max_num_seqs": ("max_num_seqs", _count),
    "enable_prefix_caching": ("enable_prefix_caching", _flag),
    "enable_chunked_prefill": ("enable_chunked_prefill", _flag),
    "async_scheduling": ("async_scheduling", _flag),
    "disable_hybrid_kv_cache_manager": ("disable_hybrid_manager", _flag),
    "disable_sliding_window": ("disable_sliding_window", _flag),
    "gdn_prefill_backend": ("gdn_prefill_backend", _text),
    "kda_prefill_backend": ("kda_prefill_backend", _text),
    "mamba_cache_dtype": ("mamba_cache_dtype", _text),
    "mamba_ssm_cache_dtype": ("mamba_ssm_cache_dtype", _text),
    "mamba_block_size": ("mamba_block_size", _count),
    "attention_backend": ("attention_backend", _text),
    "num_gpu_blocks_override": ("num_blocks_override", _count),
    "language_model_only": ("text_only", _flag),
}
_MEMORY: Final[Mapping[str, tuple[str, _Reader]]] = {
    "gpu_memory_utilization": ("gpu_memory_utilization", _share),
    "kv_cache_memory_bytes": ("kv_cache_memory_bytes", _count),
    "quantization": ("quantization", _text),
    "enforce_eager": ("enforce_eager", _flag),
    "max_cudagraph_capture_size": ("max_cudagraph_capture_size", _whole),
    "cudagraph_capture_sizes": ("cudagraph_capture_sizes", _sizes),
    "enable_expert_parallel": ("expert_parallel", _flag),
    "data_parallel_size": ("data_parallel", _count),
    "cpu_offload_gb": ("cpu_offload_bytes", _gibibytes),
    "mm_encoder_tp_mode": ("whole_encoders", _is_data),
    "skip_mm_profiling": ("unprofiled_encoders", _flag),
    "enable_lora": ("lora", _flag),
    "max_loras": ("max_loras", _count),
    "max_lora_rank": ("max_lora_rank", _count),
}
_REST: Final[Mapping[str, tuple[str, _Reader]]] = {
    "hf_overrides": ("hf_overrides", _object),
    "speculative_config": ("speculative_config", _object),
    "spec_method": ("spec_method", _text),
    "spec_model": ("spec_model", _text),
    "spec_tokens": ("spec_num_speculative_tokens", _count),
    "limit_mm_per_prompt": ("no_images", _no_images),
    "compilation_config": ("compilation", _compilation),
    "optimization_level": ("compilation", _compilation),
    "kv_offloading_size": ("kv_offloading", _real),
    "kv_transfer_config": ("kv_connector", _connector),
    "runner": ("pooling_task", _is_pooling),
    "task": ("pooling_task", _is_pooling),
}
