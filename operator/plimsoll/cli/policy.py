"""The option ``--pod-policy``: the file that the operator's owner mounts, so that a plan refuses what they refuse."""

from pathlib import Path
from typing import Annotated

import typer

from plimsoll.adapters.policy_file import read_policy_file
from plimsoll.cli.output import BAD_INPUT, complain
from plimsoll.core.policy import PodPolicy, PolicyError

PolicyOption = Annotated[
    Path | None,
    typer.Option(help="The operator's pod policy (docs/pods.md). Left out: the default one.", show_default=False),
]


def given_policy(path: Path | None) -> PodPolicy:
    """The policy; ends the command with exit code 2 when it cannot be used."""
    try:
        return read_policy_file(str(path) if path else "")
    except PolicyError as error:
        complain(f"--pod-policy: {error}")
        raise typer.Exit(BAD_INPUT) from None
