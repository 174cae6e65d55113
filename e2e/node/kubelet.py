"""The configurations of kubelet and kube-proxy: pure, each setting with its reason."""

from pathlib import Path
from typing import Any, Final

from e2e.node import containerd

KUBELET_PORT: Final = 10250
HEALTH_PORT: Final = 10248
PROXY_HEALTH_PORT: Final = 10256
PROXY_METRICS_PORT: Final = 10249


def kubelet(folder: Path, *, cgroup: str, resolv_conf: Path) -> dict[str, Any]:
    """A KubeletConfiguration that keeps to `folder` and `cgroup`."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{containerd.SOCKET}",
        "imageServiceEndpoint": f"unix://{containerd.SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,  # the default needs CAP_SYS_RESOURCE
        "protectKernelDefaults": True,  # read the machine's tunables, never write them
        "makeIPTablesUtilChains": False,
        # Only the API server can reach it: the network namespace holds nobody else.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "port": KUBELET_PORT,
        "healthzPort": HEALTH_PORT,
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "resolvConf": str(resolv_conf),
        "imageGCHighThresholdPercent": 100,  # a machine's full disk must not cost us images nobody can pull again
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "nodeStatusUpdateFrequency": "4s",
        "nodeStatusReportFrequency": "10s",
        "serializeImagePulls": False,  # a pull that hangs must not hold up the others
    }


def kube_proxy(*, kubeconfig: Path, node: str) -> dict[str, Any]:
    """A KubeProxyConfiguration in iptables mode."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node,
        "clusterCIDR": containerd.POD_CIDR,
        "healthzBindAddress": f"127.0.0.1:{PROXY_HEALTH_PORT}",
        "metricsBindAddress": f"127.0.0.1:{PROXY_METRICS_PORT}",
        # Connection tracking is the whole machine's: leave its limits as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
