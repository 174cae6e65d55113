"""Multi-head latent attention: DeepSeek V2 and V3, Kimi K2, GLM-4.7-Flash, Mistral Large 3, LongCat, Pangu Ultra."""

from plimsoll.facts.families import attention
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import LatentAttention, Layer, SoftmaxAttention


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """One compressed vector a layer; two sublayers in LongCat's; plain heads where no ranks are written."""
    if _plain(reading):
        return attention.read_layers(reading)
    if not reading.text.optional_int("kv_lora_rank"):
        return (Layer((uncompressed(reading),)),) * reading.layer_count
    count = 2 if reading.text.model_type.startswith("longcat") else 1
    return (Layer((latent(reading),) * count),) * reading.layer_count


def latent(reading: Reading, *, sparse: bool = False, kernel: str | None = None) -> LatentAttention:
    """The compressed attention a file describes.

    Source: vLLM 0.32 ``layers/attention/mla_attention.py``: latent rank and rope part, no separate V.
    """
    text = reading.text
    return LatentAttention(
        query_heads=reading.query_heads,
        latent_dim=text.integer("kv_lora_rank"),
        rope_dim=text.integer("qk_rope_head_dim", minimum=0),
        nope_dim=text.optional_int("qk_nope_head_dim") or 0,
        value_dim=text.optional_int("v_head_dim") or 0,
        sparse=sparse,
        kernel=kernel,
    )


def uncompressed(reading: Reading) -> SoftmaxAttention:
    """Full heads, as wide as rope and the rest together, where a class does not compress (MiniCPM3)."""
    text = reading.text
    width = text.integer("qk_nope_head_dim") + text.integer("qk_rope_head_dim", minimum=0)
    return SoftmaxAttention(reading.query_heads, reading.query_heads, width, width)


def _plain(reading: Reading) -> bool:
    """Whether a class of this family builds plain heads: no rope part and no other part are written.

    Source: vLLM 0.32 ``models/deepseek_v2.py DeepseekV2DecoderLayer`` (``use_mha``).
    """
    return not any(reading.text.optional_int(key) for key in ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"))


def head_size(reading: Reading) -> int:
    """Latent and rope together; vLLM keeps it as the model's head size."""
    if _plain(reading):
        return attention.head_size(reading)
    rank = reading.text.optional_int("kv_lora_rank")
    return rank + (reading.text.optional_int("qk_rope_head_dim") or 0) if rank else uncompressed(reading).head_dim
