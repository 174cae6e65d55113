"""Objects from a live cluster for ``audit``: lists and gets, no more; what may not be read is said and left out."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from plimsoll.adapters.kube import KubeCluster, context_names, load_configuration
from plimsoll.adapters.ports import (
    AUTOSCALERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    NETWORK_SERVICES,
    NODES,
    PODS,
    VOLUME_CLAIMS,
    ClusterError,
    Kind,
    UnreachableError,
)
from plimsoll.api.names import GPU_PRODUCT_LABEL
from plimsoll.cli.workload_files import Found, Reading
from plimsoll.cli.yaml_documents import Place
from plimsoll.core.workloads.images import Image, Release
from plimsoll.core.workloads.read import Known, key_of
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import Tree, part, text

TIMEOUT_SECONDS: Final = 15.0
VERSION_SECONDS: Final = 3.0
WORKLOADS: Final = (
    DEPLOYMENTS,
    Kind("apps", "v1", "statefulsets", "StatefulSet"),
    Kind("apps", "v1", "daemonsets", "DaemonSet"),
    Kind("batch", "v1", "jobs", "Job"),
    Kind("batch", "v1", "cronjobs", "CronJob"),
    LEADER_WORKER_SETS,
    Kind("serving.kserve.io", "v1beta1", "inferenceservices", "InferenceService"),
    Kind("serving.kserve.io", "v1alpha2", "llminferenceservices", "LLMInferenceService"),
    Kind("serving.kserve.io", "v1alpha1", "llminferenceservices", "LLMInferenceService"),
    Kind("serving.kserve.io", "v1alpha1", "servingruntimes", "ServingRuntime"),
    Kind("kubeai.org", "v1", "models", "Model"),
    Kind("production-stack.vllm.ai", "v1alpha1", "vllmruntimes", "VLLMRuntime"),
    Kind("kaito.sh", "v1beta1", "workspaces", "Workspace"),
    PODS,
)
AROUND: Final = (
    NETWORK_SERVICES,
    VOLUME_CLAIMS,
    CONFIG_MAPS,
    AUTOSCALERS,
    Kind("keda.sh", "v1alpha1", "scaledobjects", "ScaledObject"),
    Kind("networking.k8s.io", "v1", "ingresses", "Ingress"),
    Kind("gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute"),
    Kind("route.openshift.io", "v1", "routes", "Route"),
)
"""Read only in namespaces that have a vLLM server."""
Answer = TypeVar("Answer")


@dataclass
class ClusterReading:
    """What a cluster holds, and what is known of what runs."""

    reading: Reading = field(default_factory=Reading)
    known: Known = field(default_factory=Known)


def contexts_of(asked: Sequence[str], *, everything: bool) -> list[str]:
    """The contexts to read one by one; an empty name is the kubeconfig's current one. Raises CredentialsError."""
    if everything:
        return context_names(os.environ.get("KUBECONFIG", ""))
    return list(asked) or [""]


def read_cluster(context: str, namespaces: Sequence[str], product: str | None) -> ClusterReading:
    """One cluster. Raises CredentialsError, ClusterError when nothing at all can be read."""
    return asyncio.run(_with_cluster(context, lambda cluster: Reader(cluster, context, namespaces, product).read()))


async def _with_cluster(context: str, ask: Callable[[KubeCluster], Awaitable[Answer]]) -> Answer:
    configuration = await load_configuration(os.environ.get("KUBECONFIG", ""), context)
    cluster = KubeCluster(configuration, TIMEOUT_SECONDS)
    try:
        return await ask(cluster)
    finally:
        await cluster.close()


class Reader:
    """Reads one cluster once."""

    def __init__(self, cluster: KubeCluster, context: str, namespaces: Sequence[str], product: str | None) -> None:
        self._cluster = cluster
        self._context = context
        self._namespaces: Sequence[str | None] = list(namespaces) or [None]
        self._product = product
        self.found = ClusterReading()

    async def read(self) -> ClusterReading:
        """Workloads first; then what is around those that run vLLM."""
        served = await self._served(WORKLOADS)
        for kind in served:
            await self._list(kind, self._namespaces)
        reading = self.found.reading
        servers = [server for server, _ in reading.servers()]
        pods = [each.manifest for each in reading.objects if each.manifest.get("kind") == "Pod"]
        there = sorted({server.namespace for server in servers if server.namespace})
        for kind in await self._served(AROUND) if there else ():
            await self._list(kind, there)
        nodes = await self._products()
        products = {key_of(s.manifest): p for s in servers if (p := _product(s, pods, nodes))}
        releases = {key_of(s.manifest): r for s in servers if (r := await self._release(s, pods))}
        self.found.known = Known(self._product, releases, products)
        return self.found

    async def _served(self, kinds: Collection[Kind]) -> list[Kind]:
        served = await self._cluster.which_served([kind for kind in kinds if kind.group])
        found = [kind for kind in kinds if not kind.group or kind in served]
        # Of several versions of one kind the first: they are the same objects.
        return list({(kind.group, kind.plural): kind for kind in reversed(found)}.values())[::-1]

    async def _list(self, kind: Kind, namespaces: Iterable[str | None]) -> None:
        for namespace in namespaces:
            try:
                async for item in self._cluster.list(kind, namespace):
                    self._add(kind, item)
            except UnreachableError:
                raise
            except ClusterError as error:
                where = f" in {namespace}" if namespace else ""
                self.found.reading.notes.append(f"{kind.plural}{where} not read: {error.message}")

    def _add(self, kind: Kind, item: Mapping[str, Any]) -> None:
        # Items of a list do not repeat what the list says.
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **item}
        meta = part(manifest, "metadata")
        steps = (self._context, text(meta, "namespace"), kind.kind, text(meta, "name"))
        place = Place("/".join(("cluster", *(step for step in steps if step))), 0, None)
        self.found.reading.objects.append(Found(manifest, place))

    async def _products(self) -> dict[str, str]:
        """GPU product by node; empty where nodes may not be listed."""
        found: dict[str, str] = {}
        try:
            async for node in self._cluster.list(NODES):
                product = text(part(node, "metadata", "labels"), GPU_PRODUCT_LABEL)
                if product:
                    found[text(node, "metadata", "name") or ""] = product
        except UnreachableError:
            raise
        except ClusterError as error:
            self.found.reading.notes.append(f"nodes not read, so GPUs are those that manifests name: {error.message}")
        return found

    async def _release(self, server: Server, pods: Sequence[Tree]) -> Release | None:
        """What a running engine says of itself, where its image does not; None where it cannot be asked."""
        if server.image is None or server.image.release is not None or not server.image.is_vllm:
            return None
        for pod in _pods_of(server, pods):
            name = text(pod, "metadata", "name") or ""
            try:
                async with asyncio.timeout(VERSION_SECONDS):
                    said = await self._cluster.ask_pod(server.namespace, name, server.port, "/version")
            except (ClusterError, TimeoutError, ValueError):
                return None
            return Image(f"vllm:{said.get('version')}").release if isinstance(said, Mapping) else None
        return None


def _pods_of(server: Server, pods: Sequence[Tree]) -> list[Tree]:
    """Running pods that carry a workload's labels."""
    wanted = server.candidate.labels
    return [
        pod
        for pod in pods
        if wanted
        and text(pod, "metadata", "namespace") == server.namespace
        and text(pod, "status", "phase") == "Running"
        and all(part(pod, "metadata", "labels").get(key) == value for key, value in wanted.items())
    ]


def _product(server: Server, pods: Sequence[Tree], nodes: Mapping[str, str]) -> str | None:
    """The product of the nodes that the pods run on, where it is one."""
    found = {nodes.get(text(pod, "spec", "nodeName") or "") for pod in _pods_of(server, pods)} - {None}
    return next(iter(found)) if len(found) == 1 else None
