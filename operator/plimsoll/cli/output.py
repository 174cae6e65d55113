"""What every command has in common: how results are printed and what its exit code means."""

import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import typer

DONE: Final = 0
NO: Final = 1
BAD_INPUT: Final = 2
UNREACHABLE: Final = 3


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def emit(value: Any, output: Output) -> None:  # noqa: ANN401 - any JSON value
    """Print a JSON value as JSON or YAML."""
    if output is Output.JSON:
        import json  # noqa: PLC0415 - only the format asked for is loaded

        typer.echo(json.dumps(value, indent=2))
    else:
        import yaml  # noqa: PLC0415

        typer.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), nl=False)


def one_or_list(values: Sequence[Any]) -> Any:  # noqa: ANN401 - any JSON value
    """The contract's form: one object alone, several as a list."""
    return values[0] if len(values) == 1 else list(values)


_ORDERS: Final = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""What tells a terminal to do something, colours and line breaks apart."""


def say(text: str, *, err: bool = False) -> None:
    """Print for a person. What a manifest, a cluster or a log holds must not steer the terminal."""
    typer.echo(_ORDERS.sub("", text), err=err)


def complain(message: str) -> None:
    """A message for the person, to stderr."""
    say(message, err=True)


def write_file(option: str, path: Path, text: str) -> None:
    """What an option asked to write; ends the command when it cannot be."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        complain(f"{option}: {path}: {error.strerror or error}")
        raise typer.Exit(BAD_INPUT) from None
    complain(f"wrote {path}")
