"""Delta or linear attention beside latent attention: Kimi Linear, Kimi K3, Ling 2.5 and 3, GLM-5.3-Flash."""

from dataclasses import dataclass

from plimsoll.facts.families.latent import head_size, latent
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.families.sparse_latent import indexer_keys
from plimsoll.facts.models import Cache, Layer, ModelConfigError, RecurrentState, RingBuffer, StateTensor

__all__ = ["head_size", "read_layers", "state_dtype"]

_BFLOAT16_BYTES = 2


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """A state for each linear layer, latents for the others."""
    linear, full = Layer((_state(reading),)), Layer(_full(reading))
    return tuple(linear if is_linear else full for is_linear in linear_layers(reading))


def state_dtype(reading: Reading) -> str | None:
    """KDA keeps its recurrence in float32; linear attention in the model's dtype."""
    return None if reading.architecture == "BailingMoeV2_5ForCausalLM" else "float32"


def linear_layers(reading: Reading) -> tuple[bool, ...]:
    """Which layers are linear: all but the last of each group (Ling), or as listed (Kimi counts from 1)."""
    layers = range(reading.layer_count)
    if reading.architecture.startswith("BailingMoe"):
        size = reading.text.optional_int("layer_group_size", minimum=1) or 1
        whole = reading.layer_count // size * size
        if reading.architecture == "BailingMoeV2_5ForCausalLM":
            return tuple((layer + 1) % size != 0 for layer in layers)
        return tuple((layer + 1) % size != 0 and layer < whole for layer in layers)
    kinds = reading.layer_types()
    if kinds is not None:
        return tuple(kind == "linear_attention" for kind in kinds)
    setting = reading.text.child("linear_attn_config")
    full = setting.integers("full_attn_layers") if setting else None
    if full is None:
        name = reading.text.name("linear_attn_config")
        raise ModelConfigError(name, None, "missing; the layers with full attention are needed")
    first = 0 if reading.architecture.startswith("Glm5Next") else 1
    return tuple(layer + first not in set(full) for layer in layers)


def _full(reading: Reading) -> tuple[Cache, ...]:
    """Latents; GLM-5.3-Flash adds pooled indexer keys and the ring of the pool that is still open."""
    if not reading.architecture.startswith("Glm5Next"):
        return (latent(reading),)
    pool = reading.text.integer("index_kpool", minimum=2)
    key_dim = reading.text.integer("index_head_dim")
    ring = RingBuffer(pool, 2 * key_dim * _BFLOAT16_BYTES, power_of_two=True)
    return (indexer_keys(reading, tokens_per_key=pool), ring, latent(reading, sparse=True))


def _state(reading: Reading) -> RecurrentState:
    if reading.architecture == "BailingMoeV2_5ForCausalLM":
        heads, dim = reading.query_heads, reading.head_dim
        return RecurrentState("linear", (StateTensor("conv", heads, dim * dim),))
    shape = _delta_shape(reading)
    width = shape.heads * shape.head_dim
    return RecurrentState(
        "kda",
        (
            StateTensor("conv", 3 * width, shape.kernel - 1, grows=True),
            StateTensor("ssm", shape.heads, shape.head_dim * shape.head_dim),
        ),
        key_dim=shape.head_dim,
        bounded_gate=shape.bounded,
    )


@dataclass(frozen=True, slots=True)
class _DeltaShape:
    """Heads, their size, convolution length, and whether the gate is bounded (FlashKDA needs that)."""

    heads: int
    head_dim: int
    kernel: int
    bounded: bool


def _delta_shape(reading: Reading) -> _DeltaShape:
    """Source: vLLM 0.32 ``models/kimi_k3/nvidia/kda.py``, ``bailing_moe_v3.py``, ``mamba_utils.kda_state_shape``."""
    text = reading.text
    if reading.architecture.startswith("BailingMoe"):
        kernel = text.optional_int("short_conv_kernel_size", minimum=1) or 4
        return _DeltaShape(reading.query_heads, reading.head_dim, kernel, bounded=False)
    setting = text.child("linear_attn_config")
    if setting is None:
        raise ModelConfigError(text.name("linear_attn_config"), None, "missing; heads and head_dim are needed")
    return _DeltaShape(
        setting.integer("num_heads"),
        setting.integer("head_dim"),
        setting.optional_int("short_conv_kernel_size", minimum=1) or 4,
        bounded=setting.has("gate_lower_bound"),
    )
