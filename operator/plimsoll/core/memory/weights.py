"""Bytes of weights that the fullest rank holds."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll.core.memory.formats import Format
from plimsoll.core.memory.inventory import read_inventory
from plimsoll.core.memory.scheme import Scheme, read_scheme
from plimsoll.core.memory.tensors import Ranks, Tensor
from plimsoll.facts.models import DTYPE_BYTES, ModelFacts, Quantisation

Stored = tuple[Tensor, Format]


@dataclass(frozen=True)
class Weights:
    """A model's matrices with their formats, equal ones counted; ``ends`` live on the first or last stage."""

    layers: tuple[Mapping[Stored, int], ...]
    ends: Mapping[Stored, int]
    assumed: tuple[str, ...] = ()

    def bytes_on(self, ranks: Ranks) -> int:
        """Bytes on the fullest rank."""
        everything: Counter[Stored] = Counter(self.ends)
        for layer in self.layers:
            everything.update(layer)
        return sum(stored_bytes(tensor, fmt, ranks) * count for (tensor, fmt), count in everything.items())


def stored_bytes(tensor: Tensor, fmt: Format, ranks: Ranks) -> int:
    """Bytes one rank stores of a tensor."""
    outputs, inputs, copies = tensor.on_rank(ranks)
    return fmt.bytes(outputs, inputs) * copies


def read_weights(facts: ModelFacts, quantisation: Quantisation | None = None, dtype: str | None = None) -> Weights:
    """Matrices and formats of a model; ``quantisation`` and ``dtype`` replace what its configuration says."""
    inventory = read_inventory(facts)
    element_bytes = DTYPE_BYTES.get(dtype or facts.dtype, 2)
    scheme = read_scheme(facts.quantisation if quantisation is None else quantisation, element_bytes)
    return Weights(
        layers=tuple(_counted(layer, scheme) for layer in inventory.layers),
        ends=_counted((*inventory.first, *inventory.last), scheme),
        assumed=inventory.assumed,
    )


def _counted(tensors: Iterable[Tensor], scheme: Scheme) -> Mapping[Stored, int]:
    return Counter((_shape(tensor), scheme.format_of(tensor)) for tensor in tensors)


def _shape(tensor: Tensor) -> Tensor:
    """The tensor without its name: equal shapes count together."""
    return Tensor("", tensor.outputs, tensor.inputs, tensor.cut, tensor.copies, tensor.unit)
