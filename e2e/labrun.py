"""A whole lab: control plane, Prometheus, GPU nodes with fake engines, and the operator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from e2e import operator_process
from e2e.controlplane import ControlPlane
from e2e.controlplane.process import Process
from e2e.controlplane.scratch import Scratch
from e2e.fleet import Fleet, NodeSpec, parse_nodes
from e2e.fleet.commands import SOCKET_NAME
from e2e.fleet_thread import FleetThread
from e2e.operator_process import Operator

# Not resolved: a folder that links to `e2e` is a checkout of its own (the tests start labs in one).
CHECKOUT: Final = Path(__file__).absolute().parents[1]
DEFAULT_NODES: Final = "4*NVIDIA-H100-80GB-HBM3:8,2*NVIDIA-L40S:4"
DEFAULT_LOAD_SECONDS: Final = 5.0
# Short, so that a lost node is noticed before a person gives up; two heartbeats of a node (10 s) have to fit.
NODE_MONITOR_GRACE_SECONDS: Final = 25


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What a lab consists of. `crds` and `operator_manifest` are applied when they exist."""

    nodes: str = DEFAULT_NODES
    load_seconds: float = DEFAULT_LOAD_SECONDS
    operator: bool = True
    operator_command: Sequence[str] = operator_process.COMMAND
    operator_env: Mapping[str, str] = field(default_factory=dict)
    crds: Path = CHECKOUT / "crds"
    operator_manifest: Path = operator_process.MANIFEST


class Lab:
    """`with Lab(LabOptions()) as lab:`; `lab.operator` may be stopped, killed and started meanwhile.

    Blocking, like `ControlPlane`, and with the same promise about what is left behind.
    """

    plane: ControlPlane

    def __init__(
        self, options: LabOptions, *, scratch: Scratch | None = None, log: Callable[[str], None] = print
    ) -> None:
        self.options = options
        self.fleet: FleetThread | None = None
        self.operator: Operator | None = None
        self._log = log
        self.plane = ControlPlane(node_monitor_grace_seconds=NODE_MONITOR_GRACE_SECONDS, scratch=scratch, log=log)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Return when all is ready, the operator's /readyz included."""
        nodes = parse_nodes(self.options.nodes)
        try:
            self._log("starting etcd, Kubernetes and Prometheus")
            self.plane.start()
            self._apply_definitions()
            self._start_fleet(nodes)
            self._start_operator()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        if self.operator:
            self.operator.stop()
        if self.fleet:
            self.fleet.stop()
        self.plane.stop()

    @property
    def processes(self) -> dict[str, Process]:
        """Every supervised process by name."""
        operator = {"operator": self.operator.process} if self.operator else {}
        return {**self.plane.processes, **operator}

    def _apply_definitions(self) -> None:
        if not any(self.options.crds.glob("*.yaml")):
            self._log(f"no CRD in {self.options.crds}")
            return
        operator_process.install_crds(self.plane.kubectl, self.options.crds)

    def _start_fleet(self, nodes: Sequence[NodeSpec]) -> None:
        self._log(f"starting nodes {self.options.nodes}")
        self.fleet = FleetThread(
            lambda: Fleet(
                self.plane.admin_kubeconfig,
                nodes,
                load_seconds=self.options.load_seconds,
                control_socket=self.plane.workdir / SOCKET_NAME,
                fault_prometheus=self.plane.fault_prometheus,
            )
        )
        self.fleet.start()

    def _start_operator(self) -> None:
        if not self.options.operator:
            return
        manifest = self.options.operator_manifest
        if not manifest.exists():
            self._log(f"no operator: {manifest} does not exist")
            return
        self._log("starting the operator")
        operator_process.create_account(self.plane.kubectl, manifest)
        self.operator = Operator(
            self.plane, manifest, command=self.options.operator_command, extra_env=self.options.operator_env
        )
        self.operator.start()
