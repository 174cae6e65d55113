"""A cluster in one thread: API server, controllers, kubelets, Prometheus, and the operators that run in it.

``World(seed)`` is the same for the same seed, to the last event. ``run`` and ``until`` let time pass; what people do
(``apply``, ``edit``, ``delete`` …) happens at once.
"""

import hashlib
import json
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.adapters.ports import DEPLOYMENTS, NODES, PODS, SERVICES, Kind
from plimsoll.api import names
from plimsoll.control.assembly import LATENCY_WINDOWS
from plimsoll.core.promql import Windows
from plimsoll.settings import Settings
from tests.faults.world.api import Api
from tests.faults.world.connection import Connection
from tests.faults.world.deployments import Deployments
from tests.faults.world.housekeeping import Housekeeping
from tests.faults.world.jobs import Jobs
from tests.faults.world.kinds import NAMESPACES
from tests.faults.world.kubelet import Kubelet, Ward
from tests.faults.world.process import Process, Unexpected, start
from tests.faults.world.prometheus import Asker, Prometheus
from tests.faults.world.rights import allowed
from tests.faults.world.scheduler import Scheduler
from tests.faults.world.store import Address, Object
from tests.faults.world.virtual_time import Agenda, ProcessLoop

USER: Final = "kubectl"
NAMESPACE: Final = "llm"
SETTINGS: Final = Settings(sweep_seconds=120.0, optional_kinds=(), workers=4)
"""Of every operator: what a chart's default would be, with a quicker sweep."""
PRODUCT: Final = "NVIDIA-L40S"


class NotReachedError(AssertionError):
    """What was waited for did not come."""


@dataclass
class World:
    """A cluster with nodes and a namespace, and no operator yet."""

    seed: int = 1
    nodes: tuple[tuple[str, int], ...] = ((PRODUCT, 4), (PRODUCT, 4))
    settings: Settings = SETTINGS
    prometheus_configured: bool = True
    agenda: Agenda = field(default_factory=Agenda)
    ward: Ward = field(default_factory=Ward)
    processes: list[Process] = field(default_factory=list)
    watchers: list[Callable[[], None]] = field(default_factory=list)
    """Called after every moment at which something happened: checks of safety."""
    keepers: list[Callable[[], None]] = field(default_factory=list)
    """Called when a process is gone, at that moment."""

    def __post_init__(self) -> None:
        random.seed(self.seed)  # jitter in the operator's own code
        self.api = Api(self.agenda, random.Random(self.seed))
        self.deployments = Deployments(self.api)
        self.jobs = Jobs(self.api)
        self.housekeeping = Housekeeping(self.api)
        self.scheduler = Scheduler(self.api)
        self.kubelet = Kubelet(self.api, self.ward)
        self.prometheus = Prometheus(self.kubelet)
        self.unexpected = Unexpected()
        self._quiet = _quiet_logs(self.unexpected)
        for namespace in (self.settings.namespace, NAMESPACE):
            self.api.create(NAMESPACES, {"metadata": {"name": namespace}}, USER)
        for index, (product, gpus) in enumerate(self.nodes):
            self.add_node(f"node-{index}", product, gpus)
        self.made_at = self.api.store.version

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process, and give the logs back."""
        for process in self.processes:
            process.kill()
        logger, level = self._quiet
        logger.removeHandler(self.unexpected)
        logger.setLevel(level)
        logger.propagate = True

    # Operators.

    def start_operator(self, name: str = "", settings: Settings | None = None) -> Process:
        """A new process, which has to win the Lease like any other."""
        chosen = settings or self.settings
        window = chosen.metrics_window_seconds
        windows = Windows(window, LATENCY_WINDOWS * window)

        def connect(loop: ProcessLoop) -> Connection:
            return Connection(self.api, self.agenda, loop, logs=self.kubelet.log, allowed=allowed)

        def metrics(connection: Connection) -> Asker | None:
            return Asker(self.prometheus, connection, windows) if self.prometheus_configured else None

        def gone() -> None:
            for keeper in self.keepers:
                keeper()

        process = start(name or f"operator-{len(self.processes)}", chosen, self.agenda, connect, metrics, gone)
        self.processes.append(process)
        return process

    @property
    def alive(self) -> list[Process]:
        """Processes that were not killed."""
        return [process for process in self.processes if not process.killed]

    # Time.

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        self._run_to(self.agenda.now + seconds, lambda: False)

    def until(self, holds: Callable[[], object], within_seconds: float = 600.0, what: str = "") -> float:
        """Let time pass until something holds; the seconds it took. NotReachedError when it does not come."""
        began = self.agenda.now
        if not self._run_to(began + within_seconds, lambda: bool(holds())):
            raise NotReachedError(f"not within {within_seconds:.0f} s: {what or holds}\n{self.describe()}")
        return self.agenda.now - began

    def _run_to(self, end: float, done: Callable[[], bool]) -> bool:
        agenda = self.agenda
        while not done():
            for process in self.processes:
                if process.next_seconds <= agenda.now:
                    process.run()
            coming = min([agenda.next_seconds, *(process.next_seconds for process in self.processes)])
            if coming > end:
                agenda.now = max(agenda.now, end)
                return done()
            agenda.now = max(agenda.now, coming)
            agenda.run_due()
            for watcher in self.watchers:
                watcher()
        return True

    # What people do.

    def apply(self, manifest: Mapping[str, Any], manager: str = USER) -> Object:
        """``kubectl apply --server-side``."""
        assert manifest.get("kind") == SERVICES.kind, "people apply VLLMServices here; for the rest there is api"
        return self.api.apply(SERVICES, manifest, manager)

    def edit(
        self, kind: Kind, name: str, change: Mapping[str, Any], namespace: str = NAMESPACE, by: str = "kubectl-edit"
    ) -> Object:
        """``kubectl edit``: a merge patch."""
        return self.api.patch(kind, namespace, name, change, by)

    def delete(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> None:
        """``kubectl delete``."""
        self.api.delete(kind, namespace, name)

    def find(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> Object | None:
        """An object, or None."""
        return self.api.store.get(kind, Address(namespace, name))

    def must(self, kind: Kind, name: str, namespace: str = NAMESPACE) -> Object:
        """An object that is there."""
        return self.api.get(kind, namespace, name)

    def pods(self, service: str = "", namespace: str = NAMESPACE) -> list[Object]:
        """Pods, of a service or all, those that are leaving left out."""
        found = [p for p in self.api.store.all(PODS, namespace) if not p["metadata"].get("deletionTimestamp")]
        return [
            p for p in found if not service or (p["metadata"].get("labels") or {}).get(names.LABEL_SERVICE) == service
        ]

    def condition(self, name: str, kind: str, namespace: str = NAMESPACE) -> Mapping[str, Any]:
        """A condition of a service; empty while there is none."""
        status = (self.find(SERVICES, name, namespace) or {}).get("status") or {}
        return next((c for c in status.get("conditions") or () if c["type"] == kind), {})

    def is_ready(self, name: str, namespace: str = NAMESPACE) -> bool:
        """The service is Ready, for its present spec."""
        service = self.find(SERVICES, name, namespace)
        if (
            service is None
            or (service.get("status") or {}).get("observedGeneration") != service["metadata"]["generation"]
        ):
            return False
        return self.condition(name, "Ready", namespace).get("status") == "True"

    # Nodes.

    def add_node(self, name: str, product: str, gpus: int) -> None:
        """A node with GPUs."""
        have = {"cpu": "96", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": product, "nvidia.com/gpu.count": str(gpus)}
        node = self.api.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": {}}, "kubelet")
        self._node_status(node, {"allocatable": have, "capacity": have}, up=True)

    def lose_node(self, name: str) -> None:
        """A node does not answer any more."""
        node = self.api.get(NODES, "", name)
        self._node_status(node, node["status"], up=False)

    def return_node(self, name: str) -> None:
        """It is there again."""
        node = self.api.get(NODES, "", name)
        self._node_status(node, node["status"], up=True)
        self.kubelet.back(name)

    def _node_status(self, node: Object, status: Mapping[str, Any], *, up: bool) -> None:
        said = {"type": "Ready", "status": str(up) if up else "Unknown", "lastTransitionTime": self.agenda.stamp()}
        self.api.replace(NODES, {**node, "status": {**status, "conditions": [said]}}, "kubelet", "status")

    # Looking.

    def digest(self) -> str:
        """A hash of the whole history: the same for the same seed."""
        text = json.dumps([[e.version, e.kind.kind, e.type, e.object] for e in self.api.store.history], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def describe(self) -> str:
        """What there is, for a failure's message."""
        lines = [f"at {self.agenda.now:.1f} s, seed {self.seed}"]
        for service in self.api.store.all(SERVICES):
            status = service.get("status") or {}
            said = [
                f"{c['type']}={c['status']} {c['reason']}: {c['message'][:160]}" for c in status.get("conditions") or ()
            ]
            lines += [f"VLLMService {service['metadata']['name']}", *(f"  {each}" for each in said)]
        for deployment in self.api.store.all(DEPLOYMENTS):
            figures = {k: v for k, v in (deployment.get("status") or {}).items() if isinstance(v, int)}
            lines.append(
                f"Deployment {deployment['metadata']['name']} asks {deployment['spec']['replicas']}: {figures}"
            )
        lines += [f"Pod {p['metadata']['name']} {p['status'].get('phase')}" for p in self.api.store.all(PODS)]
        return "\n".join([*lines, *self.unexpected.found[:3]])


def service(name: str = "qwen", namespace: str = NAMESPACE, **spec: Any) -> Object:
    """A small VLLMService; ``spec`` fields go over the defaults."""
    chosen = {
        "model": {"id": "Qwen/Qwen3-8B"},
        "hardware": {"gpu": PRODUCT},
        "contextTokens": 8192,
        **spec,
    }
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": chosen,
    }


def _quiet_logs(handler: logging.Handler) -> tuple[logging.Logger, int]:
    """The operator's errors into the handler, all else nowhere."""
    logger = logging.getLogger("plimsoll")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    return logger, level
