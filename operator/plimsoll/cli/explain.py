"""``plimsoll explain``: what a live service does and why, read from the cluster, in plain words."""

import asyncio
import os
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Final

import typer
from pydantic import ValidationError

from plimsoll.adapters.kube import CredentialsError, KubeCluster, default_namespace, load_configuration
from plimsoll.adapters.ports import SERVICES, ClusterError, NotFoundError, Object
from plimsoll.api.status import VLLMServiceStatus
from plimsoll.cli.live import explain_object, live_sections
from plimsoll.cli.output import BAD_INPUT, UNREACHABLE, Output, complain, emit
from plimsoll.cli.text import text_lines

TIMEOUT_SECONDS: Final = 15.0
NEAREST_SHOWN: Final = 3


def explain(
    name: Annotated[str, typer.Argument(help="Name of the VLLMService.")],
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Its namespace; else that of the kubeconfig's context.")
    ] = "",
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
    try:
        service = asyncio.run(_read(name, namespace))
    except (CredentialsError, ClusterError) as error:
        complain(str(error))
        raise typer.Exit(UNREACHABLE) from None
    told = explain_object(_understood(service))
    if output is not Output.TABLE:
        emit(told, output)
        return
    typer.echo(typer.style(f"{told['service']} ({told['model']}): ", bold=True) + told["said"])
    for line in text_lines(live_sections(told)):
        typer.echo(line)


async def _read(name: str, namespace: str) -> Object:
    kubeconfig = os.environ.get("KUBECONFIG", "")
    configuration = await load_configuration(kubeconfig)
    where = namespace or default_namespace(kubeconfig)
    cluster = KubeCluster(configuration, TIMEOUT_SECONDS)
    try:
        return await cluster.get(SERVICES, where, name)
    except NotFoundError:
        complain(await _missing(cluster, where, name))
        raise typer.Exit(BAD_INPUT) from None
    finally:
        await cluster.close()


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


async def _missing(cluster: KubeCluster, namespace: str, name: str) -> str:
    """Why there is no such service, and what is there; NotFoundError when the cluster has no such kind."""
    try:
        there = [str(obj["metadata"]["name"]) async for obj in cluster.list(SERVICES, namespace)]
    except NotFoundError as error:
        raise NotFoundError(
            f"the cluster does not know VLLMServices ({error.message}): "
            "plimsoll crd | kubectl apply --server-side -f - installs the kind"
        ) from error
    return f"no VLLMService {name!r} in namespace {namespace}; {_offer(name, there)}"


def _offer(name: str, there: Sequence[str]) -> str:
    if not there:
        return "there is none at all: name another namespace with -n"
    close = get_close_matches(name, there, n=NEAREST_SHOWN, cutoff=0.4)
    shown = close or sorted(there)[:NEAREST_SHOWN]
    return f"{'nearest' if close else 'there are'}: {', '.join(shown)}"
