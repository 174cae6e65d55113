"""Bytes that one weight matrix takes in each storage format, scales and zero points included."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Format:
    """How the elements of a matrix are stored.

    One scale of ``scale_bytes`` covers a block of ``block_outputs`` × ``block_inputs`` elements; 0 means the whole
    extent. ``zero_bits`` is the zero point beside each scale (AWQ, asymmetric GPTQ).
    """

    bits: float
    scale_bytes: int = 0
    block_outputs: int = 0
    block_inputs: int = 0
    zero_bits: int = 0

    def bytes(self, outputs: int, inputs: int) -> int:
        """Bytes of one ``outputs`` × ``inputs`` matrix."""
        blocks = _blocks(outputs, self.block_outputs) * _blocks(inputs, self.block_inputs)
        return round(outputs * inputs * self.bits / 8 + blocks * (self.scale_bytes + self.zero_bits / 8))


def plain(element_bytes: int) -> Format:
    """Not quantised."""
    return Format(bits=8 * element_bytes)


def grouped(bits: int, group: int, *, zero_points: bool) -> Format:
    """Integer weights with one half-precision scale a group of inputs (AWQ, GPTQ, compressed-tensors pack-quantized).

    ``group`` of -1 or 0 is one scale an output.
    """
    return Format(bits, 2, 1, max(group, 0), bits if zero_points else 0)


def fp8_block(outputs: int, inputs: int) -> Format:
    """Eight bits and one float32 scale a block."""
    return Format(8, 4, outputs, inputs)


EIGHT_BIT_TENSOR: Final = Format(8, 4)
EIGHT_BIT_CHANNEL: Final = Format(8, 4, 1)
NVFP4: Final = Format(4, 1, 1, 16)
MXFP4: Final = Format(4, 1, 1, 32)
MXFP8: Final = Format(8, 1, 1, 32)


def _blocks(extent: int, block: int) -> int:
    return -(-extent // block) if block else 1
