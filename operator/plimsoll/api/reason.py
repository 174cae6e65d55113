"""What a condition reason is: a name that never changes, its meaning, and what to do about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_ACRONYMS: Final = {
    "kv": "KV", "gpu": "GPU", "oom": "OOM", "slo": "SLO", "api": "API", "nccl": "NCCL", "dtype": "Dtype"
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """Why a condition is what it is. ``runbook`` says what to do, or that there is nothing to do."""

    name: str
    conditions: tuple[str, ...]
    meaning: str
    runbook: str

    def __str__(self) -> str:
        return self.name


def camel_reason(reason: str) -> str:
    """The condition reason for a reason of `plimsoll predict`: ``kv_cache_too_small`` is ``KVCacheTooSmall``."""
    return "".join(_ACRONYMS.get(word, word.capitalize()) for word in reason.split("_"))


def table(module: Mapping[str, Any]) -> dict[str, Reason]:
    """The reasons among a module's globals, by name, in its order."""
    return {value.name: value for value in tuple(module.values()) if isinstance(value, Reason)}
