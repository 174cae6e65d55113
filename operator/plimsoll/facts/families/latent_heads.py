"""Files that describe latent attention, built by a class that stores full heads: MiniCPM3."""

from plimsoll.facts.families import latent
from plimsoll.facts.families.reading import Reading
from plimsoll.facts.models import Layer


def read_layers(reading: Reading) -> tuple[Layer, ...]:
    """K and V for every query head. Source: vLLM 0.32 ``models/minicpm3.py``."""
    return (Layer((latent.uncompressed(reading),)),) * reading.layer_count


def head_size(reading: Reading) -> int:
    """Rope and the rest together."""
    return latent.uncompressed(reading).head_dim
