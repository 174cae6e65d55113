"""Bytes of weights on the worst rank of one engine, and how much more or less they may be."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from plimsoll.core.kv import EngineOptions
from plimsoll.core.kv.layout import stages
from plimsoll.core.memory.checkpoint import likely_quantisations
from plimsoll.core.memory.flags import MemoryFlags
from plimsoll.core.memory.tensors import Ranks
from plimsoll.core.memory.weights import Weights, read_weights, total_bytes
from plimsoll.core.plan.result import Basis, MemoryItem
from plimsoll.facts.models import ModelFacts

# An MLP whose width nobody wrote may be this much wider (Mistral Small: 6.4 times the hidden size) or narrower.
_WIDER: Final = 1.0
_NARROWER: Final = 0.3
# A file that names no architecture does not say whether it has a vision tower: dots.ocr's, with its activations.
_UNNAMED_TOWER_BYTES: Final = 5 << 30
# Share of the requested memory that weights may take and leave room to start at all.
_FITS: Final = 0.9
_WHOLE: Final = Ranks()


@dataclass(frozen=True, slots=True)
class LoadedWeights:
    """The item, what is loaded beside it, and by how many bytes it may be off where something had to be assumed."""

    item: MemoryItem
    beside: tuple[MemoryItem, ...] = ()
    may_be_more: int = 0
    may_be_less: int = 0
    assumptions: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[MemoryItem, ...]:
        """Everything that is loaded: the model, its draft, its adapters."""
        return (self.item, *self.beside)

    @property
    def bytes(self) -> int:
        """Their sum."""
        return sum(item.bytes for item in self.items)


def loaded_weights(
    facts: ModelFacts, options: EngineOptions, flags: MemoryFlags, requested_bytes: int
) -> LoadedWeights:
    """Weights of the worst rank, drafts and adapters included.

    ``requested_bytes`` decides between formats that a flag leaves open: whoever starts a checkpoint means it to fit.
    """
    ranks = ranks_of(options, flags)
    read = _read(facts, flags.quantization, options, whole_towers=flags.whole_encoders)
    formats = len(read)
    sizes = [_rank_bytes(weights, facts, options, ranks) for weights in read]
    chosen = next((index for index, size in enumerate(sizes) if size <= _FITS * requested_bytes), formats - 1)
    weights, size = read[chosen], sizes[chosen]
    beside = tuple(_beside(weights, facts, options, flags, ranks))
    if facts.weights_bytes is not None:
        known = round(size * facts.weights_bytes / max(1, _on_disk(weights, facts)))
        kept = max(0, known - flags.cpu_offload_bytes)
        return LoadedWeights(MemoryItem("weights", kept, "exact", "the checkpoint's own tensors"), beside)
    guessed = total_bytes(weights.guessed, ranks, options.capability) / options.pipeline_parallel
    return LoadedWeights(
        MemoryItem(
            "weights",
            max(0, size - flags.cpu_offload_bytes),
            "assumed" if guessed or formats > 1 else "fitted",
            _source(guessed),
        ),
        beside,
        may_be_more=round(_WIDER * guessed)
        + _heavier(sizes, chosen, requested_bytes)
        + (_UNNAMED_TOWER_BYTES if _unnamed(facts) else 0),
        may_be_less=round(_NARROWER * guessed) + size - min(sizes),
        assumptions=_assumptions(facts, weights, flags, formats),
    )


def ranks_of(options: EngineOptions, flags: MemoryFlags) -> Ranks:
    """Ranks that share matrices, and those that share experts: data-parallel ranks take part in the latter."""
    sharing = options.tensor_parallel * flags.data_parallel
    if flags.expert_parallel:
        return Ranks(options.tensor_parallel, expert=sharing)
    return Ranks(options.tensor_parallel, expert_tensor=sharing)


def _read(
    facts: ModelFacts, flag: str | None, options: EngineOptions, *, whole_towers: bool = False
) -> tuple[Weights, ...]:
    has_fp8 = options.device != "cpu" and (options.device.supports("fp8") or options.device.at_least(8, 9))
    return _weights(facts, flag, options.dtype, options.text_only, whole_towers, has_fp8)


@lru_cache(maxsize=512)
def _weights(
    facts: ModelFacts, flag: str | None, dtype: str, text_only: bool, whole_towers: bool, has_fp8: bool
) -> tuple[Weights, ...]:
    """The matrices in each format they may have, likeliest first."""
    likely = likely_quantisations(facts, flag, has_fp8=has_fp8)
    return tuple(
        read_weights(facts, quantisation, dtype, text_only=text_only, whole_towers=whole_towers)
        for quantisation in likely
    )


def _heavier(sizes: list[int], chosen: int, requested_bytes: int) -> int:
    """How much more the heaviest format that could start would take."""
    startable = [size for size in sizes if size <= _FITS * requested_bytes]
    return max(0, max(startable, default=sizes[chosen]) - sizes[chosen])


def _rank_bytes(weights: Weights, facts: ModelFacts, options: EngineOptions, ranks: Ranks) -> int:
    """Bytes on the fullest pipeline stage."""
    return max(weights.bytes_on(ranks, options.capability, stage) for stage in stages(facts.dims.layers, options))


def _beside(
    weights: Weights, facts: ModelFacts, options: EngineOptions, flags: MemoryFlags, ranks: Ranks
) -> Iterator[MemoryItem]:
    """Drafts and adapters, which live on the last stage or on each."""
    draft = _draft_bytes(weights, facts, options, ranks)
    if draft and options.speculation:
        basis: Basis = "assumed" if options.speculation.like_target else "fitted"
        yield MemoryItem("draft", draft, basis, "weights of what speculates")
    adapters = adapter_bytes(facts, options, flags)
    if adapters:
        yield MemoryItem("adapters", adapters, "fitted", f"{flags.max_loras} slots of rank {flags.max_lora_rank}")


def _draft_bytes(weights: Weights, facts: ModelFacts, options: EngineOptions, ranks: Ranks) -> int:
    speculation = options.speculation
    if speculation is None:
        return 0
    if speculation.draft is not None:
        return _read(speculation.draft, None, options)[0].bytes_on(ranks, options.capability)
    module = total_bytes(weights.draft, ranks, options.capability)
    if speculation.like_target:
        return module + _vocabularies_bytes(facts, options)
    return max(1, facts.draft_modules) * module if speculation.method == "mtp" else 0


def _vocabularies_bytes(facts: ModelFacts, options: EngineOptions) -> int:
    """Embeddings and output matrix of a head that shares neither with its target, in half precision."""
    return 2 * 2 * facts.dims.vocab_size * facts.dims.hidden_size // options.tensor_parallel


def adapter_bytes(facts: ModelFacts, options: EngineOptions, flags: MemoryFlags) -> int:
    """LoRA slots: two thin matrices beside each linear one, about 14 hidden sizes a layer on both sides together."""
    if not flags.max_loras:
        return 0
    dims = facts.dims
    wide = 8 * dims.hidden_size + (6 * dims.hidden_size + 3 * dims.intermediate_size) // options.tensor_parallel
    return flags.max_loras * flags.max_lora_rank * wide * dims.layers * 2


def _on_disk(weights: Weights, facts: ModelFacts) -> int:
    """Bytes of the whole checkpoint by the rules, its predictor included, tables that are computed left out."""
    whole = weights.bytes_on(_WHOLE) - total_bytes(weights.everywhere, _WHOLE, (0, 0))
    return whole + facts.draft_modules * total_bytes(weights.draft, _WHOLE, (0, 0))


def _source(guessed: float) -> str:
    return "the configuration's shapes; an MLP width is guessed" if guessed else "the configuration's shapes"


def _unnamed(facts: ModelFacts) -> bool:
    return not facts.config.get("architectures") and not facts.config.get("model_type")


def _assumptions(facts: ModelFacts, weights: Weights, flags: MemoryFlags, formats: int) -> tuple[str, ...]:
    notes = ["config.json names no architecture: a vision tower would come on top"] if _unnamed(facts) else []
    notes += [f"{name} is not in config.json: taken in its class's usual proportion" for name in weights.assumed]
    if formats > 1:
        notes.append(f"{flags.quantization}: config.json does not say how many bits: the likelier that fits is taken")
    return tuple(notes)
