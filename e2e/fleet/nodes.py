"""GPU nodes: what the GPU operator's feature discovery and a kubelet would write, and the heartbeats."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from e2e.fleet import gpus
from e2e.fleet.addresses import KUBELET_PORT
from e2e.fleet.api import CONFLICT, MERGE_PATCH, NOT_FOUND, Api, ApiError
from e2e.fleet.gpus import Gpu

LEASE_SECONDS = 40
POD_LIMIT = 250
_SPEC = re.compile(r"(?:(\d+)\*)?([A-Za-z0-9_.-]+):(\d+)")


@dataclass(frozen=True)
class NodeSpec:
    """One node: its GPU product (the label's spelling) and how many of them; 0 GPUs is a plain node."""

    name: str
    product: str
    gpus: int
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def gpu(self) -> Gpu | None:
        return gpus.find(self.product) if self.gpus else None


def parse_nodes(text: str) -> list[NodeSpec]:
    """``4*NVIDIA-H100-80GB-HBM3:8,2*NVIDIA-L40S:4``: four nodes with eight H100, two with four L40S.

    Raises:
        ValueError: the item that does not read so, or an unknown product.

    """
    nodes: list[NodeSpec] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _SPEC.fullmatch(item)
        if match is None:
            raise ValueError(f"nodes: {item!r} is not COUNT*PRODUCT:GPUS, such as 4*NVIDIA-H100-80GB-HBM3:8")
        count, product, per_node = int(match[1] or 1), match[2], int(match[3])
        gpus.find(product)
        short = re.sub(r"[^a-z0-9]+", "-", product.lower().removeprefix("nvidia-"))
        first = sum(node.product == product for node in nodes)
        nodes += [NodeSpec(f"{short}-{first + n}", product, per_node) for n in range(count)]
    return nodes


def manifest(spec: NodeSpec) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    body = {"name": spec.name, "labels": labels | _gpu_labels(spec) | spec.labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": body, "spec": {}}


def status(spec: NodeSpec, address: str, gpu_count: int, *, ready: bool = True) -> dict[str, Any]:
    """The status a kubelet reports; ``gpu_count`` is what the device plugin still offers."""
    amounts = {"cpu": "192", "memory": "2000Gi", "ephemeral-storage": "8000Gi", "pods": str(POD_LIMIT)}
    if spec.gpus:
        amounts["nvidia.com/gpu"] = str(gpu_count)
    return {
        "capacity": amounts,
        "allocatable": amounts,
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "conditions": [_condition("Ready", healthy=ready), *(_condition(name, healthy=False) for name in PRESSURES)],
        "nodeInfo": NODE_INFO,
    }


PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
NODE_INFO = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "kernelVersion": "6.1.0",
    "osImage": "Plimsoll fake node",
    "containerRuntimeVersion": "fake://1",
    "kubeletVersion": "v1.36.3",
    "kubeProxyVersion": "",
    "machineID": "",
    "systemUUID": "",
    "bootID": "",
}


def _condition(kind: str, *, healthy: bool) -> dict[str, str]:
    now = timestamp()
    reason = "KubeletReady" if kind == "Ready" else "KubeletHasNo" + kind
    base = {"type": kind, "status": str(healthy), "reason": reason, "message": "fake kubelet"}
    return base | {"lastHeartbeatTime": now, "lastTransitionTime": now}


def _gpu_labels(spec: NodeSpec) -> dict[str, str]:
    gpu = spec.gpu
    if gpu is None:
        return {}
    major, minor = gpu.compute_capability
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": spec.product,
        "nvidia.com/gpu.count": str(spec.gpus),
        "nvidia.com/gpu.memory": str(gpu.driver_memory_mib),
        "nvidia.com/gpu.family": gpu.family,
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/mig.capable": str((major, minor) in {(8, 0), (9, 0), (10, 0)}).lower(),
    }


class NodeAgent:
    """Registers the nodes and keeps their leases fresh; a node that is down is silent."""

    def __init__(self, api: Api, specs: Sequence[NodeSpec], address: str, heartbeat_seconds: float) -> None:
        self._api, self._address, self._heartbeat_seconds = api, address, heartbeat_seconds
        self.specs = {spec.name: spec for spec in specs}
        self.down: set[str] = set()
        self._without_gpu: set[str] = set()

    async def register(self) -> None:
        await asyncio.gather(*(self._register(spec) for spec in self.specs.values()))

    async def heartbeat(self) -> None:
        """Renew leases for ever; an unreachable API server is tried again next time."""
        while True:
            alive = [spec for spec in self.specs.values() if spec.name not in self.down]
            with suppress(ApiError, aiohttp.ClientError, TimeoutError):
                await asyncio.gather(*(self._renew(spec.name) for spec in alive))
            await asyncio.sleep(self._heartbeat_seconds)

    async def report(self, name: str) -> None:
        spec = self.specs[name]
        count = 0 if name in self._without_gpu else spec.gpus
        await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status(spec, self._address, count)})

    async def without_gpu(self, name: str) -> None:
        """The device plugin reports no healthy device any more; what runs, runs on."""
        self._without_gpu.add(name)
        await self.report(name)

    async def up(self, name: str) -> None:
        self.down.discard(name)
        self._without_gpu.discard(name)
        await self._renew(name)
        await self.report(name)

    async def _register(self, spec: NodeSpec) -> None:
        try:
            await self._api.create("/api/v1/nodes", manifest(spec))
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        await self._renew(spec.name)
        await self.report(spec.name)

    async def _renew(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        try:
            await self._api.patch(f"{path}/{name}", {"spec": spec}, MERGE_PATCH)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            meta = {"name": name, "namespace": "kube-node-lease"}
            kind = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            await self._api.create(path, kind | {"metadata": meta, "spec": spec})


def timestamp(at: datetime | None = None) -> str:
    return (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
