"""Bytes of weights that one rank holds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from plimsoll.core.memory.formats import MXFP4, Format, plain
from plimsoll.core.memory.inventory import Inventory, read_inventory
from plimsoll.core.memory.scheme import Scheme, read_scheme
from plimsoll.core.memory.tensors import ANY_LAYER, Padding, Ranks, Tensor
from plimsoll.facts.models import DTYPE_BYTES, ModelFacts, Quantisation

Stored = tuple[Tensor, Format]
Counts = Mapping[Stored, int]
Capability = tuple[int, int]

_HALF: Final = 2
_NO_PADDING: Final = Padding()
_BLACKWELL: Final = 10
_HOPPER: Final = 9


@dataclass(frozen=True)
class Weights:
    """A model's matrices with their formats, equal ones counted, by where they live (see ``Inventory``).

    ``guessed`` are those whose width nobody wrote.
    """

    first: Counts
    layers: tuple[Counts, ...]
    last: Counts
    everywhere: Counts
    draft: Counts
    guessed: Counts
    assumed: tuple[str, ...] = ()

    def bytes_on(self, ranks: Ranks, capability: Capability = (0, 0), stage: range | None = None) -> int:
        """Bytes on the fullest rank of a pipeline stage (all layers unless said) of GPUs of that capability."""
        whole = range(len(self.layers))
        return total_bytes(self._all if stage in {None, whole} else self._held_by(stage or whole), ranks, capability)

    @cached_property
    def _all(self) -> Counts:
        return self._held_by(range(len(self.layers)))

    def _held_by(self, stage: range) -> Counts:
        held: Counter[Stored] = Counter(self.everywhere)
        if stage.start == 0:
            held.update(self.first)
        if stage.stop == len(self.layers):
            held.update(self.last)
        for index in stage:
            held.update(self.layers[index])
        return held


def total_bytes(counts: Counts, ranks: Ranks, capability: Capability) -> int:
    """Bytes that the fullest rank stores of all of them."""
    return sum(stored_bytes(tensor, fmt, ranks, capability) * count for (tensor, fmt), count in counts.items())


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


def read_weights(
    facts: ModelFacts,
    quantisation: Quantisation | None = None,
    dtype: str | None = None,
    *,
    text_only: bool = False,
    whole_towers: bool = False,
) -> Weights:
    """Matrices and formats of a model; ``quantisation`` and ``dtype`` replace what its configuration says."""
    inventory = read_inventory(facts, text_only=text_only, whole_towers=whole_towers)
    scheme = read_scheme(facts.quantisation if quantisation is None else quantisation, element_bytes(facts, dtype))
    return Weights(
        first=_counted(inventory.first, scheme),
        layers=_counted_layers(inventory.layers, scheme),
        last=_counted(inventory.last, scheme),
        everywhere=_counted(inventory.everywhere, scheme),
        draft=_counted(inventory.draft, scheme),
        guessed=_counted(_guessed(inventory), scheme),
        assumed=inventory.assumed,
    )


def element_bytes(facts: ModelFacts, dtype: str | None) -> int:
    """Bytes of an unquantised element: float32 checkpoints run in half precision unless a flag says float32."""
    if dtype is None or dtype == "auto":
        return min(_HALF, DTYPE_BYTES.get(facts.dtype, _HALF))
    return DTYPE_BYTES.get(dtype, _HALF)


def _guessed(inventory: Inventory) -> Iterable[Tensor]:
    if not inventory.assumed:
        return ()
    return (tensor for layer in inventory.layers for tensor in layer if ".mlp." in tensor.path)


def _counted_layers(layers: tuple[tuple[Tensor, ...], ...], scheme: Scheme) -> tuple[Counts, ...]:
    """Counts of each layer; equal ones are one object, and counted once unless the scheme tells layers apart."""
    if not scheme.tells_layers_apart:
        distinct = {id(layer): layer for layer in layers}
        counts = {key: _counted(layer, scheme) for key, layer in distinct.items()}
        return tuple(counts[id(layer)] for layer in layers)
    alike: dict[frozenset[tuple[Stored, int]], Counts] = {}
    numbered = (_counted(_numbered(layer, index), scheme) for index, layer in enumerate(layers))
    return tuple(alike.setdefault(frozenset(each.items()), each) for each in numbered)


def _numbered(layer: tuple[Tensor, ...], index: int) -> Iterator[Tensor]:
    return (replace(tensor, path=tensor.path.replace(ANY_LAYER, str(index), 1)) for tensor in layer)


def _counted(tensors: Iterable[Tensor], scheme: Scheme) -> Counts:
    """Equal shapes of equal format count together, whatever their names."""
    return Counter((replace(tensor, path=""), scheme.format_of(tensor)) for tensor in tensors)
