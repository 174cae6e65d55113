"""How one replica may be laid out on one GPU product: tensor, pipeline, data, expert and context parallelism.

Divisors are vLLM's own (``vllm-memory.md`` 3.1 to 3.5); what ``core.kv`` checks itself is left to it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import LatentAttention, ModelFacts

DEFAULT_GPUS_PER_NODE: Final = 8
MOST_NODES: Final = 4
_VOCABULARY_PAD: Final = 64


@dataclass(frozen=True)
class Shape:
    """One replica: ``data_parallel`` engines of ``tensor_parallel`` x ``pipeline_parallel`` GPUs each, on ``nodes``."""

    gpu: GPU
    label: str
    tensor_parallel: int
    pipeline_parallel: int = 1
    data_parallel: int = 1
    decode_context_parallel: int = 1
    expert_parallel: bool = False
    nodes: int = 1

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def simplicity(self) -> tuple[int, ...]:
        """Smaller is simpler: nodes, stages, engines, experts and contexts spread, ranks."""
        return (
            self.nodes,
            self.pipeline_parallel,
            self.data_parallel,
            int(self.expert_parallel),
            self.decode_context_parallel,
            self.tensor_parallel,
        )

    def __str__(self) -> str:
        parts = [f"TP{self.tensor_parallel}"]
        for name, size in (
            ("PP", self.pipeline_parallel), ("DP", self.data_parallel), ("DCP", self.decode_context_parallel)
        ):  # fmt: skip
            parts += [f"{name}{size}"] if size > 1 else []
        parts += ["EP"] if self.expert_parallel else []
        return f"{' '.join(parts)} on {self.label}"


@dataclass(frozen=True)
class Fixed:
    """Parallel sizes that the user's own arguments set; None leaves them to the planner."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    context: int | None = None
    experts: bool | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any], memory: Mapping[str, Any]) -> "Fixed":
        """From the fields that ``read_overrides`` found."""
        return cls(
            tensor=options.get("tensor_parallel"),
            pipeline=options.get("pipeline_parallel"),
            data=memory.get("data_parallel"),
            context=options.get("decode_context_parallel"),
            experts=memory.get("expert_parallel"),
        )

    @property
    def anything(self) -> bool:
        """Whether any size is set."""
        return any(size is not None for size in (self.tensor, self.pipeline, self.data, self.context, self.experts))


def is_shared(label: str) -> bool:
    """Whether a node shares each GPU among several pods by time slicing, as its label then says."""
    return label.upper().endswith("-SHARED")


def node_size(gpu: GPU, label: str, known: int | None) -> int:
    """GPUs of one node; a MIG slice or a shared GPU has no peers."""
    if gpu.mig_profile is not None or is_shared(label):
        return 1
    return known or gpu.gpus_per_node or DEFAULT_GPUS_PER_NODE


def within_a_node(facts: ModelFacts, gpu: GPU, label: str, node: int, fixed: Fixed) -> Iterator[Shape]:
    """Shapes on one node, simplest and smallest first."""
    if fixed.anything:
        yield _as_fixed(gpu, label, node, fixed)
        return
    for size in _sizes(facts, node):
        yield Shape(gpu, label, size, expert_parallel=_needs_whole_experts(facts, size))
    if facts.dims.experts > 1:
        yield from _with_engines(facts, gpu, label, node)
    if _latent(facts) and not _sparse(facts):
        for size in _powers(node):
            if size > 1:
                whole = _needs_whole_experts(facts, size)
                yield Shape(gpu, label, size, decode_context_parallel=size, expert_parallel=whole)


def with_stages(facts: ModelFacts, gpu: GPU, label: str, node: int, fixed: Fixed) -> Iterator[Shape]:
    """Pipelines, for what no shape on one node without stages serves: in a node first, then over whole nodes."""
    if fixed.anything:
        return
    usable = [size for size in _powers(node) if partition_problem(facts, Shape(gpu, label, size)) is None]
    found = [(tensor, stages, 1) for tensor in usable for stages in _powers(node // tensor) if stages > 1]
    widest = max(usable, default=1)
    found += [(widest, nodes * (node // widest), nodes) for nodes in range(2, MOST_NODES + 1)]
    shapes = (
        Shape(gpu, label, tensor, stages, expert_parallel=_needs_whole_experts(facts, tensor), nodes=nodes)
        for tensor, stages, nodes in found
        if stages <= max(1, facts.dims.layers)
    )
    yield from sorted(shapes, key=lambda shape: (shape.gpus, shape.simplicity))


def partition_problem(facts: ModelFacts, shape: Shape) -> str | None:
    """Which divisor fails, beside the heads that the cache layout checks itself."""
    dims, ranks = facts.dims, shape.tensor_parallel
    if ranks == 1:
        return None
    for name, size in (("attention heads", dims.query_heads), ("intermediate_size", dims.intermediate_size)):
        if size and size % ranks:
            return f"{name} {size} does not divide by tensor parallel size {ranks}"
    if dims.kv_heads and not _latent(facts) and dims.kv_heads % ranks and ranks % dims.kv_heads:
        return f"{dims.kv_heads} KV heads neither divide nor are divided by tensor parallel size {ranks}"
    if not shape.expert_parallel and dims.experts > 1 and dims.expert_intermediate_size % ranks:
        return f"expert width {dims.expert_intermediate_size} does not divide by tensor parallel size {ranks}"
    group = _group_size(facts)
    width = dims.intermediate_size // ranks
    if group and dims.experts <= 1 and width % group:
        return f"{width} columns a rank at tensor parallel size {ranks} do not divide by the quantisation group {group}"
    return None


def _as_fixed(gpu: GPU, label: str, node: int, fixed: Fixed) -> Shape:
    shape = Shape(
        gpu,
        label,
        tensor_parallel=fixed.tensor or 1,
        pipeline_parallel=fixed.pipeline or 1,
        data_parallel=fixed.data or 1,
        decode_context_parallel=fixed.context or 1,
        expert_parallel=bool(fixed.experts),
    )
    return Shape(**{**shape.__dict__, "nodes": -(-shape.gpus // node)})


def _with_engines(facts: ModelFacts, gpu: GPU, label: str, node: int) -> Iterator[Shape]:
    """Data-parallel attention: as many ranks as share no KV twice, engines beside each other, experts spread over all.

    Latents are whole on every rank, so each rank is an engine of its own; KV heads are copied beyond their number.
    """
    widest = 1 if _latent(facts) else facts.dims.kv_heads
    for size in _powers(node):
        if widest and size > widest and size % widest == 0:
            yield Shape(gpu, label, widest, data_parallel=size // widest, expert_parallel=True)


def _sizes(facts: ModelFacts, node: int) -> list[int]:
    """Powers of two, and the odd sizes that fill a node and divide everything vLLM splits."""
    odd = (size for size in range(3, node + 1) if node % size == 0 and size & (size - 1))
    vocabulary = -(-facts.dims.vocab_size // _VOCABULARY_PAD) * _VOCABULARY_PAD
    return sorted([*_powers(node), *(size for size in odd if vocabulary % size == 0)])


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]


def _latent(facts: ModelFacts) -> bool:
    return facts.uses_latent_attention


def _sparse(facts: ModelFacts) -> bool:
    return any(isinstance(cache, LatentAttention) and cache.sparse for cache in facts.caches)


def _needs_whole_experts(facts: ModelFacts, ranks: int) -> bool:
    """Block-quantised experts whose share is no multiple of the block must stay whole."""
    block, width = _block(facts), facts.dims.expert_intermediate_size
    return bool(ranks > 1 and facts.dims.experts > 1 and block and width and (width % ranks or width // ranks % block))


def _block(facts: ModelFacts) -> int:
    sizes = facts.quantisation.config.get("weight_block_size") if facts.quantisation.config else None
    return sizes[0] if isinstance(sizes, list) and sizes and isinstance(sizes[0], int) else 0


def _group_size(facts: ModelFacts) -> int:
    """Rows that share a scale in group quantisation (AWQ, GPTQ); 0 where there are none."""
    config = facts.quantisation.config or {}
    size = config.get("group_size") if facts.quantisation.method in {"awq", "gptq", "awq_marlin", "gptq_marlin"} else 0
    return size if isinstance(size, int) and size > 0 else 0
