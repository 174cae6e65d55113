"""One live VLLMService for a command: found, or the command ends and says where it was looked for."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from typing import Annotated, Final, TypeVar

import typer

from plimsoll.adapters.kube import CredentialsError, KubeCluster, default_namespace, load_configuration
from plimsoll.adapters.ports import SERVICES, ClusterError, NotFoundError, Object
from plimsoll.cli.output import BAD_INPUT, UNREACHABLE, complain

TIMEOUT_SECONDS: Final = 15.0
NEAREST_SHOWN: Final = 3

NameArgument = Annotated[str, typer.Argument(help="Name of the VLLMService.", show_default=False)]
NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Its namespace; else that of the kubeconfig's context.")
]
Answer = TypeVar("Answer")


def with_service(name: str, namespace: str, ask: Callable[[KubeCluster, Object], Awaitable[Answer]]) -> Answer:
    """What ``ask`` makes of the service; the cluster is that of KUBECONFIG, else of the pod, else ~/.kube/config.

    Ends the command with exit code 2 when there is no such service, with 3 when the API server or its credentials
    cannot be had.
    """
    try:
        return asyncio.run(_asked(name, namespace, ask))
    except (CredentialsError, ClusterError) as error:
        complain(str(error))
        raise typer.Exit(UNREACHABLE) from None


async def _asked(name: str, namespace: str, ask: Callable[[KubeCluster, Object], Awaitable[Answer]]) -> Answer:
    kubeconfig = os.environ.get("KUBECONFIG", "")
    configuration = await load_configuration(kubeconfig)
    where = namespace or default_namespace(kubeconfig)
    cluster = KubeCluster(configuration, TIMEOUT_SECONDS)
    try:
        return await ask(cluster, await _found(cluster, where, name))
    finally:
        await cluster.close()


async def _found(cluster: KubeCluster, namespace: str, name: str) -> Object:
    try:
        return await cluster.get(SERVICES, namespace, name)
    except NotFoundError:
        complain(await _missing(cluster, namespace, name))
        raise typer.Exit(BAD_INPUT) from None


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
