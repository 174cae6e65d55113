"""From what a user wants to the configuration that serves it, or the refusal with its arithmetic.

The smallest tensor-parallel size that starts and serves one request of ``contextTokens`` at the low end of the memory
estimate wins; of several GPU types the one that takes the fewest GPUs, then the least memory.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.api import reasons
from plimsoll.api.reasons import Reason, camel_reason
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core import flags
from plimsoll.core.kv import Capacity, EngineOptions, KVLayout, blocks_for_request, capacity, plan_layout
from plimsoll.core.kv import Refusal as EngineRefusal
from plimsoll.core.memory import MemoryBudget, MemoryFlags, budget
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.plan.result import Choice, KVBudget, Nearest, Plan, Refusal, Rejected
from plimsoll.facts import catalogue, engines, gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.gpus import GIB, GPU
from plimsoll.facts.models import ModelConfigError, ModelFacts, UnknownArchitecture, read_model

DEFAULT_GPUS_PER_NODE: Final = 8
LOAD_RATE_BYTES_PER_SECOND: Final = 200_000_000
"""Weights from a shared volume or the hub, cautiously."""
WARM_UP_SECONDS: Final = 180
"""Imports, compilation and graph capture after the weights are there."""
HOST_MEMORY_BYTES: Final = 8 * GIB
REJECTED_SHOWN: Final = 8
MOST_GPUS: Final = 1024
MANY_SEQUENCES: Final = 256
FEW_SEQUENCES: Final = 32


class _RefusedError(Exception):
    """The request cannot be planned; carries the answer."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.answer = Refusal(reason.name, message)


class _NothingLeftError(Exception):
    """Weights and activations take all of the memory."""

    def __init__(self, memory: MemoryBudget) -> None:
        super().__init__()
        self.memory = memory


@dataclass(frozen=True)
class _Wish:
    """A request with its facts resolved."""

    spec: VLLMServiceSpec
    facts: ModelFacts
    origin: str
    version: EngineVersion
    replicas: int
    overrides: flags.Overrides


@dataclass(frozen=True)
class _Failed:
    """A candidate that does not serve, and what would have to change for it."""

    rejected: Rejected
    context_that_fits: int | None = None
    gpus_needed: int = 0


@dataclass(frozen=True)
class _Candidate:
    """One configuration of one replica."""

    gpu: GPU
    label: str
    tensor_parallel: int

    def __str__(self) -> str:
        return f"TP{self.tensor_parallel} on {self.label}"


def plan_service(spec: VLLMServiceSpec, replicas: int, config: ModelConfig | None) -> Plan | Refusal:
    """The plan of a service that must have room for ``replicas``. Never raises for a spec that the API accepts."""
    failed: list[_Failed] = []
    try:
        wish = _resolve(spec, replicas, config)
        plans = _plans(wish, failed)
    except _RefusedError as refused:
        return refused.answer
    if not plans:
        return _refusal(wish, failed)
    return replace(min(plans, key=_cost), rejected=_shown(failed))


def _plans(wish: _Wish, failed: list[_Failed]) -> list[Plan]:
    """The smallest plan on each allowed product; what failed is noted."""
    found = (_smallest(wish, gpu, label, failed) for gpu, label in _products(wish.spec))
    return [plan for plan in found if plan]


def _resolve(spec: VLLMServiceSpec, replicas: int, config: ModelConfig | None) -> _Wish:
    if config is None:
        raise _RefusedError(reasons.UNKNOWN_MODEL, _unknown_model(spec.model.id))
    try:
        facts = read_model(config.config, config.quant_config)
    except ModelConfigError as error:
        raise _RefusedError(reasons.INVALID_MODEL_CONFIG, f"{config.origin}: {error}; correct the file") from error
    except UnknownArchitecture as error:
        raise _RefusedError(reasons.UNKNOWN_ARCHITECTURE, f"{config.origin}: {error}") from error
    version = _version(spec)
    try:
        overrides = flags.read_overrides(spec.engine.extra_args)
    except flags.BadFlagError as error:
        raise _RefusedError(reasons.BAD_FLAG, f"spec.engine.extraArgs: {error}") from error
    if spec.context_tokens > facts.max_model_len:
        message = (
            f"spec.contextTokens: {spec.context_tokens} is above the {facts.max_model_len} tokens that "
            f"{spec.model.id} allows ({config.origin}); ask for {facts.max_model_len} or less"
        )
        raise _RefusedError(reasons.MAX_MODEL_LEN_ABOVE_MODEL, message)
    return _Wish(spec, facts, config.origin, version, max(replicas, 1), overrides)


def _unknown_model(model: str) -> str:
    near = ", ".join(catalogue.nearest(model))
    hint = f"did you mean {near}? " if near else ""
    return (
        f"spec.model.id: {model!r} is not in the catalogue; {hint}"
        "put its config.json into a ConfigMap and name it in spec.model.configRef"
    )


def _version(spec: VLLMServiceSpec) -> EngineVersion:
    text = spec.engine.version or flags.version_of_image(spec.engine.image) or engines.NEWEST
    try:
        return EngineVersion.parse(text)
    except ValueError as error:
        raise _RefusedError(reasons.UNKNOWN_ENGINE_VERSION, f"spec.engine.version: {error}") from error


def _products(spec: VLLMServiceSpec) -> list[tuple[GPU, str]]:
    wanted = spec.hardware.gpus or ((spec.hardware.gpu,) if spec.hardware.gpu else ())
    return [_product(name) for name in wanted]


def _product(name: str) -> tuple[GPU, str]:
    """The GPU and the node label to select: a label is kept as written (it may say SHARED or MIG)."""
    gpu = gpus.find(name)
    if gpu is None:
        near = ", ".join(gpus.nearest(name)) or ", ".join(gpus.names()[:5])
        message = (
            f"spec.hardware.gpu: {name!r} is not a GPU the catalogue knows; known and near: {near} "
            "(the node label nvidia.com/gpu.product)"
        )
        raise _RefusedError(reasons.UNKNOWN_GPU, message)
    written_as_label = name.lower().startswith(gpu.label.lower())
    return gpu, name if written_as_label else gpu.label


def _smallest(wish: _Wish, gpu: GPU, label: str, failed: list[_Failed]) -> Plan | None:
    """The plan with the fewest GPUs a replica on this product; what failed before it is noted."""
    for size in _sizes(wish, gpu):
        candidate = _Candidate(gpu, label, size)
        found = _evaluate(wish, candidate)
        if isinstance(found, Plan):
            return found
        failed.append(found)
    return None


def _sizes(wish: _Wish, gpu: GPU) -> Iterator[int]:
    """Tensor-parallel sizes worth trying: powers of two up to the node and the budget, or what the user fixed."""
    most = min(gpu.gpus_per_node or DEFAULT_GPUS_PER_NODE, DEFAULT_GPUS_PER_NODE)
    if wish.overrides.tensor_parallel:
        yield wish.overrides.tensor_parallel
        return
    size = 1
    while size <= most:
        yield size
        size *= 2


def _evaluate(wish: _Wish, candidate: _Candidate) -> Plan | _Failed:
    needed = candidate.tensor_parallel * wish.replicas
    if needed > wish.spec.hardware.max_gpus:
        message = (
            f"spec.hardware.maxGPUs: {wish.replicas} x {candidate.tensor_parallel} GPUs are {needed}, "
            f"the limit is {wish.spec.hardware.max_gpus}; raise maxGPUs or lower the replicas"
        )
        return _Failed(Rejected(str(candidate), reasons.MAX_GPUS_EXCEEDED.name, message), gpus_needed=needed)
    options = _options(wish, candidate)
    try:
        layout = plan_layout(wish.facts, options)
        options, memory, pools = _fitted(wish, options, layout)
    except _NothingLeftError as nothing:
        rejected = Rejected(
            str(candidate), reasons.NO_MEMORY_FOR_KV.name, _nothing_left(wish, candidate, nothing.memory)
        )
        return _Failed(rejected)
    except EngineRefusal as refusal:
        rejected = Rejected(str(candidate), camel_reason(refusal.reason), _explained(wish, candidate, refusal))
        return _Failed(rejected, context_that_fits=refusal.estimated_max_model_len)
    return _plan(wish, candidate, options, layout, memory, pools)


def _fitted(
    wish: _Wish, options: EngineOptions, layout: KVLayout
) -> tuple[EngineOptions, MemoryBudget, tuple[Capacity, Capacity]]:
    """Memory and pool (at the low end and in the middle); a hybrid never gets more sequences than state blocks."""
    flags_of_memory = MemoryFlags(gpu_memory_utilization=wish.overrides.utilisation)
    memory = budget(wish.facts, options, flags_of_memory)
    context = wish.spec.context_tokens
    if memory.available_kv_bytes.low <= 0:
        raise _NothingLeftError(memory)
    low = capacity(layout, int(memory.available_kv_bytes.low), context)
    if wish.facts.has_state and options.max_num_seqs and options.max_num_seqs > low.num_blocks:
        options = replace(options, max_num_seqs=low.num_blocks)
        memory = budget(wish.facts, options, flags_of_memory)
        low = capacity(layout, int(memory.available_kv_bytes.low), context)
    return options, memory, (low, capacity(layout, int(memory.available_kv_bytes.mid), context))


def _options(wish: _Wish, candidate: _Candidate) -> EngineOptions:
    batch = engines.batch_defaults(wish.version, candidate.gpu)
    options = EngineOptions(
        device=candidate.gpu,
        version=wish.version,
        tensor_parallel=candidate.tensor_parallel,
        max_model_len=wish.spec.context_tokens,
        max_num_batched_tokens=batch.max_num_batched_tokens,
        max_num_seqs=_sequences(wish.spec),
        enable_prefix_caching=True,
        gdn_prefill_backend=flags.GDN_PREFILL_BACKEND,
        text_only=wish.spec.model.text_only,
    )
    return wish.overrides.apply(options)


def _sequences(spec: VLLMServiceSpec) -> int:
    """Requests one engine may run at once: the whole load, so that one replica can carry it while another is away."""
    concurrency = spec.load.concurrency if spec.load else None
    if concurrency is None:
        return MANY_SEQUENCES
    return max(FEW_SEQUENCES, min(MANY_SEQUENCES, -(-concurrency // 8) * 8))


def _plan(
    wish: _Wish,
    candidate: _Candidate,
    options: EngineOptions,
    layout: KVLayout,
    memory: MemoryBudget,
    pools: tuple[Capacity, Capacity],
) -> Plan:
    _, pool = pools
    choice = Choice(
        gpu=candidate.label,
        replicas=wish.replicas,
        gpus_per_replica=candidate.tensor_parallel,
        tensor_parallel=candidate.tensor_parallel,
        engine_version=str(wish.version),
        args=flags.engine_args(wish.facts, options, wish.spec.engine.extra_args),
    )
    return Plan(
        choice=choice,
        kv=_kv(wish.spec, layout, pool),
        memory=memory.items,
        available_kv_bytes=memory.available_kv_bytes,
        assumptions=tuple(_assumptions(wish, options, memory)),
        load_seconds=WARM_UP_SECONDS + memory.weights_bytes // LOAD_RATE_BYTES_PER_SECOND,
        host_memory_bytes=HOST_MEMORY_BYTES,
    )


def _kv(spec: VLLMServiceSpec, layout: KVLayout, pool: Capacity) -> KVBudget:
    load = spec.load
    typical = (load.prompt_tokens or 0) + (load.output_tokens or 0) if load else 0
    blocks = blocks_for_request(layout, typical) if typical else None
    return KVBudget(
        block_size=layout.block_tokens,
        bytes_per_block=layout.bytes_per_block,
        num_blocks=pool.num_blocks,
        tokens=pool.tokens,
        max_concurrency=round(pool.max_concurrency, 6),
        blocks_per_request_at_load=blocks,
        concurrency_at_load=round((pool.num_blocks - 1) / blocks, 2) if blocks else None,
    )


def _assumptions(wish: _Wish, options: EngineOptions, memory: MemoryBudget) -> Iterator[str]:
    yield f"model facts: {wish.origin}"
    if wish.spec.engine.version is None and wish.spec.engine.image is None:
        yield f"engine: the newest vLLM with a table, {wish.version}"
    if wish.spec.load is None:
        yield f"load: none given, room for up to {options.max_num_seqs} requests at once is kept"
    yield from memory.assumptions
    yield from (f"model: {name} was absent, its documented default is taken" for name in wish.facts.assumed)


def _explained(wish: _Wish, candidate: _Candidate, refusal: EngineRefusal) -> str:
    """The engine's refusal with field, value, limit."""
    if refusal.needed_bytes is None:
        return f"{refusal.message.rstrip('.')} ({candidate})"
    fits = refusal.estimated_max_model_len
    return (
        f"spec.contextTokens: {wish.spec.context_tokens} needs {_gib(refusal.needed_bytes)} of KV per GPU, "
        f"{_gib(max(refusal.available_bytes or 0, 0))} is left on {candidate.label} at TP {candidate.tensor_parallel}"
        + (f"; {fits} would fit" if fits else "")
    )


def _nothing_left(wish: _Wish, candidate: _Candidate, memory: MemoryBudget) -> str:
    others = sum(item.bytes for item in memory.items) - memory.weights_bytes
    return (
        f"spec.hardware.gpu: {candidate.label} gives vLLM {_gib(memory.requested_bytes)} a GPU, at TP "
        f"{candidate.tensor_parallel} the weights of {wish.spec.model.id} take {_gib(memory.weights_bytes)} and "
        f"everything else {_gib(others)}: nothing is left for KV cache"
    )


def _refusal(wish: _Wish, failed: Sequence[_Failed]) -> Refusal:
    """The refusal of the candidate that came closest, and the changes that would help."""
    within_budget = [f for f in failed if f.rejected.reason != reasons.MAX_GPUS_EXCEEDED.name]
    closest = (within_budget or list(failed))[-1].rejected
    nearest = tuple(_nearest(wish, failed))
    ways = " or ".join(n.change for n in nearest)
    hint = f"would fit: {ways}" if ways else "use fewer contextTokens, a larger GPU, more GPUs or a quantised model"
    return Refusal(closest.reason, f"{closest.message}; {hint}", nearest=nearest, rejected=_shown(failed))


def _nearest(wish: _Wish, failed: Sequence[_Failed]) -> Iterator[Nearest]:
    """The smallest single changes that make it feasible, each verified by planning it."""
    spec = wish.spec
    fits = max((f.context_that_fits or 0 for f in failed), default=0)
    more = min((f.gpus_needed for f in failed if f.gpus_needed), default=0)
    if fits:
        shorter = spec.model_copy(update={"context_tokens": fits})
        yield from _verified(replace(wish, spec=shorter), f"contextTokens: {spec.context_tokens} -> {fits}")
    while 0 < more <= MOST_GPUS:
        hardware = spec.hardware.model_copy(update={"max_gpus": more})
        larger = replace(wish, spec=spec.model_copy(update={"hardware": hardware}))
        found = list(_verified(larger, f"maxGPUs: {spec.hardware.max_gpus} -> {more}"))
        yield from found
        more = 0 if found else more * 2


def _verified(wish: _Wish, change: str) -> Iterator[Nearest]:
    plans = _plans(wish, [])
    if plans:
        choice = min(plans, key=_cost).choice
        yield Nearest(change, f"{choice.gpus_per_replica} x {choice.gpu} a replica, TP {choice.tensor_parallel}")


def _shown(failed: Sequence[_Failed]) -> tuple[Rejected, ...]:
    return tuple(f.rejected for f in failed[:REJECTED_SHOWN])


def _cost(plan: Plan) -> tuple[int, int, str]:
    gpu = gpus.find(plan.choice.gpu)
    return plan.choice.gpus_per_replica, gpu.memory_driver_bytes if gpu else 0, plan.choice.gpu


def _gib(value: int) -> str:
    return f"{value / GIB:.2f} GiB"
