"""Gated delta nets with some full attention: Qwen3-Next, Qwen3.5 and its successors."""

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import Layer, ModelConfigError, RecurrentState, SoftmaxAttention, StateTensor

LINEAR = "linear_attention"
FULL = "full_attention"


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """One state for a linear layer, K and V for a full one."""
    attention = Layer((full_attention(reading),))
    linear = Layer((state(reading),))
    return tuple(linear if kind == LINEAR else attention for kind in layer_kinds(reading))


def layer_kinds(reading: Reading) -> tuple[str, ...]:
    """``layer_types``, else every ``full_attention_interval``-th layer is full."""
    written = reading.layer_types()
    if written is None:
        interval = reading.text.optional_int("full_attention_interval", minimum=1) or 4
        return tuple(LINEAR if (layer + 1) % interval else FULL for layer in range(reading.layer_count))
    for kind in written:
        if kind not in {LINEAR, FULL}:
            raise ModelConfigError(reading.text.name("layer_types"), kind, f"{LINEAR} or {FULL} is needed")
    return written


def full_attention(reading: Reading) -> SoftmaxAttention:
    """The attention of its full layers."""
    dim = reading.head_dim
    return SoftmaxAttention(reading.query_heads, reading.kv_heads, dim, dim)


def state(reading: Reading) -> RecurrentState:
    """Convolution over q, k and v, and one matrix a value head.

    Source: vLLM 0.32 ``layers/mamba/mamba_utils.py gated_delta_net_state_shape``.
    """
    text = reading.text
    key_heads, value_heads = text.integer("linear_num_key_heads"), text.integer("linear_num_value_heads")
    key_dim, value_dim = text.integer("linear_key_head_dim"), text.integer("linear_value_head_dim")
    kernel = text.integer("linear_conv_kernel_dim")
    convolved = 2 * key_heads * key_dim + value_heads * value_dim
    return RecurrentState(
        kind="gdn",
        tensors=(
            StateTensor("conv", convolved, kernel - 1, grows=True),
            StateTensor("ssm", value_heads, value_dim * key_dim),
        ),
        key_dim=key_dim,
    )


def state_dtype(reading: Reading) -> str | None:
    """Qwen3.5 writes the dtype of its recurrent state; Qwen3-Next leaves it to the convolution's.

    Every published Qwen3.5 writes float32; a file without the key was shortened by somebody, and start-up logs of such
    models show float32. Source: vLLM 0.32 ``models/config.py Qwen3_5ForConditionalGenerationConfig``.
    """
    if not reading.architecture.startswith("Qwen3_5"):
        return None
    if not reading.text.has("mamba_ssm_dtype"):
        reading.text.assumed.append(reading.text.name("mamba_ssm_dtype"))
    return reading.text.text("mamba_ssm_dtype", "float32")
