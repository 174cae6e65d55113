"""Nemotron-NAS: layers of one Llama, some without attention, each with its own number of KV heads."""

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import Fields
from plimsoll.facts.models import Layer, ModelConfigError, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """``block_configs`` says for each layer. Source: vLLM 0.32 ``models/nemotron_nas.py``."""
    blocks = reading.text.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) < reading.layer_count:
        name = reading.text.name("block_configs")
        raise ModelConfigError(name, None, f"a list of {reading.layer_count} blocks is needed")
    return tuple(_layer(reading, block, index) for index, block in enumerate(blocks[: reading.layer_count]))


def _layer(reading: Reading, block: object, index: int) -> Layer:
    name = reading.text.name(f"block_configs[{index}]")
    if not isinstance(block, dict):
        raise ModelConfigError(name, block, "not an object")
    attention = Fields(block, name).child("attention")
    if attention is None:
        raise ModelConfigError(f"{name}.attention", None, "missing")
    if attention.flag("no_op") or attention.flag("replace_with_linear"):
        return Layer()
    dim = reading.head_dim
    kv_heads = reading.query_heads // attention.integer("n_heads_in_group", maximum=reading.query_heads)
    return Layer((SoftmaxAttention(reading.query_heads, kv_heads, dim, dim),))
