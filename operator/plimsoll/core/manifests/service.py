"""The ClusterIP Service in front of the fleet."""

from typing import Any

from plimsoll.core.manifests.container import HTTP_PORT, HTTP_PORT_NAME
from plimsoll.core.manifests.identity import Owner, traffic_selector


def network_service(owner: Owner) -> dict[str, Any]:
    """One stable address; only Ready pods are behind it."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": owner.metadata(),
        "spec": {
            "type": "ClusterIP",
            "selector": traffic_selector(owner.name),
            "ports": [{"name": HTTP_PORT_NAME, "port": HTTP_PORT, "targetPort": HTTP_PORT_NAME, "protocol": "TCP"}],
        },
    }
