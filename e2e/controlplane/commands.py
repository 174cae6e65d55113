"""The command lines of the control plane's processes: pure, so that each flag and its reason is in one place."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

from e2e.controlplane.binaries import Binaries
from e2e.controlplane.identity import Tls
from e2e.controlplane.ports import HOST, PortLeases

# A /24 is full at 254 Services.
SERVICE_CIDR: Final = "10.96.0.0/12"
# With Kubernetes' own 20 requests a second the pods of 1,000 Deployments took 181 s to exist, with this 13 s.
CONTROLLER_QPS: Final = 1000
ENDPOINT_CONTROLLERS: Final = ("endpointslice-controller", "endpointslice-mirroring-controller", "endpoints-controller")
ETCD_QUOTA_BYTES: Final = 8 << 30
DISCOVERY_RELOAD_SECONDS: Final = 5.0
# 15 s by default: tests of autoscalers would only wait.
HPA_SYNC_SECONDS: Final = 2
# kube-controller-manager looks at nodes every 5 s by default, which a short grace period would make coarse.
NODE_MONITOR_PERIOD_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    kube_apiserver: int
    kube_controller_manager: int
    kube_scheduler: int
    prometheus: int

    @classmethod
    def leased(cls, leases: PortLeases) -> Self:
        return cls(*(leases.lease() for _ in fields(cls)))


@dataclass(frozen=True, slots=True)
class Options:
    """What a user of the control plane may choose. `node_monitor_grace_seconds` unset is Kubernetes' own (50 s).

    `node_address` is where a real node and its pods reach the API server. Unset, pods are fakes with loopback
    addresses: everything stays on loopback and nobody writes endpoints.
    """

    qps: int = CONTROLLER_QPS
    service_cidr: str = SERVICE_CIDR
    node_monitor_grace_seconds: int | None = None
    scrape_interval_seconds: float = 1.0
    node_address: str | None = None

    @property
    def reached_at(self) -> tuple[str, ...]:
        """Addresses besides loopback at which clients expect the API server: its own and its Service's, the first."""
        if self.node_address is None:
            return ()
        return self.node_address, str(next(ipaddress.ip_network(self.service_cidr).hosts()))


def etcd(binaries: Binaries, ports: Ports, data: Path) -> list[str]:
    client, peer = f"http://{HOST}:{ports.etcd}", f"http://{HOST}:{ports.etcd_peer}"
    return [
        str(binaries.etcd),
        f"--data-dir={data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--quota-backend-bytes={ETCD_QUOTA_BYTES}",
        "--unsafe-no-fsync",  # the data is thrown away; a disk flush a write would only slow the tests
        "--log-level=warn",
    ]


def kube_apiserver(binaries: Binaries, ports: Ports, tls: Tls, *, tokens: Path, options: Options) -> list[str]:
    return [
        str(binaries.kube_apiserver),
        f"--etcd-servers=http://{HOST}:{ports.etcd}",
        *_reach(options.node_address),
        f"--secure-port={ports.kube_apiserver}",
        f"--tls-cert-file={tls.certificate}",
        f"--tls-private-key-file={tls.key}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-cluster-ip-range={options.service_cidr}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={tls.service_account_public_key}",
        f"--service-account-signing-key-file={tls.service_account_key}",
        # Pod logs come from the kubelet at the node's (loopback) address; its self-signed certificate is accepted
        # because no --kubelet-certificate-authority is given.
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        # As OpenShift: an owner reference that blocks deletion needs a right on the owner's finalizers.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    ]


def kube_controller_manager(
    binaries: Binaries, ports: Ports, tls: Tls, *, kubeconfig: Path, options: Options
) -> list[str]:
    return [
        str(binaries.kube_controller_manager),
        f"--kubeconfig={kubeconfig}",
        *_serving(ports.kube_controller_manager, tls),
        *_rates(options.qps),
        "--use-service-account-credentials",
        f"--horizontal-pod-autoscaler-sync-period={HPA_SYNC_SECONDS}s",
        f"--service-account-private-key-file={tls.service_account_key}",
        f"--root-ca-file={tls.ca}",
        *_controllers(options.node_address),
        *_node_monitor(options.node_monitor_grace_seconds),
    ]


def kube_scheduler(binaries: Binaries, ports: Ports, tls: Tls, *, kubeconfig: Path, options: Options) -> list[str]:
    return [
        str(binaries.kube_scheduler),
        f"--kubeconfig={kubeconfig}",
        *_serving(ports.kube_scheduler, tls),
        *_rates(options.qps),
    ]


def prometheus(binaries: Binaries, ports: Ports, *, config: Path, data: Path, options: Options) -> list[str]:
    # A new target waits for the next look at the discovered ones, every 5 s by default; no point in scraping faster.
    look_milliseconds = round(1000 * min(options.scrape_interval_seconds, DISCOVERY_RELOAD_SECONDS))
    return [
        str(binaries.prometheus),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={HOST}:{ports.prometheus}",
        f"--scrape.discovery-reload-interval={look_milliseconds}ms",
        "--log.level=warn",
    ]


def _reach(node_address: str | None) -> Sequence[str]:
    """Where the API server listens and whether the Service `kubernetes` leads to it: to loopback the API refuses."""
    if node_address is None:
        return f"--bind-address={HOST}", "--endpoint-reconciler-type=none"
    return "--bind-address=0.0.0.0", f"--advertise-address={node_address}", "--endpoint-reconciler-type=lease"


def _controllers(node_address: str | None) -> Sequence[str]:
    """All, or without real pods all but endpoints: loopback addresses are refused there, for every Service again."""
    if node_address is not None:
        return ()
    return (f"--controllers=*,{','.join(f'-{name}' for name in ENDPOINT_CONTROLLERS)}",)


def _serving(port: int, tls: Tls) -> Sequence[str]:
    return (
        f"--bind-address={HOST}",
        f"--secure-port={port}",
        f"--tls-cert-file={tls.certificate}",
        f"--tls-private-key-file={tls.key}",
        "--leader-elect=false",
    )


def _rates(qps: int) -> Sequence[str]:
    return f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}"


def _node_monitor(grace_seconds: int | None) -> Sequence[str]:
    if grace_seconds is None:
        return ()
    return (
        f"--node-monitor-grace-period={grace_seconds}s",
        f"--node-monitor-period={NODE_MONITOR_PERIOD_SECONDS}s",
    )
