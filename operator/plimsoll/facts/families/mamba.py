"""Mamba, alone or among attention layers: Nemotron-H, Granite 4, Falcon-H1, Jamba, Zamba2, Mamba and Mamba2."""

from collections.abc import Callable, Mapping
from typing import Final

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import MAX_LAYERS
from plimsoll.facts.models import (
    Cache,
    Layer,
    ModelConfigError,
    RecurrentState,
    SoftmaxAttention,
    StateTensor,
)

_ATTENTION_KINDS: Final = frozenset({"attention", "full_attention"})
_STATE_KINDS: Final = frozenset({"mamba", "linear_attention", "mamba2"})
_BOTH_KINDS: Final = frozenset({"hybrid"})
_LETTERS: Final[Mapping[str, str]] = {"M": "mamba", "*": "attention", "E": "moe", "-": "mlp"}


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """State, attention, both or neither for each layer."""
    state = Layer((_STATES[reading.architecture](reading),))
    if reading.architecture in _ATTENTION_FREE:
        return (state,) * reading.layer_count
    attention: Cache = _attention(reading)
    both = Layer((attention, *state.caches))
    if reading.architecture == "FalconH1ForCausalLM":
        return (both,) * reading.layer_count
    kinds = layer_kinds(reading)
    layers = {kind: _layer(kind, state, Layer((attention,)), both) for kind in set(kinds)}
    return tuple(layers[kind] for kind in kinds)


def _layer(kind: str, state: Layer, attention: Layer, both: Layer) -> Layer:
    if kind in _STATE_KINDS:
        return state
    if kind in _ATTENTION_KINDS:
        return attention
    return both if kind in _BOTH_KINDS else Layer()


def layer_kinds(reading: Reading) -> tuple[str, ...]:
    """Kinds as listed, as a pattern of letters, or by period (Jamba)."""
    text = reading.text
    pattern = text.text("hybrid_override_pattern")
    if pattern is not None:
        return _from_letters(reading, pattern)
    for key in ("layers_block_type", "layer_types"):
        written = text.strings(key)
        if written is not None:
            return written
    if text.has("attn_layer_period") or reading.architecture == "JambaForCausalLM":
        period = text.optional_int("attn_layer_period", minimum=1) or 8
        written_offset = text.optional_int("attn_layer_offset")
        offset = 4 if written_offset is None else written_offset
        return tuple("attention" if layer % period == offset else "mamba" for layer in range(reading.layer_count))
    raise ModelConfigError(text.name("layers_block_type"), None, "missing; the kind of each layer is needed")


def _from_letters(reading: Reading, pattern: str) -> tuple[str, ...]:
    name = reading.text.name("hybrid_override_pattern")
    if not pattern or len(pattern) > MAX_LAYERS:
        raise ModelConfigError(name, pattern, f"1 to {MAX_LAYERS} letters are needed")
    unknown = set(pattern) - _LETTERS.keys()
    if unknown:
        raise ModelConfigError(name, pattern, f"only {', '.join(_LETTERS)} are known, not {sorted(unknown)}")
    return tuple(_LETTERS[letter] for letter in pattern)


def head_size(reading: Reading) -> int:
    """Attention head size; Zamba2 attends over twice the width."""
    if reading.architecture in _ATTENTION_FREE:
        return 0
    return reading.text.optional_int("attention_head_dim", minimum=1) or reading.head_dim


def query_heads(reading: Reading) -> int:
    """Attention heads; none in a model of Mamba layers only."""
    return 0 if reading.architecture in _ATTENTION_FREE else reading.query_heads


def _attention(reading: Reading) -> SoftmaxAttention:
    """The attention layers' heads. A window, where Nemotron-H writes one, holds for all of them."""
    dim = head_size(reading)
    window = reading.window_tokens if reading.architecture.startswith("NemotronH") else None
    kv_heads = reading.query_heads if reading.architecture == "Zamba2ForCausalLM" else reading.kv_heads
    return SoftmaxAttention(reading.query_heads, kv_heads, dim, dim, window_tokens=window)


def state_dtype(reading: Reading) -> str | None:
    """Nemotron-H keeps its state in float32 unless it says otherwise; the others follow the convolution.

    Source: vLLM 0.32 ``models/config.py NemotronHForCausalLMConfig``.
    """
    if not reading.architecture.startswith("NemotronH"):
        return None
    return reading.text.text("mamba_ssm_cache_dtype", "float32")


def _mamba2(*, inner: int, heads: int, head_dim: int, groups: int, state: int, kernel: int) -> RecurrentState:
    """Convolution over x, B and C, and one matrix a head.

    Source: vLLM 0.32 ``layers/mamba/mamba_utils.py mamba2_state_shape``.
    """
    return RecurrentState(
        kind="mamba2",
        tensors=(
            StateTensor("conv", inner, kernel - 1, grows=True, grouped_rows=2 * state),
            StateTensor("ssm", heads, head_dim * state),
        ),
        groups=groups,
    )


def _nemotron(reading: Reading) -> RecurrentState:
    text = reading.text
    heads, head_dim = text.integer("mamba_num_heads"), text.integer("mamba_head_dim")
    return _mamba2(
        inner=heads * head_dim,
        heads=heads,
        head_dim=head_dim,
        groups=text.integer("n_groups"),
        state=text.integer("ssm_state_size"),
        kernel=text.integer("conv_kernel"),
    )


def _granite(reading: Reading) -> RecurrentState:
    """Granite and Falcon-H1: widths by expansion, unless the inner width is written."""
    text = reading.text
    expanded = int((text.number("mamba_expand") or 2) * reading.hidden_size)
    inner = text.optional_int("mamba_d_ssm", minimum=1) if reading.architecture == "FalconH1ForCausalLM" else None
    inner = inner or expanded
    heads = text.integer("mamba_n_heads")
    head_dim = inner // heads if text.get("mamba_d_head") in (None, "auto") else text.integer("mamba_d_head")
    return _mamba2(
        inner=inner,
        heads=heads,
        head_dim=head_dim,
        groups=text.integer("mamba_n_groups"),
        state=text.integer("mamba_d_state"),
        kernel=text.integer("mamba_d_conv"),
    )


def _zamba2(reading: Reading) -> RecurrentState:
    text = reading.text
    inner = text.integer("mamba_expand") * reading.hidden_size
    heads = text.integer("n_mamba_heads")
    return _mamba2(
        inner=inner,
        heads=heads,
        head_dim=text.optional_int("mamba_headdim", minimum=1) or inner // heads,
        groups=text.integer("mamba_ngroups"),
        state=text.integer("mamba_d_state"),
        kernel=text.integer("mamba_d_conv"),
    )


def _pure_mamba2(reading: Reading) -> RecurrentState:
    text = reading.text
    return _mamba2(
        inner=text.integer("expand") * reading.hidden_size,
        heads=text.integer("num_heads"),
        head_dim=text.integer("head_dim"),
        groups=text.integer("n_groups"),
        state=text.integer("state_size"),
        kernel=text.integer("conv_kernel"),
    )


def _mamba1(inner: int, state: int, kernel: int) -> RecurrentState:
    """Convolution over x, and one vector a channel; drafts do not lengthen it."""
    return RecurrentState(
        kind="mamba1", tensors=(StateTensor("conv", inner, kernel - 1), StateTensor("ssm", inner, state))
    )


def _jamba(reading: Reading) -> RecurrentState:
    text = reading.text
    inner = text.integer("mamba_expand") * reading.hidden_size
    return _mamba1(inner, text.integer("mamba_d_state"), text.integer("mamba_d_conv"))


def _pure_mamba(reading: Reading) -> RecurrentState:
    text = reading.text
    inner = text.optional_int("intermediate_size", minimum=1) or text.integer("expand") * reading.hidden_size
    return _mamba1(inner, text.integer("state_size"), text.integer("conv_kernel"))


_STATES: Final[Mapping[str, Callable[[Reading], RecurrentState]]] = {
    "FalconH1ForCausalLM": _granite,
    "FalconMambaForCausalLM": _pure_mamba,
    "GraniteMoeHybridForCausalLM": _granite,
    "JambaForCausalLM": _jamba,
    "Mamba2ForCausalLM": _pure_mamba2,
    "MambaForCausalLM": _pure_mamba,
    "NemotronHForCausalLM": _nemotron,
    "NemotronHPuzzleForCausalLM": _nemotron,
    "Zamba2ForCausalLM": _zamba2,
}
_ATTENTION_FREE: Final = frozenset({"MambaForCausalLM", "Mamba2ForCausalLM", "FalconMambaForCausalLM"})
