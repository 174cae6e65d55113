"""In which precision a stored matrix is multiplied on a GPU, and whether it is unpacked first."""

from typing import Final

from plimsoll.core.memory.formats import MXFP4, NVFP4, Format
from plimsoll.facts.gpus import GPU, DataType

_EIGHT_BITS: Final = 8


def precision_of(fmt: Format, gpu: GPU) -> tuple[DataType, bool]:
    """The data type of the multiplication, and whether the weights are dequantised to it (weight-only kernels).

    fp4 weights are multiplied as fp4 (mxfp4: with eight-bit activations) and eight-bit ones as fp8 where the tensor
    cores can; else, and for integer weights of four bits, a Marlin-like kernel unpacks them to half precision.
    Source: vLLM 0.32 ``layers/quantization``, each method's kernel choice; ``vllm-memory.md`` 3.6 and 5.3.
    """
    half = half_precision(gpu)
    if fmt == NVFP4 and gpu.supports("fp4"):
        return "fp4", False
    if (fmt == MXFP4 and gpu.supports("fp4")) or fmt.bits == _EIGHT_BITS:
        return ("fp8", False) if gpu.supports("fp8") else (half, True)
    return half, fmt.bits <= _EIGHT_BITS


def half_precision(gpu: GPU) -> DataType:
    """The 16-bit type of a GPU: bf16, or fp16 on parts older than Ampere."""
    return "bf16" if gpu.supports("bf16") else "fp16"
