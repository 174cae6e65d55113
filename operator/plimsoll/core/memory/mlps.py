"""Weight matrices of what works on single tokens: dense MLPs, routed and shared experts, and which layer has which."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from plimsoll.core.memory.decoder import Decoder
from plimsoll.core.memory.states import FLOAT32_BYTES
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import ModelFacts

Kind = Literal["dense", "sparse", "both", "none"]

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
# Their MLP is four times as wide as the hidden state unless the file says otherwise.
_FOUR_TIMES: Final = frozenset(
    {"BloomForCausalLM", "FalconForCausalLM", "GPT2LMHeadModel", "GPTBigCodeForCausalLM", "GPTJForCausalLM"}
)
_BIASED_EXPERTS: Final = frozenset({"GptOssForCausalLM"})
# Their routers are kept in float32.
_FLOAT32_ROUTERS: Final = frozenset(
    {"hy_v4", "mimo_v2", "mimo_v2_flash", "minimax_m2", "minimax_m3_vl_text", "step3p5"}
)
_LETTERS: Final[Mapping[str, Kind]] = {"M": "none", "*": "none", "E": "sparse", "-": "dense"}
_WORDS: Final[Mapping[str, Kind]] = {"moe": "sparse", "mlp": "dense", "mamba": "none", "attention": "none"}

# Wrappers whose class gives their text part another shape than the text part's own class would.
_WRAPPED_PROPORTION: Final[Mapping[str, float]] = {"mistral3": 32768 / 5120}
# MLP parameters of a layer over hidden size squared where neither the file nor its class says: four times the width
# without a gate, or 8/3 with one, are both 8; grouped-query models are wider (Llama 3: 3 × 3.5).
_GUESSED_MHA: Final = 8
_GUESSED_GQA: Final = 10.5
# Width of an expert over the hidden size where nobody wrote it (DeepSeek-MoE, Qwen1.5-MoE: 1408 / 2048).
_GUESSED_EXPERT: Final = 0.6875
_KIMI_LEAST_SHARE: Final = 256
_WIDTH_KEYS: Final = (
    "dense_intermediate_size",
    "intermediate_size_mlp",
    "intermediate_size",
    "ffn_hidden_size",
    "n_inner",
    "decoder_ffn_dim",
    "ffn_dim",
)


@dataclass(frozen=True)
class Experts:
    """The expert layers of a decoder; ``hidden`` is what an expert reads (a latent where the model has one)."""

    count: int
    hidden: int
    intermediate: int
    shared_intermediate: int
    biased: bool = False
    least_share: int = 1
    router_bytes: int | None = None


@dataclass(frozen=True)
class Mlps:
    """How the decoder's MLPs are built: of how many matrices, how wide in each layer, with which experts.

    ``assumed`` names widths that nobody wrote.
    """

    matrices: int
    widths: tuple[int, ...]
    experts: Experts | None
    kinds: tuple[Kind, ...]
    assumed: tuple[str, ...]


def read_mlps(decoder: Decoder) -> Mlps:
    """The MLPs of a decoder."""
    facts, text = decoder.facts, decoder.text
    widths, written = dense_widths(facts, text)
    experts, experts_written = read_experts(decoder)
    kinds = mlp_kinds(facts, text, experts)
    assumed = () if written or not {"dense", "both"} & set(kinds) else ("intermediate_size",)
    return Mlps(
        matrices=2 if facts.architecture in _TWO_MATRICES else 3,
        widths=widths,
        experts=experts,
        kinds=kinds,
        assumed=assumed if experts is None or experts_written else (*assumed, "moe_intermediate_size"),
    )


def layer_mlp(decoder: Decoder, mlps: Mlps, index: int, path: str) -> Iterator[Tensor]:
    """Matrices of layer ``index``'s MLP, named below ``path``."""
    kind = mlps.kinds[index]
    if kind in {"dense", "both"} and mlps.widths[index]:
        yield from dense(f"{path}.mlp", decoder.hidden, mlps.widths[index], mlps.matrices)
    if kind in {"sparse", "both"} and mlps.experts is not None:
        yield from routed(f"{path}.mlp", decoder.hidden, mlps.experts, mlps.matrices)


def dense(path: str, hidden: int, intermediate: int, matrices: int) -> Iterator[Tensor]:
    """One MLP: gate (three matrices only), up and down."""
    if matrices == 3:  # noqa: PLR2004
        yield Tensor(f"{path}.gate_proj", intermediate, hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.up_proj", intermediate, hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.down_proj", hidden, intermediate, Cut.INPUTS)


def routed(path: str, hidden: int, experts: Experts, matrices: int) -> Iterator[Tensor]:
    """Router, the way into a latent and back where there is one, routed experts and shared ones."""
    count, width = experts.count, experts.intermediate
    yield Tensor(f"{path}.gate", count, hidden, linear=False, element_bytes=experts.router_bytes)
    if experts.hidden != hidden:
        yield Tensor(f"{path}.latent_down", experts.hidden, hidden, linear=False)
        yield Tensor(f"{path}.latent_up", hidden, experts.hidden, linear=False)
    least = experts.least_share
    for name in ("gate_proj", "up_proj")[3 - matrices :]:
        yield Tensor(f"{path}.experts.0.{name}", width, experts.hidden, Cut.EXPERT_OUTPUTS, count, least_share=least)
    yield Tensor(f"{path}.experts.0.down_proj", experts.hidden, width, Cut.EXPERT_INPUTS, count, least_share=least)
    if experts.biased:
        yield Tensor(f"{path}.experts.0.up_bias", 2 * width, 1, Cut.EXPERT_OUTPUTS, count, linear=False)
        yield Tensor(f"{path}.experts.0.down_bias", experts.hidden, 1, Cut.NONE, count, linear=False)
    if experts.shared_intermediate:
        yield from dense(f"{path}.shared_experts", hidden, experts.shared_intermediate, matrices)


def dense_widths(facts: ModelFacts, text: Fields) -> tuple[tuple[int, ...], bool]:
    """Width of each layer's dense MLP, and whether it was written; else its class's usual share of the hidden size.

    Layers that share an earlier cache may be twice as wide (Gemma 4), blocks may differ or have none (Nemotron-NAS).
    """
    layers = facts.dims.layers
    blocks = text.values.get("block_configs")
    if isinstance(blocks, list):
        return tuple(_block_width(block, facts.dims.hidden_size) for block in blocks[:layers]), True
    for key in _WIDTH_KEYS:
        if isinstance(text.values.get(key), list):
            return text.integers(key, length=layers) or (), True
        if text.has(key):
            return _doubled(facts, text, _adjusted(text, text.integer(key))), True
    if facts.architecture in _FOUR_TIMES:
        return (4 * facts.dims.hidden_size,) * layers, True
    return (_usual_width(facts, text),) * layers, False


def _doubled(facts: ModelFacts, text: Fields, width: int) -> tuple[int, ...]:
    shared = (text.optional_int("num_kv_shared_layers") or 0) if text.flag("use_double_wide_mlp") else 0
    return (width,) * (facts.dims.layers - shared) + (2 * width,) * shared


def _block_width(block: object, hidden: int) -> int:
    """Nemotron-NAS: two thirds of a multiple of twice the hidden size, rounded up to 256; 0 where there is no MLP."""
    ffn = block.get("ffn") if isinstance(block, Mapping) else None
    multiple = ffn.get("ffn_mult") if isinstance(ffn, Mapping) else None
    if not isinstance(ffn, Mapping) or ffn.get("no_op") or not isinstance(multiple, int | float):
        return 0
    return -(-int(2 * multiple * hidden / 3) // 256) * 256


def _usual_width(facts: ModelFacts, text: Fields) -> int:
    dims, wrapper = facts.dims, facts.config.get("model_type")
    if wrapper in _WRAPPED_PROPORTION:
        return round(_WRAPPED_PROPORTION[str(wrapper)] * dims.hidden_size)
    usual, usual_hidden = text.class_default(*_WIDTH_KEYS), text.class_default("hidden_size", "n_embd", "d_model")
    if usual and usual_hidden:
        return round(usual * dims.hidden_size / usual_hidden)
    matrices = 2 if facts.architecture in _TWO_MATRICES else 3
    area = _GUESSED_GQA if dims.kv_heads < dims.query_heads else _GUESSED_MHA
    return round(area * dims.hidden_size / matrices)


def _adjusted(text: Fields, width: int) -> int:
    """LFM2 writes a width its class cuts to two thirds and rounds up."""
    if not text.flag("block_auto_adjust_ff_dim"):
        return width
    multiple = text.optional_int("block_multiple_of", minimum=1) or 256
    return -(-int(2 * width / 3) // multiple) * multiple


def read_experts(decoder: Decoder) -> tuple[Experts | None, bool]:
    """The model's experts (None for a dense model), and whether their width was written."""
    facts, text = decoder.facts, decoder.text
    ffn = text.child("ffn_config")
    count = facts.dims.experts or (ffn.optional_int("moe_num_experts") if ffn else None) or 0
    if count <= 1:
        return None, True
    written = text.optional_int("moe_intermediate_size", "expert_intermediate_size", "expert_ffn_hidden_size") or (
        ffn.optional_int("ffn_hidden_size") if ffn else None
    )
    if written is None and text.has("intermediate_size"):
        written = text.integer("intermediate_size")
    width = written or round(_GUESSED_EXPERT * facts.dims.hidden_size)
    return Experts(
        count=count,
        hidden=text.optional_int("moe_latent_size", "routed_expert_hidden_size") or decoder.hidden,
        intermediate=width,
        shared_intermediate=_shared(facts, text, width),
        biased=facts.architecture in _BIASED_EXPERTS,
        least_share=_KIMI_LEAST_SHARE if facts.model_type == "kimi_linear" else 1,
        router_bytes=FLOAT32_BYTES if facts.model_type in _FLOAT32_ROUTERS else None,
    ), written is not None


def _shared(facts: ModelFacts, text: Fields, width: int) -> int:
    """Width of all shared experts of a layer together."""
    count = text.optional_int("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    each = text.optional_int(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "share_expert_dim"
    )
    if each is not None:
        return each * (1 if count is None else count)
    if facts.model_type.startswith("llama4"):
        return width
    return width * (count or 0) or text.optional_int("shared_intermediate_size") or 0


def mlp_kinds(facts: ModelFacts, text: Fields, experts: Experts | None) -> tuple[Kind, ...]:
    """What each layer has: one block a layer in Nemotron-H and its kind, else an MLP in every layer."""
    layers = facts.dims.layers
    pattern = text.values.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return tuple(_LETTERS.get(letter, "dense") for letter in pattern[:layers])
    words = text.values.get("layers_block_type")
    if isinstance(words, list) and {"moe", "mlp"} & set(words):
        return tuple(_WORDS.get(str(word), "dense") for word in words[:layers])
    both: Kind = "both"
    each: tuple[Kind, Kind] = ("dense", "sparse")
    if experts is None:
        return each[:1] * layers
    if text.flag("enable_moe_block"):
        return (both,) * layers
    return tuple(each[sparse] for sparse in sparse_layers(layers, text))


def sparse_layers(layers: int, text: Fields) -> tuple[bool, ...]:
    """Which layers have experts, from whichever key the family uses."""
    kinds = text.strings("mlp_layer_types", length=layers)
    if kinds is not None:
        return tuple(kind == "sparse" for kind in kinds)
    frequency = text.get("moe_layer_freq")
    if isinstance(frequency, list):
        return tuple(bool(value) for value in frequency[:layers])
    listed = _listed(text)
    if listed is not None:
        return tuple(layer in listed for layer in range(layers))
    keys = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "dense_mlp_idx")
    first_dense = text.optional_int(*keys) or 0
    dense_ones = set(text.integers("mlp_only_layers") or ())
    step, offset = _step(text)
    return tuple(
        layer >= first_dense and layer not in dense_ones and (layer - offset) % step == 0 for layer in range(layers)
    )


def _listed(text: Fields) -> frozenset[int] | None:
    """Expert layers by number: a list, or Step's comma-separated text."""
    enumerated = text.values.get("moe_layers_enum")
    if isinstance(enumerated, str):
        return frozenset(int(part) for part in enumerated.split(",") if part.strip().isdecimal())
    listed = text.integers("moe_layers")
    return None if listed is None else frozenset(listed)


def _step(text: Fields) -> tuple[int, int]:
    """Every how many layers experts come, and the first of them."""
    period = text.optional_int("expert_layer_period", minimum=1)
    if period:
        return period, text.optional_int("expert_layer_offset") or 0
    frequency = text.optional_int("moe_layer_freq", minimum=1)
    if frequency:
        return frequency, 0
    step = text.optional_int("decoder_sparse_step", "interleave_moe_layer_step", minimum=1) or 1
    return step, step - 1
