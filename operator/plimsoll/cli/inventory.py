"""The options ``--inventory`` and ``--price``: what the cluster's owner says of its GPUs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from plimsoll.adapters.inventory import load_inventory
from plimsoll.cli.output import BAD_INPUT, complain
from plimsoll.core.plan.inventory import Inventory, InventoryError, with_prices
from plimsoll.core.policy import PodPolicy
from plimsoll.facts import gpus

Prices = Mapping[str, float]
"""Price of one GPU by product label."""

PriceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GPU=PRICE",
        help="Price of one GPU for an hour; once for each product. Without one for all, GPU memory stands for price.",
    ),
]
InventoryOption = Annotated[
    Path | None,
    typer.Option(
        envvar="PLIMSOLL_INVENTORY",
        help="The operator's inventory: prices, node sizes, GPUs and memory by product (docs/inventory.md).",
    ),
]


def given_inventory(path: Path | None, prices: Sequence[str] | None, policy: PodPolicy | None = None) -> Inventory:
    """The inventory, single prices over it, and the owner's pod policy; exit code 2 when it cannot be used."""
    try:
        inventory = load_inventory(path) if path is not None else Inventory()
    except InventoryError as error:
        complain(f"--inventory: {error}")
        raise typer.Exit(BAD_INPUT) from None
    priced = with_prices(inventory, dict(_price(each) for each in prices or ()))
    return replace(priced, policy=policy or PodPolicy())


def prices_of(inventory: Inventory) -> Prices:
    """What is priced."""
    return {label: stock.price for label, stock in inventory.products.items() if stock.price}


def _price(written: str) -> tuple[str, float]:
    product, _, figure = written.rpartition("=")
    try:
        price = float(figure)
    except ValueError:
        price = math.nan
    if not product or not 0 < price < math.inf:
        complain(f"--price: {written!r} is not GPU=PRICE, for example NVIDIA-L40S=1.2")
        raise typer.Exit(BAD_INPUT)
    if gpus.find(product) is None:
        complain(f"--price: {product!r} is not a known GPU; nearest: {', '.join(gpus.nearest(product)) or 'none'}")
        raise typer.Exit(BAD_INPUT)
    return gpus.node_label(product), price
