"""What a plan is: the choice, the arithmetic behind it, and what it assumes. Values only; camelCase on the way out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal

from pydantic.alias_generators import to_camel

from plimsoll.core.lifecycle.figures import Drain, Host, Startup
from plimsoll.core.policy import PodPolicy

Basis = Literal["exact", "fitted", "assumed"]
Answer = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Range:
    """A quantity that is not known exactly: the truth is meant to lie within in 90 % of cases."""

    low: float
    mid: float
    high: float


@dataclass(frozen=True)
class Choice:
    """The configuration that serves: hardware, parallelism and the engine's argv (without the model's name)."""

    gpu: str
    replicas: int
    gpus_per_replica: int
    engine_version: str
    args: tuple[str, ...]
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    decode_context_parallel: int = 1
    expert_parallel: bool = False
    nodes_per_replica: int = 1
    engines_per_replica: int = 1


@dataclass(frozen=True)
class KVBudget:
    """The KV pool of one engine: blocks and bytes of the worst rank, tokens and requests of the engine."""

    block_size: int
    bytes_per_block: int
    num_blocks: int
    tokens: int
    max_concurrency: float
    blocks_per_request_at_load: int | None = None
    concurrency_at_load: float | None = None


@dataclass(frozen=True)
class Typical:
    """What one typical request is to an engine: the autoscaler counts with it.

    ``blocks`` it holds when half of its output is made, without what a shared prefix stores for all. Times of ``None``:
    the speed of the GPU is not known; lengths of ``None``: a plan of an older release.
    """

    prompt_tokens: int
    blocks: int
    prefill_ms_per_token: float | None = None
    decode_step_ms: float | None = None
    output_tokens: int | None = None
    shared_tokens: int | None = None
    steps_ms: tuple[float, ...] | None = None
    """Of 1, 2, 4, 8 … such requests, without any prompt and as predicted: no correction is in it."""


@dataclass(frozen=True)
class MemoryItem:
    """What a part of the worst rank's memory is for, in bytes, and how sure that is."""

    item: str
    bytes: int
    basis: Basis
    source: str


@dataclass(frozen=True)
class Rejected:
    """A candidate that was tried and not chosen."""

    choice: str
    reason: str
    message: str


@dataclass(frozen=True)
class Nearest:
    """A change to the request that would make it feasible, verified by planning it."""

    change: str
    message: str


@dataclass(frozen=True)
class Plan:
    """A feasible plan."""

    choice: Choice
    kv: KVBudget
    memory: tuple[MemoryItem, ...]
    available_kv_bytes: Range
    startup: Startup
    drain: Drain
    host: Host
    typical: Typical | None = None
    latency: Mapping[str, Range] = field(default_factory=dict)
    slo_met: Answer = "unknown"
    rejected: tuple[Rejected, ...] = ()
    assumptions: tuple[str, ...] = ()
    pool_key: str = ""
    """What decides the size of the KV cache (``core/pools.py``)."""
    step_key: str = ""
    """What decides how long a step takes (``core/speed.py``)."""
    step_factor: float | None = None
    """Decode steps over those predicted, as pods have shown and as was counted with."""
    policy: PodPolicy = field(default_factory=PodPolicy)
    """Under which it was made, and its pods are rendered; not reported."""


@dataclass(frozen=True)
class Refusal:
    """No plan: the reason (CamelCase, a condition reason), the arithmetic, and what would fit."""

    reason: str
    message: str
    nearest: tuple[Nearest, ...] = ()
    rejected: tuple[Rejected, ...] = ()


class RefusedError(Exception):
    """The request cannot be planned; carries the answer."""

    def __init__(self, reason: str, message: str, nearest: tuple[Nearest, ...] = ()) -> None:
        super().__init__(message)
        self.answer = Refusal(reason, message, nearest=nearest)


_UNREPORTED = frozenset({"policy"})
_OUTSIDE = {
    "available_kv_bytes": "availableKVBytes",
    "source": "from",
}


def to_json(value: Any) -> Any:  # noqa: ANN401 - any dataclass of this module
    """The contract's JSON of a plan or a part of it: camelCase keys, None and empty notes left out."""
    if value is None or isinstance(value, str | int | float):  # the most by far, and the quickest to tell
        return value
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((key, to_json(getattr(value, name))) for key, name in _keys(type(value)))
        return {k: v for k, v in pairs if v is not None}
    if isinstance(value, Mapping):
        return {k: to_json(v) for k, v in value.items()}
    return [to_json(v) for v in value] if isinstance(value, Sequence) else value


@cache
def _keys(kind: type) -> tuple[tuple[str, str], ...]:
    """Keys outside, and the fields they are of."""
    names = [each.name for each in fields(kind) if each.name not in _UNREPORTED]
    return tuple((_OUTSIDE.get(name, to_camel(name)), name) for name in names)
