"""The option ``--price``: what a GPU costs, by product."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from plimsoll.cli.output import BAD_INPUT, complain
from plimsoll.facts import gpus

Prices = Mapping[str, float]
"""Price of one GPU for an hour, by product label."""

PriceOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="GPU=PRICE",
        help="Price of one GPU for an hour; once for each product. Without one for all, GPU memory stands for price.",
    ),
]


def read_prices(written: Sequence[str] | None) -> Prices:
    """The prices by node label; ends the command with exit code 2 for what is not ``GPU=PRICE`` of a known GPU."""
    return dict(_price(each) for each in written or ())


def _price(written: str) -> tuple[str, float]:
    product, _, figure = written.rpartition("=")
    gpu = gpus.find(product) if product else None
    try:
        price = float(figure)
    except ValueError:
        price = math.nan
    if not product or not 0 < price < math.inf:
        complain(f"--price: {written!r} is not GPU=PRICE, for example NVIDIA-L40S=1.2")
        raise typer.Exit(BAD_INPUT)
    if gpu is None:
        complain(f"--price: {product!r} is not a known GPU; nearest: {', '.join(gpus.nearest(product)) or 'none'}")
        raise typer.Exit(BAD_INPUT)
    return gpu.label, price
