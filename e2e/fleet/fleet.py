"""The fleet: nodes, kubelet, log endpoint and faults behind one async context manager."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Self

from e2e.fleet import launcher, load
from e2e.fleet.addresses import AddressBlock
from e2e.fleet.api import Api, read_kubeconfig
from e2e.fleet.control import ControlServer
from e2e.fleet.engine import SimulatedEngine
from e2e.fleet.gpus import GIB
from e2e.fleet.kubelet import Kubelet
from e2e.fleet.load import LoadReport, Target
from e2e.fleet.nodes import NodeAgent, NodeSpec
from e2e.fleet.pod import POD_FAULTS, Pod
from e2e.fleet.podlogs import PodLogs
from e2e.fleet.pool import Trouble
from e2e.fleet.process import Launch, Process
from e2e.fleet.vllm import EngineFactory, VllmOptions

METRICS_FAULTS = ("absent", "stale", "nan", "old-names", "duplicate", "none")
NODE_FAULTS = ("down", "up", "no-gpu")
DEFAULT_PORT = 8000


class Fleet:
    """GPU nodes and the pods bound to them, from ``async with`` to its end.

    ``load_seconds`` is how long an engine's port stays closed; ``back_off_scale`` shortens CrashLoopBackOff and
    ImagePullBackOff (1.0 is real time); ``heartbeat_seconds`` is between two renewals of a node's lease;
    ``control_socket`` opens the unix socket of :mod:`e2e.fleet.control`; ``fault_prometheus`` is what its command of
    that name does.
    """

    def __init__(
        self,
        kubeconfig: Path,
        nodes: Sequence[NodeSpec],
        *,
        load_seconds: float = 5.0,
        back_off_scale: float = 1.0,
        heartbeat_seconds: float = 5.0,
        engine: EngineFactory = SimulatedEngine,
        control_socket: Path | None = None,
        start: Callable[[Launch], Process] | None = None,
        fault_prometheus: Callable[[str], None] | None = None,
    ) -> None:
        self._kubeconfig, self._specs, self._back_off_scale = kubeconfig, nodes, back_off_scale
        self._control_socket, self._heartbeat_seconds = control_socket, heartbeat_seconds
        self._fault_prometheus = fault_prometheus
        self._trouble = Trouble()
        self._start = start or partial(launcher.start, options=VllmOptions(load_seconds, engine, self._trouble))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            addresses = AddressBlock()
            stack.callback(addresses.kubelet_socket.close)
            api = await stack.enter_async_context(Api(read_kubeconfig(self._kubeconfig)))
            self._nodes = NodeAgent(api, self._specs, addresses.node_address, self._heartbeat_seconds)
            self._kubelet = Kubelet(api, self._nodes, addresses, self._start, self._back_off_scale)
            logs = PodLogs(self._kubelet, addresses.kubelet_socket)
            stack.push_async_callback(logs.stop)
            await logs.start()
            await self._nodes.register()
            for work in (self._nodes.heartbeat(), self._kubelet.run()):
                stack.push_async_callback(_cancel, asyncio.create_task(work))
            if self._control_socket is not None:
                control = ControlServer(self._control_socket, self._commands)
                stack.push_async_callback(control.stop)
                await control.start()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @property
    def pods(self) -> list[Pod]:
        return list(self._kubelet.pods)

    async def fault_pod(self, namespace: str, name: str, kind: str) -> None:
        """Crash (the engine dies; exit 0 as measured) · oom (137) · image (killed, image gone) · hang · slow-load."""
        _known("pod fault", kind, POD_FAULTS)
        await self._kubelet.find(namespace, name).fault(kind)

    async def fault_engines(self, missing_gib: float = 0.0, taken_gib: float = 0.0) -> None:
        """Engines that start from now on find less memory: they need more themselves, or others hold it. 0: well."""
        self._trouble.missing_bytes, self._trouble.taken_bytes = int(missing_gib * GIB), int(taken_gib * GIB)

    async def fault_metrics(self, namespace: str, name: str, kind: str) -> None:
        """Absent (404) · stale (frozen, with its time) · nan · old-names · duplicate · none (well again)."""
        _known("metrics fault", kind, METRICS_FAULTS)
        faults = self._kubelet.find(namespace, name).faults
        faults.metrics, faults.stale_page = (None if kind == "none" else kind), None

    async def fault_prometheus(self, kind: str) -> None:
        """A fault that all who ask the lab's Prometheus see: ``controlplane/prometheus_faults.py``."""
        if self._fault_prometheus is None:
            raise ValueError("this fleet has no Prometheus")
        self._fault_prometheus(kind)

    async def fault_node(self, name: str, kind: str) -> None:
        """Down (silent, its processes gone) · up · no-gpu (allocatable 0; what runs, runs on)."""
        _known("node fault", kind, NODE_FAULTS)
        _known("node", name, tuple(self._nodes.specs))
        actions = {"down": self._kubelet.node_down, "up": self._kubelet.node_up, "no-gpu": self._nodes.without_gpu}
        await actions[kind](name)

    async def load(
        self,
        namespace: str,
        selector: Mapping[str, str],
        *,
        rate: float,
        prompt_tokens: int,
        output_tokens: int,
        seconds: float,
        at_once: int = sys.maxsize,
        ask_again: bool = False,
        enough: Callable[[LoadReport], bool] = lambda _: False,
    ) -> LoadReport:
        """Requests to the Ready pods with these labels, as a client library behind a load balancer sends them."""
        targets = partial(self._targets, namespace, selector)
        return await load.generate(
            targets, rate, prompt_tokens, output_tokens, seconds, at_once=at_once, ask_again=ask_again, enough=enough
        )

    def _targets(self, namespace: str, selector: Mapping[str, str]) -> list[Target]:
        return [
            Target(pod.address, _http_port(pod))
            for pod in self._kubelet.pods
            if pod.ready and pod.body["metadata"]["namespace"] == namespace and selector.items() <= pod.labels.items()
        ]

    @property
    def _commands(self) -> dict[str, Callable[..., Any]]:
        return {
            "fault_pod": self.fault_pod,
            "fault_engines": self.fault_engines,
            "fault_metrics": self.fault_metrics,
            "fault_node": self.fault_node,
            "fault_prometheus": self.fault_prometheus,
            "load": self._load_command,
            "status": self._status_command,
        }

    async def _load_command(self, **arguments: Any) -> dict[str, Any]:
        return (await self.load(**arguments)).as_dict()

    async def _status_command(self) -> dict[str, Any]:
        pods = [{"pod": pod.title, "address": pod.address, "ready": pod.ready} for pod in self._kubelet.pods]
        return {"nodes": sorted(self._nodes.specs), "down": sorted(self._nodes.down), "pods": pods}


def _known(what: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} {value!r} is not one of {', '.join(allowed)}")


def _http_port(pod: Pod) -> int:
    """The port a Service would reach: the one called http, else the first."""
    ports = [port for container in pod.containers for port in container.spec.get("ports") or ()]
    named = [port["containerPort"] for port in ports if port.get("name") == "http"]
    return int(named[0] if named else ports[0]["containerPort"] if ports else DEFAULT_PORT)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
