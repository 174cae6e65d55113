"""containerd's configuration: CRI with runc, pods on point-to-point links, nothing of the machine's own containerd."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

POD_CIDR: Final = "10.244.0.0/24"
SOCKET: Final = Path("/run/containerd/containerd.sock")
NAMESPACE: Final = "k8s.io"
UNUSED_PLUGINS: Final = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.tracing",
    "io.containerd.nri.v1.nri",
)


@dataclass(frozen=True, slots=True)
class Files:
    """What containerd is started with; `root` holds images and containers."""

    config: Path
    root: Path
    cni: Path
    log: Path

    @classmethod
    def below(cls, folder: Path) -> Self:
        return cls(folder / "containerd.toml", folder / "containerd", folder / "cni", folder / "containerd.log")

    def write(self, *, cni_plugins: Path, runc: Path, pause_image: str) -> None:
        """Both configurations; version 2 of the format is what containerd 1.x has and 2.x still reads."""
        self.cni.mkdir()
        (self.cni / "10-pods.conflist").write_text(json.dumps(_network()))
        self.config.write_text(
            _CONFIG.format(
                root=self.root,
                socket=SOCKET,
                unused=json.dumps(UNUSED_PLUGINS),
                pause=pause_image,
                cni_plugins=cni_plugins,
                cni=self.cni,
                runc=runc,
            )
        )


def _network() -> dict[str, object]:
    """A link of its own for each pod. On a bridge, answers to a Service would go past the address translation."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_CIDR}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni-addresses",
    }
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": False, "ipam": ipam}]}


# restrict_oom_score_adj: without CAP_SYS_RESOURCE no sandbox starts otherwise ("can't get final child's PID").
_CONFIG: Final = """\
version = 2
root = "{root}"
state = "/run/containerd"
disabled_plugins = {unused}
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
enable_selinux = false
stream_server_address = "127.0.0.1"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni_plugins}"
conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
BinaryName = "{runc}"
"""
