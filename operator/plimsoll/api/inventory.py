"""The inventory of a cluster's GPUs, as the operator's owner writes it: prices, nodes, budgets, memory kept for others.

One file for the operator (``PLIMSOLL_INVENTORY``) and for ``plimsoll plan --inventory``. Tenants cannot write it.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from plimsoll.api.model import APIModel
from plimsoll.api.v1alpha1 import MAX_GPUS

GiB = Annotated[float, Field(gt=0, le=65_536)]


class ProductInventory(APIModel):
    """What is known here of one GPU product; every field is optional."""

    model_config = ConfigDict(extra="forbid")
    price: float | None = Field(
        default=None, description="Price of one GPU, in any one currency and time.", gt=0, le=1e9, strict=False
    )
    gpus_per_node: int | None = Field(default=None, alias="gpusPerNode", description="GPUs of a node.", ge=1, le=1024)
    gpus: int | None = Field(
        default=None, description="GPUs of this product that one service may hold.", ge=0, le=MAX_GPUS
    )
    shared_gpus: int | None = Field(
        default=None,
        alias="sharedGPUs",
        description=(
            "GPUs of this product that all services in scaling mode Auto share, with what the others hold: the last "
            "ones go to the service of the higher priority."
        ),
        ge=0,
        le=MAX_GPUS,
    )
    grow_to: int | None = Field(
        default=None,
        alias="growTo",
        description=(
            "GPUs of this product that the whole cluster may come to have, where nodes are added on demand: up to "
            "that a roll-out counts on a spare one that is not there yet."
        ),
        ge=0,
        le=MAX_GPUS,
    )
    memory_gib: GiB | None = Field(
        default=None,
        alias="memoryGiB",
        description="Memory of one GPU as CUDA reports it, in place of the catalogue's.",
    )
    reserve_gib: GiB | None = Field(
        default=None,
        alias="reserveGiB",
        description="Memory of one GPU that others hold: engines leave it free. On unified memory the system's own.",
    )
    mixed_nodes: bool = Field(
        default=False,
        alias="mixedNodes",
        description="Nodes of this label hold GPUs of other products too (the label names the first): never planned.",
    )


class ClusterInventory(APIModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    gpus: int | None = Field(
        default=None, description="GPUs that one service may hold, whatever their product.", ge=0, le=MAX_GPUS
    )
    priorities: dict[Annotated[str, Field(min_length=1, max_length=127)], int] = Field(
        default={},
        description=(
            "Who gets the last of shared GPUs: namespace, or namespace/name, to a number; more is more important, 0 "
            "where nothing is said."
        ),
    )
    products: dict[Annotated[str, Field(min_length=1, max_length=63)], ProductInventory] = Field(
        default={}, description="By product, as nodes carry it in the label nvidia.com/gpu.product."
    )


def parse_inventory(value: Any) -> ClusterInventory:  # noqa: ANN401 - whatever the file holds
    """The inventory of a file. Raises pydantic's ValidationError."""
    return ClusterInventory.model_validate({} if value is None else value, by_alias=True, by_name=False)
