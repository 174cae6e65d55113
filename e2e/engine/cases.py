"""The starts that are compared: every tiny model, and the flags that move memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.engine.models import MODELS

MIB: Final = 1 << 20
POOL_BYTES: Final = 64 * MIB
ODD_BYTES: Final = 10_000_000
BASE: Final[Mapping[str, Any]] = {"max_model_len": 2048, "kv_cache_memory_bytes": POOL_BYTES}


@dataclass(frozen=True)
class Case:
    """One start. `flags` are spelt as in `plimsoll predict` rows."""

    model: str
    flags: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        changed = {key: value for key, value in self.flags.items() if BASE.get(key) != value}
        return " ".join([self.model, *(f"{key}={value}" for key, value in {**changed, **self.env}.items())])

    @property
    def argv(self) -> list[str]:
        words = (_words(name.replace("_", "-"), value) for name, value in self.flags.items())
        return [word for pair in words for word in pair]


def _words(name: str, value: object) -> list[str]:
    if value is True:
        return [f"--{name}"]
    if value is False:
        return [f"--no-{name}"]
    return [f"--{name}", str(value)]


_EVERY_MODEL: Final[tuple[Mapping[str, Any], ...]] = (
    {},
    {"max_model_len": 512, "kv_cache_memory_bytes": ODD_BYTES},
    {"max_model_len": 8192, "kv_cache_memory_bytes": MIB},
    {"block_size": 32},
    {"enable_prefix_caching": False},
    {"kv_cache_dtype": "fp8"},
    {"max_model_len": 8192, "max_num_batched_tokens": 512, "max_num_seqs": 7},
    {"max_model_len": -1, "kv_cache_memory_bytes": 3 * MIB},
)
_WINDOWED: Final = ("mistral-window", "gemma2", "gemma3", "gemma3-8l", "gptoss")
_STATEFUL: Final = ("qwen3next", "qwen35", "jamba", "bamba", "falcon-h1", "lfm2", "mamba2")
_EXTRA: Final[Mapping[tuple[str, ...], tuple[Mapping[str, Any], ...]]] = {
    ("llama",): (
        {"dtype": "float32"}, {"block_size": 16}, {"block_size": 48}, {"block_size": 256},
        {"num_gpu_blocks_override": 64},
        {"max_model_len": 9000}, {"max_num_seqs": 0}, {"kv_cache_dtype": "fp7"}, {"no_such_flag": 1},
        {"max_num_batched_tokens": 64}, {"max_num_seqs": 5000}, {"max_model_len": "2k"},
        {"kv_cache_memory_bytes": "32m"},
        {"enable_chunked_prefill": False}, {"kv_cache_dtype": "fp8_e5m2"}, {"kv_cache_dtype": "bfloat16"},
        {"kv_cache_dtype": "int8_per_token_head"}, {"tensor_parallel_size": 3}, {"kv_cache_memory_bytes": 1},
        {"block_size": 10}, {"block_size": 100}, {"gpu_memory_utilization": 1.5},
        {"max_model_len": 8192, "kv_cache_memory_bytes": 2 * MIB, "block_size": 16},
    ),
    _WINDOWED: (
        {"disable_hybrid_kv_cache_manager": True}, {"max_num_batched_tokens": 4096}, {"enable_chunked_prefill": False},
        {"max_model_len": 8192, "kv_cache_memory_bytes": 4 * MIB},
    ),
    _STATEFUL: (
        {"enable_prefix_caching": True}, {"mamba_cache_mode": "align", "enable_prefix_caching": True},
        {"mamba_cache_dtype": "float32"}, {"mamba_ssm_cache_dtype": "float32"}, {"block_size": 256},
        {"max_model_len": 8192, "kv_cache_memory_bytes": 2 * MIB, "enable_prefix_caching": False},
    ),
    ("dsv2",): ({"block_size": 64}, {"dtype": "float32"}),
    ("qwen3next", "gptoss", "gemma3"): ({"dtype": "float32"},),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    for model in MODELS:
        extra = (change for models, changes in _EXTRA.items() if model in models for change in changes)
        for change in (*_EVERY_MODEL, *extra):
            yield Case(model, {**BASE, **change})
