"""``plimsoll diff``: what a change to services would do, before anybody applies it."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

from plimsoll.cli.changes import ServiceDiff, compare
from plimsoll.cli.diff_text import as_json, markdown, table
from plimsoll.cli.inventory import InventoryOption, PriceOption, given_inventory, prices_of
from plimsoll.cli.output import BAD_INPUT, DONE, NO, Output, complain, emit, say
from plimsoll.cli.planning import Batch, ModelConfigOption, Planned, given_config, plan_files

NAMES_SHOWN: Final = 5


class Form(StrEnum):
    """How a difference is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


Side = Annotated[str, typer.Argument(help="A file, a folder, or - for stdin (YAML, JSON or a tar archive).")]


def diff(
    old: Side,
    new: Side,
    model_config: ModelConfigOption = None,
    inventory: InventoryOption = None,
    price: PriceOption = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="How to print the result.")] = Form.TABLE,
) -> None:
    """Show what a change would do: GPUs, flags, KV tokens, requests at once, cost, and which pods restart.

    Both sides are planned as the operator would plan them, and pods restart when the pod template that the operator
    would render differs. Cost is money when --price knows every product, else the GPU memory held.

    \b
      plimsoll diff old.yaml new.yaml
      git show main:deploy/qwen.yaml | plimsoll diff - deploy/qwen.yaml
      git archive main deploy | plimsoll diff - deploy -o markdown
      plimsoll diff old new --price NVIDIA-H100-80GB-HBM3=2.95

    Exit code 0: nothing differs. 1: something does. 2: something could not be read; what is known of both sides is
    compared all the same.
    """
    config, stocks = given_config(model_config), given_inventory(inventory, price)
    if old == new == "-":
        complain("- stands for stdin and can be only one of the two sides")
        raise typer.Exit(BAD_INPUT)
    before, after = plan_files([old], config, stocks), plan_files([new], config, stocks)
    bad = [*_bad(before), *_bad(after)]
    for message in bad:
        complain(message)
    if before.empty and after.empty:
        complain(f"no VLLMService in {old} or {new}")
        raise typer.Exit(BAD_INPUT)
    found = compare(_comparable(before, after, new), _comparable(after, before, old), prices_of(stocks))
    if found or not bad:
        _print(found, output)
    if bad:
        raise typer.Exit(BAD_INPUT)
    raise typer.Exit(NO if any(each.kind != "unchanged" for each in found) else DONE)


def _comparable(side: Batch, other: Batch, where: str) -> list[Planned]:
    """Services of a side; what the other may have among the unreadable is neither added nor removed, but left out."""
    there = {each.full_name for each in other.planned}
    alone = [each.full_name for each in side.planned if each.full_name not in there] if other.bad else []
    if alone:
        shown = ", ".join(alone[:NAMES_SHOWN]) + (" …" if len(alone) > NAMES_SHOWN else "")
        complain(f"not compared, since not all of {where} could be read: {shown}")
    return [each for each in side.planned if each.full_name not in alone]


def _bad(batch: Batch) -> Iterator[str]:
    yield from (each.message for each in batch.bad)
    yield from (f"{name}: there are two services of this name; the last one counts" for name in _twice(batch.planned))


def _twice(planned: Sequence[Planned]) -> list[str]:
    names = [each.full_name for each in planned]
    return sorted({name for name in names if names.count(name) > 1})


def _print(found: Sequence[ServiceDiff], output: Form) -> None:
    if output in {Form.JSON, Form.YAML}:
        emit(as_json(found), Output(output))
        return
    lines = markdown(found) if output is Form.MARKDOWN else table(found)
    say("\n".join(lines))
