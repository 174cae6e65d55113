"""A Kubernetes control plane and Prometheus on loopback, for as long as a `with` block lasts."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlencode, urlsplit

from e2e.controlplane import audit, binaries, commands, prometheus
from e2e.controlplane.api import Api
from e2e.controlplane.identity import Tls, User, kubeconfig
from e2e.controlplane.kubectl import Kubectl
from e2e.controlplane.ports import HOST, PortLeases
from e2e.controlplane.process import Process
from e2e.controlplane.prometheus_faults import Door
from e2e.controlplane.scratch import Place, Scratch

READY_SECONDS: Final = 60.0
TOKEN_SECONDS: Final = 30 * 24 * 3600
STOP_SECONDS: Final = 5.0
# Memory for time: the garbage collector took an eighth of the API server's CPU.
GO: Final = {"GOGC": "400"}

ADMIN: Final = "admin"
CONTROLLER_MANAGER: Final = "system:kube-controller-manager"
SCHEDULER: Final = "system:kube-scheduler"
PROMETHEUS: Final = "plimsoll:prometheus"


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and, unless left out, Prometheus.

    `extra_args` adds flags by program name (`{"kube-apiserver": ["--v=4"]}`), `users` further identities; for
    `node_address` see `commands.Options`. Without a `scratch` folder it makes one of its own, which is gone after
    `stop`, an exception, Ctrl-C or the death of this process; a given one
    belongs to the caller. Blocking: from asyncio call `start` and `stop` through `asyncio.to_thread`.
    """

    url: str
    prometheus_url: str
    workdir: Path
    logs_dir: Path
    binaries: binaries.Binaries
    tls: Tls
    admin_kubeconfig: Path
    kubectl: Kubectl
    processes: dict[str, Process]

    def __init__(
        self,
        *,
        qps: int = commands.CONTROLLER_QPS,
        service_cidr: str = commands.SERVICE_CIDR,
        node_monitor_grace_seconds: int | None = None,
        node_address: str | None = None,
        prometheus: bool = True,
        scrape_interval_seconds: float = 1.0,
        users: Sequence[User] = (),
        extra_args: Mapping[str, Sequence[str]] | None = None,
        scratch: Place | None = None,
        log: Callable[[str], None] = print,
    ) -> None:
        self.processes = {}
        self._options = commands.Options(
            qps, service_cidr, node_monitor_grace_seconds, scrape_interval_seconds, node_address
        )
        self._extra_users = users
        self._with_prometheus = prometheus
        self._door: Door | None = None
        self._extra_args = dict(extra_args or {})
        self._given = scratch
        self._own: Scratch | None = None
        self._leases = PortLeases()
        self._log = log

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def ca(self) -> Path:
        return self.tls.ca

    def start(self) -> None:
        """Return when all of it answers; on any failure nothing is left and the error names process and log."""
        try:
            self.binaries = binaries.ensure(self._log)
            self._prepare()
            self._start_api_server()
            self._start_controllers()
            if self._with_prometheus:
                self._start_prometheus()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop everything, those that write before what they write to. Safe to call again."""
        if self._door:
            self._door.stop()
            self._door = None
        for process in reversed(self.processes.values()):
            process.stop(grace_seconds=STOP_SECONDS)
        if self.processes:
            audit.leave_summary(self.workdir)
        self.processes.clear()
        self._leases.close()
        if self._own:
            self._own.close()
            self._own = None

    def kubeconfig_for_token(self, user: str, token: str) -> Path:
        """A kubeconfig file for a bearer token, whoever issued it."""
        path = self.workdir / "kubeconfigs" / f"{user.replace(':', '-')}.yaml"
        return kubeconfig(path, server=self.url, ca=self.ca, user=user, token=token)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """A kubeconfig of an existing service account, its token from the TokenRequest API (30 days)."""
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": TOKEN_SECONDS},
        }
        answer = self.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request)
        return self.kubeconfig_for_token(f"system:serviceaccount:{namespace}:{name}", answer["status"]["token"])

    def scrape_operator(self, address: str | None) -> None:
        """Have Prometheus scrape the operator at `host:port`, or nobody; it notices by itself."""
        draft = self._operator_targets.with_suffix(".draft")
        draft.write_text(prometheus.operator_targets(address))
        draft.rename(self._operator_targets)

    def query(self, promql: str) -> list[dict[str, Any]]:
        """What Prometheus answers now: a series each, ``metric`` its labels and ``value`` (time, text)."""
        answer = Api(self.prometheus_url, self.ca).get(f"/api/v1/query?{urlencode({'query': promql})}")
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def fault_prometheus(self, kind: str) -> None:
        """Have everybody who asks Prometheus see this fault, until it is ``none``: ``prometheus_faults.FAULTS``."""
        if self._door is None:
            raise ValueError("there is no Prometheus here")
        self._door.fault(kind)

    def lease_port(self) -> int:
        """A free port on 127.0.0.1 that stays ours until `stop`."""
        return self._leases.lease()

    def process(self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Process:
        """A process of this control plane's folder, not started yet: logs beside the others, is swept with them.

        Nothing of the caller's environment goes in: etcd reads ETCD_*, all of them read proxies.
        """
        return Process(
            name,
            argv,
            log=self.logs_dir / f"{name}.log",
            env={"HOME": str(self.workdir), "PATH": "/usr/bin:/bin", **GO, **(env or {}), **self._place.mark()},
            cwd=self.workdir,
        )

    def _prepare(self) -> None:
        self._place: Place = self._given or self._claim_scratch()
        self.workdir = self._place.path
        self.logs_dir = self.workdir / "logs"
        self._operator_targets = self.workdir / "operator-targets.json"
        self._ports = commands.Ports.leased(self._leases)
        self.url = f"https://{HOST}:{self._ports.kube_apiserver}"
        door = self._leases.lease()
        self.prometheus_url = f"http://{HOST}:{door}"
        self.tls = Tls.create(self.workdir / "tls", self._options.reached_at)
        users = (User.named(name) for name in (CONTROLLER_MANAGER, SCHEDULER, PROMETHEUS))
        everybody = (User.named(ADMIN, "system:masters"), *users, *self._extra_users)
        self._users = {user.name: user for user in everybody}
        self.admin_kubeconfig = self._kubeconfig_of(ADMIN)
        self.kubectl = Kubectl(self.binaries.kubectl, self.admin_kubeconfig, cache=self.workdir / "kubectl-cache")
        self.api = Api(self.url, self.ca, self._users[ADMIN].token)

    def _claim_scratch(self) -> Scratch:
        self._own = Scratch()
        return self._own

    def _start_api_server(self) -> None:
        tokens = self.workdir / "tls" / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("".join(f"{user.csv_line()}\n" for user in self._users.values()))
        etcd = self._launch("etcd", commands.etcd(self.binaries, self._ports, self.workdir / "etcd"))
        command = commands.kube_apiserver(self.binaries, self._ports, self.tls, tokens=tokens, options=self._options)
        server = self._launch("kube-apiserver", [*command, *audit.arguments(self.workdir)])
        etcd_api = Api(f"http://{HOST}:{self._ports.etcd}", self.ca)
        etcd.await_ready(etcd_api.probe("/health"), within_seconds=READY_SECONDS)
        server.await_ready(self.api.probe("/readyz"), within_seconds=READY_SECONDS)

    def _start_controllers(self) -> None:
        manager = self._launch(
            "kube-controller-manager",
            commands.kube_controller_manager(
                self.binaries,
                self._ports,
                self.tls,
                kubeconfig=self._kubeconfig_of(CONTROLLER_MANAGER),
                options=self._options,
            ),
        )
        scheduler = self._launch(
            "kube-scheduler",
            commands.kube_scheduler(
                self.binaries, self._ports, self.tls, kubeconfig=self._kubeconfig_of(SCHEDULER), options=self._options
            ),
        )
        # No pod can be made in a namespace before its default service account exists.
        manager.await_ready(
            self.api.probe("/api/v1/namespaces/default/serviceaccounts/default"), within_seconds=READY_SECONDS
        )
        health = Api(f"https://{HOST}:{self._ports.kube_scheduler}", self.ca)
        scheduler.await_ready(health.probe("/healthz"), within_seconds=READY_SECONDS)

    def _start_prometheus(self) -> None:
        for path, body in prometheus.access(PROMETHEUS):
            self.api.post(path, body)
        self.scrape_operator(None)
        config = self.workdir / "prometheus.yaml"
        config.write_text(
            prometheus.configuration(
                kubeconfig=self._kubeconfig_of(PROMETHEUS),
                targets=self._operator_targets,
                scrape_interval_seconds=self._options.scrape_interval_seconds,
            )
        )
        process = self._launch(
            "prometheus",
            commands.prometheus(
                self.binaries, self._ports, config=config, data=self.workdir / "prometheus", options=self._options
            ),
        )
        behind = f"http://{HOST}:{self._ports.prometheus}"
        process.await_ready(Api(behind, self.ca).probe("/-/ready"), within_seconds=READY_SECONDS)
        self._door = Door(urlsplit(self.prometheus_url).port or 0, behind)
        self._door.start()

    def _launch(self, name: str, argv: list[str]) -> Process:
        process = self.process(name, [*argv, *self._extra_args.get(name, ())])
        self.processes[name] = process
        process.start()
        return process

    def _kubeconfig_of(self, user: str) -> Path:
        return self.kubeconfig_for_token(user, self._users[user].token)
