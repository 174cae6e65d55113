"""What a planner may know of the cluster beside the request: prices, nodes, GPUs that may be used, memory to leave."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import ValidationError

from plimsoll.api.inventory import ClusterInventory, ProductInventory, parse_inventory
from plimsoll.api.parse import field_errors
from plimsoll.core.plan.claims import Claims
from plimsoll.core.plan.demand import NOTHING_LEARNED, LearnedLoad
from plimsoll.core.policy import PodPolicy
from plimsoll.facts import gpus
from plimsoll.facts.gpus import GPU

_GIB: Final = 1 << 30


class InventoryError(ValueError):
    """An inventory that cannot be used; the message names field, value and what is allowed."""


@dataclass(frozen=True)
class Stock:
    """What is known here of one product; None leaves it to the catalogue. Sizes are of one GPU.

    ``gpus`` may be held by one service, ``shared_gpus`` by all together, the cluster may ``grow_to`` so many on demand;
    ``reserve_bytes`` are held by others; on ``mixed`` nodes the label names only the first of several products.
    """

    price: float | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    shared_gpus: int | None = None
    grow_to: int | None = None
    memory_bytes: int | None = None
    reserve_bytes: int = 0
    mixed: bool = False

    @property
    def says_memory(self) -> bool:
        """Whether somebody said how much of a GPU there is for an engine."""
        return self.memory_bytes is not None or self.reserve_bytes > 0


_NOTHING: Final = Stock()


@dataclass(frozen=True)
class Inventory:
    """Stocks by node label, and the GPUs that one service may hold of all products together.

    ``policy`` is what the operator's owner decides about pods, ``claims`` the volumes that the service names.
    """

    products: Mapping[str, Stock] = field(default_factory=dict)
    gpu_budget: int | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    policy: PodPolicy = field(default_factory=PodPolicy)
    claims: Claims = field(default_factory=dict)
    pools: Mapping[str, int] = field(default_factory=dict)
    """KV blocks that running engines report, by what decides them (``core/pools.py``)."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Step times over those predicted, by what decides them (``core/speed.py``)."""
    load: LearnedLoad = NOTHING_LEARNED
    """What the service's own traffic has shown."""

    def of(self, label: str) -> Stock:
        """The stock of a product; nothing is known of one that is not listed."""
        return self.products.get(label, _NOTHING)

    def priority(self, namespace: str, name: str) -> int:
        """How important a service is where GPUs are short: its own number, else that of its namespace."""
        return self.priorities.get(f"{namespace}/{name}", self.priorities.get(namespace, 0))

    def seen(self, gpu: GPU, label: str) -> GPU:
        """The GPU with the memory that an engine finds here."""
        size = self.of(label).memory_bytes
        return gpu if size is None else replace(gpu, memory_driver_bytes=size, torch_total_bytes=size)


def read_inventory(value: Any) -> Inventory:  # noqa: ANN401 - whatever the file holds
    """The inventory of a file's contents.

    Raises:
        InventoryError: something in it is not allowed.
    """
    try:
        written = parse_inventory(value)
    except ValidationError as error:
        raise InventoryError("; ".join(map(str, field_errors(error, value, ClusterInventory)))) from None
    found: dict[str, Stock] = {}
    for name, product in written.products.items():
        label = gpus.node_label(name)
        if label in found:
            raise InventoryError(f"products.{name}: {label} stands there already")
        found[label] = _stock(label, product)
    return Inventory(found, written.gpus, written.priorities)


def with_prices(inventory: Inventory, prices: Mapping[str, float]) -> Inventory:
    """The inventory with prices that win over its own."""
    priced = {label: replace(inventory.of(label), price=price) for label, price in prices.items()}
    return replace(inventory, products={**inventory.products, **priced})


def _stock(label: str, product: ProductInventory) -> Stock:
    gpu, reserve = gpus.find(label), product.reserve_gib or 0
    memory = product.memory_gib or (gpu.torch_total_bytes / _GIB if gpu else None)
    if memory is not None and reserve >= memory:
        raise InventoryError(f"products.{label}.reserveGiB: {reserve:g}: must be less than the GPU's {memory:.1f} GiB")
    return Stock(
        price=product.price,
        gpus_per_node=product.gpus_per_node,
        gpus=product.gpus,
        shared_gpus=product.shared_gpus,
        grow_to=product.grow_to,
        memory_bytes=round(product.memory_gib * _GIB) if product.memory_gib else None,
        reserve_bytes=round(reserve * _GIB),
        mixed=product.mixed_nodes,
    )
