"""Bytes of weights that the fullest rank holds."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from plimsoll.core.memory.formats import MXFP4, Format, plain
from plimsoll.core.memory.inventory import read_inventory
from plimsoll.core.memory.scheme import Scheme, read_scheme
from plimsoll.core.memory.tensors import Padding, Ranks, Tensor
from plimsoll.facts.models import DTYPE_BYTES, ModelFacts, Quantisation

Stored = tuple[Tensor, Format]
Capability = tuple[int, int]

_HALF: Final = 2
_NO_PADDING: Final = Padding()
_BLACKWELL: Final = 10
_HOPPER: Final = 9


@dataclass(frozen=True)
class Weights:
    """A model's matrices with their formats, equal ones counted; ``ends`` live on the first or last stage."""

    layers: tuple[Mapping[Stored, int], ...]
    ends: Mapping[Stored, int]
    assumed: tuple[str, ...] = ()

    def bytes_on(self, ranks: Ranks, capability: Capability = (0, 0)) -> int:
        """Bytes on the fullest rank of a GPU of that compute capability."""
        everything: Counter[Stored] = Counter(self.ends)
        for layer in self.layers:
            everything.update(layer)
        return sum(stored_bytes(tensor, fmt, ranks, capability) * count for (tensor, fmt), count in everything.items())


def stored_bytes(tensor: Tensor, fmt: Format, ranks: Ranks, capability: Capability = (0, 0)) -> int:
    """Bytes one rank stores of a tensor."""
    padding = expert_padding(fmt, capability) if tensor.of_experts else _NO_PADDING
    outputs, inputs, copies = tensor.on_rank(ranks, padding)
    return fmt.bytes(outputs, inputs) * copies


def expert_padding(fmt: Format, capability: Capability) -> Padding:
    """What the expert kernel of a format rounds sizes up to.

    Source: vLLM 0.32 ``fused_moe/oracle``: mxfp4 kernels tile by 128, and the hidden size by 256 except on SM90;
    unquantised experts of SM10x go to a kernel that tiles by 128.
    """
    if fmt == MXFP4:
        return Padding(128 if capability[0] == _HOPPER else 256, 128)
    if fmt == plain(_HALF) and capability[0] == _BLACKWELL:
        return Padding(1, 128)
    return _NO_PADDING


def read_weights(facts: ModelFacts, quantisation: Quantisation | None = None, dtype: str | None = None) -> Weights:
    """Matrices and formats of a model; ``quantisation`` and ``dtype`` replace what its configuration says."""
    inventory = read_inventory(facts)
    scheme = read_scheme(facts.quantisation if quantisation is None else quantisation, element_bytes(facts, dtype))
    return Weights(
        layers=tuple(_counted(layer, scheme) for layer in inventory.layers),
        ends=_counted((*inventory.first, *inventory.last), scheme),
        assumed=inventory.assumed,
    )


def element_bytes(facts: ModelFacts, dtype: str | None) -> int:
    """Bytes of an unquantised element: float32 checkpoints run in half precision unless a flag says float32."""
    if dtype is None or dtype == "auto":
        return min(_HALF, DTYPE_BYTES.get(facts.dtype, _HALF))
    return DTYPE_BYTES.get(dtype, _HALF)


def _counted(tensors: Iterable[Tensor], scheme: Scheme) -> Mapping[Stored, int]:
    return Counter((_shape(tensor), scheme.format_of(tensor)) for tensor in tensors)


def _shape(tensor: Tensor) -> Tensor:
    """The tensor without its name: equal shapes count together."""
    return replace(tensor, path="")
