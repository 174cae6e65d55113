"""The API server of a bench's control plane, as admin."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from e2e.controlplane import ControlPlane
from plimsoll.adapters.kube import KubeCluster, load_configuration


@asynccontextmanager
async def admin_cluster(plane: ControlPlane) -> AsyncIterator[KubeCluster]:
    """A client that waits long enough for a loaded server."""
    cluster = KubeCluster(await load_configuration(str(plane.admin_kubeconfig)), 60)
    try:
        yield cluster
    finally:
        await cluster.close()
