"""The GPU products that a request names: which may be planned, and why not the others."""

from collections.abc import Sequence

from plimsoll.api import reasons
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.result import Rejected
from plimsoll.core.plan.shapes import is_shared
from plimsoll.core.rows import as_cuda
from plimsoll.facts import gpus
from plimsoll.facts.gpus import GPU


def products_of(names: Sequence[str], inventory: Inventory) -> tuple[tuple[tuple[GPU, str], ...], tuple[Rejected, ...]]:
    """GPUs with the node labels to select, and what of the names cannot be planned.

    An unknown product is a class of its own of which nothing is assumed; nodes that mix products are left out, as their
    label names only the first, and shared GPUs, of which nobody said how much memory others hold.
    """
    found, excluded = [], []
    for name in names:
        gpu, label = gpus.find(name), gpus.node_label(name)
        if gpu is None:
            excluded.append(Rejected(name, reasons.UNKNOWN_GPU.name, _unknown_gpu(name)))
        elif inventory.of(label).mixed:
            excluded.append(Rejected(name, reasons.MIXED_NODES.name, _mixed(name)))
        elif is_shared(label) and not inventory.of(label).says_memory:
            excluded.append(Rejected(name, reasons.SHARED_GPU.name, _shared(name)))
        else:
            found.append((inventory.seen(as_cuda(gpu), label), label))
    return tuple(found), tuple(excluded)


def _unknown_gpu(name: str) -> str:
    near = ", ".join(gpus.nearest(name)) or ", ".join(gpus.names()[:5])
    return (
        f"spec.hardware.gpu: {name!r} is not a GPU the catalogue knows; known and near: {near} "
        "(the node label nvidia.com/gpu.product)"
    )


def _mixed(name: str) -> str:
    return (
        f"spec.hardware.gpu: nodes labelled {name} also hold other GPUs (mixedNodes in the operator's inventory): name "
        "another product, or ask the operator's owner"
    )


def _shared(name: str) -> str:
    return (
        f"spec.hardware.gpu: {name} is shared by time slicing, and nobody says what others hold of its memory "
        "(reserveGiB in the operator's inventory): name whole GPUs or MIG slices"
    )
