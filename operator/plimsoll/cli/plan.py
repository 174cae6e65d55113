"""``plimsoll plan``: what the operator would do with a VLLMService, without a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from plimsoll.cli.hub import HubOption
from plimsoll.cli.inventory import InventoryOption, PriceOption, given_inventory
from plimsoll.cli.output import BAD_INPUT, DONE, NO, UNREACHABLE, Output, complain, emit, one_or_list, say, write_file
from plimsoll.cli.planning import ModelConfigOption, Planned, given_config, plan_files
from plimsoll.cli.policy import PolicyOption, given_policy
from plimsoll.cli.text import text_lines
from plimsoll.core.plan.words import sections


def plan(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…", help="VLLMService YAML or JSON: files, folders, or - for stdin.", show_default=False
        ),
    ],
    model_config: ModelConfigOption = None,
    hub: HubOption = False,
    inventory: InventoryOption = None,
    price: PriceOption = None,
    pod_policy: PolicyOption = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write a report with pictures: one file that needs nothing else.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Plan services: GPUs, parallelism and flags with the arithmetic, or why it cannot be and what would fit.

    The answer is the operator's own: same code, same facts. ConfigMaps that stand in the files are used for
    spec.model.configRef; objects of other kinds are passed over.

    \b
      plimsoll plan service.yaml
      plimsoll plan deploy/ -o json | jq '.[] | select(.feasible | not)'
      plimsoll plan service.yaml --model-config ./config.json
      kubectl get vllm qwen-docs -o yaml | plimsoll plan -

    Exit code 0: all are feasible. 1: at least one is not. 2: something could not be read; the rest is planned all
    the same. 3: --hub was given and the hub could not be reached.
    """
    stock = given_inventory(inventory, price, given_policy(pod_policy))
    batch = plan_files(files, given_config(model_config), stock, hub=hub)
    for each in batch.bad:
        complain(each.message)
    if batch.empty:
        complain(f"no VLLMService in {', '.join(files)}")
        raise typer.Exit(BAD_INPUT)
    results = [planned.result() for planned in batch.planned]
    _print(results, output)
    if html is not None:
        _write_report(html, batch.planned)
    if batch.bad:
        raise typer.Exit(BAD_INPUT)
    if any(planned.unreachable for planned in batch.planned):
        raise typer.Exit(UNREACHABLE)
    raise typer.Exit(DONE if all(result["feasible"] for result in results) else NO)


def _print(results: Sequence[Mapping[str, Any]], output: Output) -> None:
    if output is not Output.TABLE:
        if results:
            emit(one_or_list(results), output)
        return
    for result in results:
        say("\n".join((*table(result), "")))


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """One planned service as lines."""
    verdict = "feasible" if result["feasible"] else f"not feasible ({result['reason']})"
    yield typer.style(f"{result['service']}: {verdict}", bold=True)
    if not result["feasible"]:
        yield f"  {result['message']}"
    yield from text_lines(sections(result, result["model"]))


def _write_report(path: Path, planned: Sequence[Planned]) -> None:
    from plimsoll.cli.report.page import report  # noqa: PLC0415 - only a report needs it

    write_file("--html", path, report(planned))
