"""Weight matrices of what works on single tokens: dense MLPs, routed and shared experts, and which layer has which."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import ModelFacts

# Their MLP is up and down without a gate.
_TWO_MATRICES: Final = frozenset(
    {
        "ApertusForCausalLM",
        "ArceeForCausalLM",
        "BloomForCausalLM",
        "FalconForCausalLM",
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "GPTJForCausalLM",
        "GPTNeoXForCausalLM",
        "NemotronForCausalLM",
        "NemotronHForCausalLM",
        "OPTForCausalLM",
        "PhiForCausalLM",
        "Starcoder2ForCausalLM",
        "WhisperForConditionalGeneration",
    }
)
_BIASED_EXPERTS: Final = frozenset({"GptOssForCausalLM"})
# MLP parameters of a layer over hidden size squared where nobody wrote the intermediate size: four times the width
# without a gate, or 8/3 with one, are both 8; grouped-query models are wider (Llama 3: 3 × 3.5).
_GUESSED_MHA: Final = 8
_GUESSED_GQA: Final = 10.5


@dataclass(frozen=True)
class Experts:
    """The expert layers of a decoder."""

    count: int
    intermediate: int
    shared_intermediate: int
    sparse: tuple[bool, ...]
    biased: bool = False


def dense(path: str, hidden: int, intermediate: int, matrices: int) -> Iterator[Tensor]:
    """One MLP: gate (three matrices only), up and down."""
    if matrices == 3:  # noqa: PLR2004
        yield Tensor(f"{path}.gate_proj", intermediate, hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.up_proj", intermediate, hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.down_proj", hidden, intermediate, Cut.INPUTS)


def routed(path: str, hidden: int, experts: Experts, matrices: int) -> Iterator[Tensor]:
    """Router, routed experts and shared ones."""
    yield Tensor(f"{path}.gate", experts.count, hidden, linear=False)
    width, count = experts.intermediate, experts.count
    for name in ("gate_proj", "up_proj")[3 - matrices :]:
        yield Tensor(f"{path}.experts.0.{name}", width, hidden, Cut.EXPERT_OUTPUTS, count)
    yield Tensor(f"{path}.experts.0.down_proj", hidden, width, Cut.EXPERT_INPUTS, count)
    if experts.biased:
        yield Tensor(f"{path}.experts.0.up_bias", 2 * width, 1, Cut.EXPERT_OUTPUTS, count, linear=False)
        yield Tensor(f"{path}.experts.0.down_bias", hidden, 1, Cut.NONE, count, linear=False)
    if experts.shared_intermediate:
        yield from dense(f"{path}.shared_experts", hidden, experts.shared_intermediate, matrices)


def matrices_of(facts: ModelFacts) -> int:
    """Matrices of one MLP: three with a gate, else two."""
    return 2 if facts.architecture in _TWO_MATRICES else 3


def dense_intermediate(facts: ModelFacts, text: Fields) -> tuple[int, bool]:
    """Width of the dense MLP, and whether it was written; else its class's usual proportion to the hidden size."""
    keys = ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    for key in keys:
        if text.has(key):
            return text.integer(key), True
    dims = facts.dims
    usual, usual_hidden = text.class_default(*keys), text.class_default("hidden_size", "n_embd", "d_model")
    if usual and usual_hidden:
        return round(usual * dims.hidden_size / usual_hidden), False
    area = _GUESSED_GQA if dims.kv_heads < dims.query_heads else _GUESSED_MHA
    return round(area * dims.hidden_size / matrices_of(facts)), False


def read_experts(facts: ModelFacts, text: Fields) -> Experts | None:
    """The model's expert layers; None for a dense model."""
    ffn = text.child("ffn_config")
    count = facts.dims.experts or (ffn.optional_int("moe_num_experts") if ffn else None) or 0
    if count <= 1:
        return None
    intermediate = text.optional_int("moe_intermediate_size", "expert_ffn_hidden_size") or (
        ffn.optional_int("ffn_hidden_size") if ffn else None
    )
    width = intermediate or text.optional_int("intermediate_size") or facts.dims.hidden_size
    return Experts(
        count, width, _shared(text, width), sparse_layers(facts, text), facts.architecture in _BIASED_EXPERTS
    )


def _shared(text: Fields, width: int) -> int:
    written = text.optional_int(
        "shared_expert_intermediate_size", "shared_intermediate_size", "moe_shared_expert_intermediate_size"
    )
    if written is not None:
        return written * max(1, text.optional_int("n_shared_experts", "num_shared_experts") or 1)
    return width * (text.optional_int("n_shared_experts", "num_shared_experts", "moe_num_shared_experts") or 0)


def sparse_layers(facts: ModelFacts, text: Fields) -> tuple[bool, ...]:
    """Which layers have experts, from whichever key the family uses."""
    layers = range(facts.dims.layers)
    kinds = text.strings("mlp_layer_types", length=facts.dims.layers)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return tuple(bool(value) for value in frequency[: len(layers)])
    first_dense = text.optional_int("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index") or 0
    step, offset = _step(text)
    dense_ones = set(text.integers("mlp_only_layers") or ())
    listed = text.integers("moe_layers")
    if listed is not None:
        return tuple(layer in listed for layer in layers)
    return tuple(layer >= first_dense and layer not in dense_ones and (layer - offset) % step == 0 for layer in layers)


def _step(text: Fields) -> tuple[int, int]:
    """Every how many layers experts come, and the first of them."""
    period = text.optional_int("expert_layer_period", minimum=1)
    if period:
        return period, text.optional_int("expert_layer_offset") or 0
    step = text.optional_int("decoder_sparse_step", "interleave_moe_layer_step", minimum=1) or 1
    frequency = text.optional_int("moe_layer_freq", minimum=1)
    return (frequency, 0) if frequency else (step, step - 1)
