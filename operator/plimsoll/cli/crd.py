"""`plimsoll crd`: the CustomResourceDefinition, made from the models of this very version."""

import json
from enum import StrEnum
from typing import Annotated

import typer
import yaml

from plimsoll.api.schema import custom_resource_definition


class Output(StrEnum):
    """A CRD is for the API server: it has no table form."""

    YAML = "yaml"
    JSON = "json"


class _Written(yaml.SafeDumper):
    """YAML as a person writes it: what occurs twice is there twice, not once with references to it."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True


def crd(output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = Output.YAML) -> None:
    """Print the CRD. Install or update it with: plimsoll crd | kubectl apply --server-side -f -."""
    typer.echo(render(output), nl=False)


def render(output: Output = Output.YAML) -> str:
    """The CRD as text that ends with a newline."""
    definition = custom_resource_definition()
    if output is Output.JSON:
        return json.dumps(definition, indent=2) + "\n"
    return yaml.dump(definition, Dumper=_Written, sort_keys=False, width=120, allow_unicode=True)
