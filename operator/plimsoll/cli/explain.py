"""``plimsoll explain``: what a live service does and why, read from the cluster, in plain words."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from plimsoll.adapters.kube import KubeCluster
from plimsoll.adapters.ports import REVISIONS, ForbiddenError, Object
from plimsoll.api import names
from plimsoll.api.status import VLLMServiceStatus
from plimsoll.cli.cluster import NamespaceOption, with_service
from plimsoll.cli.history import differing, from_file, history_sections, of_service
from plimsoll.cli.live import explain_object, live_sections
from plimsoll.cli.output import BAD_INPUT, NO, Output, complain, emit, say
from plimsoll.cli.sources import Bad
from plimsoll.cli.text import text_lines

HistoryOption = Annotated[
    bool, typer.Option("--history", help="Every plan, decision, experiment and correction in order, instead.")
]
FromOption = Annotated[
    str,
    typer.Option("--from", metavar="FILE", help="With --history: from the operator's log, - for standard input."),
]


def explain(
    name: Annotated[str, typer.Argument(help="Name of the VLLMService.", show_default=False)] = "",
    namespace: NamespaceOption = "",
    history: HistoryOption = False,
    log: FromOption = "",
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")] = Output.TABLE,
) -> None:
    """Explain a live service: the plan, where the memory goes, what is observed, what needs attention, last decisions.

    Reads one object, with --history its kept plans too, and changes nothing. The cluster is that of KUBECONFIG, else of
    the pod, else of ~/.kube/config.

    \b
      plimsoll explain qwen-docs -n llm
      plimsoll explain qwen-docs -o json | jq .attention
      plimsoll explain qwen-docs --history
      kubectl logs -n plimsoll-system deploy/plimsoll | plimsoll explain qwen-docs --history --from -

    Exit code 0: explained. 1: decisions of the log come out otherwise when they are made again from what they were made
    from. 2: there is no such service (the nearest names are listed), or nothing in the file. 3: the API server or its
    credentials cannot be had.
    """
    if log and not history:
        complain("--from goes with --history")
        raise typer.Exit(BAD_INPUT)
    if not log and not name:
        complain("NAME is missing: which VLLMService? Only --history --from FILE needs none")
        raise typer.Exit(BAD_INPUT)
    if history:
        _tell(_recorded(log, name, namespace) if log else with_service(name, namespace, _history), output)
        return
    told = explain_object(_understood(with_service(name, namespace, _itself)))
    if output is not Output.TABLE:
        emit(told, output)
        return
    say(typer.style(f"{told['service']} ({told['model']}): ", bold=True) + told["said"])
    for line in text_lines(live_sections(told)):
        say(line)


def _tell(entries: Sequence[Object], output: Output) -> None:
    if output is not Output.TABLE:
        emit([dict(entry) for entry in entries], output)
    else:
        for line in text_lines(history_sections(entries), ""):
            say(line)
    if differing(entries):
        raise typer.Exit(NO)


def _recorded(log: str, name: str, namespace: str) -> list[Any]:
    found = from_file(log, name, namespace)
    if isinstance(found, Bad):
        complain(found.message)
        raise typer.Exit(BAD_INPUT)
    return found


async def _history(cluster: KubeCluster, service: Object) -> list[Any]:
    """The service's own entries, and its plans where they may be read."""
    meta = _understood(service)["metadata"]
    selector = f"{names.LABEL_SERVICE}={meta['name']}"
    try:
        plans = [each async for each in cluster.list(REVISIONS, meta["namespace"], selector)]
    except ForbiddenError as error:
        complain(f"plans are left out: {error.message}")
        plans = []
    return of_service(service, plans)


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
