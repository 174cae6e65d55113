"""``plimsoll explain``: what a live service does and why, read from the cluster, in plain words."""

from typing import Annotated

import typer
from pydantic import ValidationError

from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import Object
from plimsoll.api.status import VLLMServiceStatus
from plimsoll.cli.cluster import NameArgument, NamespaceOption, with_service
from plimsoll.cli.live import explain_object, live_sections
from plimsoll.cli.output import BAD_INPUT, Output, complain, emit, say
from plimsoll.cli.text import text_lines


def explain(
    name: NameArgument,
    namespace: NamespaceOption = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Explain a live service: the plan, where the memory goes, what is observed, what needs attention, last decisions.

    Reads one object and changes nothing. The cluster is that of KUBECONFIG, else of the pod, else of ~/.kube/config.

    \b
      plimsoll explain qwen-docs -n llm
      plimsoll explain qwen-docs -o json | jq .attention

    Exit code 0: explained. 2: there is no such service (the nearest names are listed). 3: the API server or its
    credentials cannot be had.
    """
    told = explain_object(_understood(with_service(name, namespace, _itself)))
    if output is not Output.TABLE:
        emit(told, output)
        return
    say(typer.style(f"{told['service']} ({told['model']}): ", bold=True) + told["said"])
    for line in text_lines(live_sections(told)):
        say(line)


async def _itself(_cluster: KubeCluster, service: Object) -> Object:
    return service


def _understood(service: Object) -> Object:
    """The object, whose status has the form of this version; else the command ends and says what has not."""
    try:
        VLLMServiceStatus.model_validate(service.get("status") or {}, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("status", *first["loc"])))
        complain(f"{where}: {first['msg']}: use the plimsoll of the operator's own version")
        raise typer.Exit(BAD_INPUT) from None
    return service
