"""Weight matrices of mixers with recurrent state: delta nets, KDA, Mamba, short convolutions, linear attention."""

from collections.abc import Iterator

from plimsoll.core.memory.decoder import Decoder
from plimsoll.core.memory.tensors import Cut, Tensor
from plimsoll.facts.models import RecurrentState

FLOAT32_BYTES = 4


def state_mixer(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Matrices of one layer's recurrent mixer."""
    match state.kind:
        case "gdn":
            yield from gated_delta_net(decoder, f"{path}.linear_attn", state)
        case "kda":
            yield from kimi_delta_attention(decoder, f"{path}.self_attn", state)
        case "mamba1":
            yield from mamba1(decoder, f"{path}.mamba", state)
        case "mamba2":
            yield from mamba2(decoder, f"{path}.mixer", state)
        case "short_conv":
            yield from short_convolution(decoder, f"{path}.conv", state)
        case "linear":
            yield from linear_attention(decoder, f"{path}.self_attn", state)
        case "embedding_conv":
            return


def gated_delta_net(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Projections to queries, keys, values and gate, a short convolution, and the way back."""
    conv, matrix = state.tensors
    value_width = matrix.rows * decoder.text.integer("linear_value_head_dim")
    yield Tensor(f"{path}.in_proj_qkv", conv.rows, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.in_proj_z", value_width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.in_proj_ba", 2 * matrix.rows, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.conv1d", conv.rows, conv.columns + 1, Cut.OUTPUTS, linear=False)
    yield Tensor(f"{path}.out_proj", decoder.hidden, value_width, Cut.INPUTS)


def kimi_delta_attention(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Queries, keys and values, a decay and an output gate: each through a head's width unless the file says full."""
    conv = state.tensors[0]
    matrix = next(tensor for tensor in state.tensors if tensor.role == "ssm")
    width = sum(tensor.rows for tensor in state.tensors if tensor.role == "conv") // 3
    narrow = width // matrix.rows
    settings = decoder.text.child("linear_attn_config")
    full_gate = bool(settings and settings.flag("use_full_rank_gate")) or decoder.text.flag("no_kda_lora")
    for name in ("q_proj", "k_proj", "v_proj"):
        yield Tensor(f"{path}.{name}", width, decoder.hidden, Cut.OUTPUTS)
        yield Tensor(
            f"{path}.{name[0]}_conv1d", width, conv.columns + 1, Cut.OUTPUTS, linear=False, element_bytes=FLOAT32_BYTES
        )
    yield Tensor(f"{path}.b_proj", matrix.rows, decoder.hidden, Cut.OUTPUTS)
    yield from _gate(f"{path}.f", decoder.hidden, width, 0 if decoder.text.flag("no_kda_lora") else narrow)
    yield from _gate(f"{path}.g", decoder.hidden, width, 0 if full_gate else narrow)
    yield Tensor(f"{path}.o_proj", decoder.hidden, width, Cut.INPUTS)


def _gate(path: str, hidden: int, width: int, rank: int) -> Iterator[Tensor]:
    if rank:
        yield Tensor(f"{path}_a_proj", rank, hidden)
        yield Tensor(f"{path}_b_proj", width, rank, Cut.OUTPUTS)
    else:
        yield Tensor(f"{path}_proj", width, hidden, Cut.OUTPUTS)


def mamba1(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Input and gate, the selection of step, B and C, and the way back; A is kept in float32."""
    conv, matrix = state.tensors
    inner, states = conv.rows, matrix.columns
    rank = decoder.text.optional_int("mamba_dt_rank", "time_step_rank") or -(-decoder.hidden // 16)
    yield Tensor(f"{path}.in_proj", 2 * inner, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.conv1d", inner, conv.columns + 1, Cut.OUTPUTS, linear=False)
    yield Tensor(f"{path}.x_proj", rank + 2 * states, inner, Cut.INPUTS)
    yield Tensor(f"{path}.dt_proj", inner, rank, Cut.OUTPUTS)
    yield Tensor(f"{path}.A", inner, states, Cut.OUTPUTS, linear=False, element_bytes=FLOAT32_BYTES)
    yield Tensor(f"{path}.out_proj", decoder.hidden, inner, Cut.INPUTS)


def mamba2(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Input, gate, B, C and step in one projection; groups of B and C are whole on a rank that has no other."""
    conv, matrix = state.tensors
    group_rows = conv.grouped_rows
    yield Tensor(f"{path}.in_proj", 2 * conv.rows + matrix.rows, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.in_proj", state.groups * group_rows, decoder.hidden, Cut.HEADS, unit=group_rows)
    kernel = conv.columns + 1
    yield Tensor(f"{path}.conv1d", conv.rows + state.groups * group_rows, kernel, Cut.OUTPUTS, linear=False)
    yield Tensor(f"{path}.out_proj", decoder.hidden, conv.rows, Cut.INPUTS)


def short_convolution(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Two gates and an input, a convolution, and the way back."""
    conv = state.tensors[0]
    yield Tensor(f"{path}.in_proj", 3 * conv.rows, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.conv", conv.rows, conv.columns + 1, Cut.OUTPUTS, linear=False)
    yield Tensor(f"{path}.out_proj", decoder.hidden, conv.rows, Cut.INPUTS)


def linear_attention(decoder: Decoder, path: str, state: RecurrentState) -> Iterator[Tensor]:
    """Queries, keys, values and an output gate of equal width (MiniMax-01, Ling)."""
    matrix = state.tensors[0]
    width = matrix.rows * round(matrix.columns**0.5)
    yield Tensor(f"{path}.qkv_proj", 3 * width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.output_gate", width, decoder.hidden, Cut.OUTPUTS)
    yield Tensor(f"{path}.out_proj", decoder.hidden, width, Cut.INPUTS)
