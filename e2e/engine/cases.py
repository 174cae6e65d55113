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
    {"max_model_len": 8192, "max_num_batched_tokens": 512},
)
# Models whose states alone are new to the list: attention beside them is that of the others.
_STATES: Final = ("falcon-h1", "nemotron-h", "granite-hybrid", "mamba", "mamba2")
_FEWER: Final = (*_STATES, "lfm2")
_OF_FEWER: Final = 2
# What the engine chooses by the processor it runs on: MLA with AMX takes blocks of 128 tokens, states with AVX-512 BF16
# are kept in float32. Said, so that every machine does the same.
SAID: Final[Mapping[str, Mapping[str, Any]]] = {
    "dsv2": {"attention_backend": "CPU_MLA"},
    "qwen3next": {"mamba_ssm_cache_dtype": "float32"},
    "qwen35": {"mamba_ssm_cache_dtype": "float32"},
    "jamba": {"mamba_ssm_cache_dtype": "float32"},
    **{model: {"mamba_ssm_cache_dtype": "float32"} for model in _STATES},
}
_FITTED: Final[Mapping[str, Any]] = {"max_model_len": -1, "kv_cache_memory_bytes": 3 * MIB}
_MORE: Final[Mapping[tuple[str, ...], tuple[Mapping[str, Any], ...]]] = {
    ("llama",): (
        {"dtype": "float32"}, {"block_size": 16}, {"block_size": 48}, {"block_size": 256}, {"block_size": 10},
        {"block_size": 100}, {"num_gpu_blocks_override": 64}, {"max_model_len": 9000}, {"max_num_seqs": 0},
        {"kv_cache_dtype": "fp7"}, {"no_such_flag": 1}, {"max_num_batched_tokens": 64}, {"max_num_seqs": 5000},
        {"max_model_len": "2k"}, {"kv_cache_memory_bytes": "32m"}, {"enable_chunked_prefill": False},
        {"kv_cache_dtype": "fp8_e5m2"}, {"kv_cache_dtype": "bfloat16"}, {"kv_cache_dtype": "int8_per_token_head"},
        {"tensor_parallel_size": 3}, {"kv_cache_memory_bytes": 1}, {"gpu_memory_utilization": 1.5},
        {"max_model_len": 8192, "kv_cache_memory_bytes": 2 * MIB, "block_size": 16}, _FITTED,
    ),
    ("qwen3", "mistral-window", "gemma2"): (_FITTED,),
    ("llama", "qwen3", "mistral-window", "gemma2", "gemma3", "gptoss", "dsv2", "qwen3next"): (
        {"kv_cache_dtype": "fp8"},
    ),
    ("mistral-window", "gemma2", "gemma3"): (
        {"disable_hybrid_kv_cache_manager": True}, {"max_num_batched_tokens": 4096},
        {"max_model_len": 8192, "kv_cache_memory_bytes": 4 * MIB},
    ),
    ("mistral-window", "gemma2"): ({"enable_chunked_prefill": False},),
    ("falcon-h1", "lfm2"): ({"enable_prefix_caching": False}, {"kv_cache_dtype": "fp8"}),
    ("gemma3-8l", "gptoss"): ({"disable_hybrid_kv_cache_manager": True},),
    ("gptoss", "dsv2", "qwen3next"): ({"dtype": "float32"},),
}  # fmt: skip


def cases() -> Iterator[Case]:
    """All of them."""
    for model in MODELS:
        more = (change for models, changes in _MORE.items() if model in models for change in changes)
        every = _EVERY_MODEL[:_OF_FEWER] if model in _FEWER else _EVERY_MODEL
        for change in (*every, *more):
            yield Case(model, {**BASE, **SAID.get(model, {}), **change})
