"""Files that name no architecture: believed only when they spell out plain attention completely.

Facts about public checkpoints often circulate as the handful of figures that matter. What is missing is named, never
guessed: a key that hints at any other cache, or an absent figure, is ``UnknownArchitecture``.
"""

from typing import Final

from plimsoll.facts.families import attention
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import Layer, UnknownArchitecture

_NEEDED: Final = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size")
_OTHER_CACHES: Final = (
    "kv_lora_rank",
    "linear_num_value_heads",
    "ssm_state_size",
    "mamba_d_state",
    "state_size",
    "attention_chunk_size",
    "compress_ratios",
    "index_topk",
    "num_kv_shared_layers",
)


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """Plain attention, if everything it needs is written."""
    missing = [key for key in _NEEDED if not reading.text.has(key)]
    if missing:
        raise UnknownArchitecture("(unnamed)", f"architectures, model_type and {', '.join(missing)} are missing")
    hints = [key for key in _OTHER_CACHES if reading.text.has(key)]
    if hints:
        raise UnknownArchitecture("(unnamed)", f"architectures is missing, and {hints[0]} is not plain attention")
    if reading.window_tokens is not None and reading.layer_types() is None:
        raise UnknownArchitecture("(unnamed)", "architectures is missing, and so is which layers slide")
    reading.text.assumed.append("architectures")
    return attention.read_layers(reading)
