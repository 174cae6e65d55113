"""What is built from the Go modules here, and how: a row a program. A further one is a row and a `tool` line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent

KUBERNETES_VERSION: Final = "1.36.3"
ETCD_VERSION: Final = "3.6.8"
PROMETHEUS_VERSION: Final = "3.16.0"  # its Go module is v0.316.0
LEADER_WORKER_SET_VERSION: Final = "v0.0.0-main"  # what it calls itself when built from its module; go.mod pins it
HELM_VERSION: Final = "4.3"  # as it reports itself when built from its module; go.mod pins the patch


@dataclass(frozen=True, slots=True)
class Target:
    """A Go main package, the file it becomes, and how to see that the file is the right one."""

    name: str
    package: str
    version_args: tuple[str, ...]
    version: str

    @property
    def built_name(self) -> str:
        """The file name `go build -o folder/` chooses: the last path element that is not a major version."""
        parts = self.package.split("/")
        return parts[-2] if parts[-1][0] == "v" and parts[-1][1:].isdigit() else parts[-1]


def _kubernetes(name: str, *version_args: str) -> Target:
    return Target(name, f"k8s.io/kubernetes/cmd/{name}", version_args or ("--version",), f"v{KUBERNETES_VERSION}")


@dataclass(frozen=True, slots=True)
class Group:
    """Programs of one Go module that are needed together, so that nobody waits for what only others need."""

    name: str
    module: Path
    targets: tuple[Target, ...]

    @property
    def program_names(self) -> list[str]:
        return [target.name for target in self.targets]


TARGETS: Final = (
    Target("etcd", "go.etcd.io/etcd/server/v3", ("--version",), ETCD_VERSION),
    _kubernetes("kube-apiserver"),
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubectl", "version", "--client"),
    Target("prometheus", "github.com/prometheus/prometheus/cmd/prometheus", ("--version",), PROMETHEUS_VERSION),
)

CONTROL_PLANE: Final = Group("the control plane", HERE, TARGETS)
NODE: Final = Group("a node", HERE, (_kubernetes("kubelet"), _kubernetes("kube-proxy")))
# A module of its own: what Helm depends on would move the versions the API server is built with.
HELM: Final = Group("Helm", HERE / "helm", (Target("helm", "helm.sh/helm/v4/cmd/helm", ("version",), HELM_VERSION),))
# As Helm; it shares Kubernetes' libraries with the control plane, so most of it is compiled when that was built.
LEADER_WORKER_SET: Final = Group(
    "the LeaderWorkerSet controller",
    HERE / "lws",
    (Target("leaderworkerset", "sigs.k8s.io/lws/cmd", ("--version",), LEADER_WORKER_SET_VERSION),),
)

_STAMPS: Final = {
    # Without gitVersion the server says v0.0.0 and clients refuse or misread it.
    "k8s.io/component-base/version.gitVersion": f"v{KUBERNETES_VERSION}",
    "k8s.io/component-base/version.gitMajor": KUBERNETES_VERSION.split(".")[0],
    "k8s.io/component-base/version.gitMinor": KUBERNETES_VERSION.split(".")[1],
    "k8s.io/component-base/version.gitTreeState": "clean",
    "github.com/prometheus/common/version.Version": PROMETHEUS_VERSION,
}

# Prometheus' other discoveries bring the SDK of every cloud.
TAGS: Final = "-tags=remove_all_sd,enable_kubernetes_sd"
BUILD_FLAGS: Final = (
    "-trimpath",
    "-buildvcs=false",
    TAGS,
    "-ldflags=-s -w " + " ".join(f"-X {name}={value}" for name, value in _STAMPS.items()),
)
BUILD_ENV: Final = {"CGO_ENABLED": "0"}
