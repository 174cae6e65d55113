"""The PodMonitor: how the Prometheus operator learns to scrape the engines."""

from collections.abc import Mapping
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.manifests.container import HTTP_PORT_NAME
from plimsoll.core.manifests.identity import Owner, traffic_selector

API_VERSION: Final = "monitoring.coreos.com/v1"
KIND: Final = "PodMonitor"
METRICS_PATH: Final = "/metrics"


def pod_monitor(owner: Owner, labels: Mapping[str, str]) -> dict[str, Any]:
    """Every engine of the service, a canary's too: figures are compared pod by pod.

    Pods rather than the Service (a ServiceMonitor): an engine that is not Ready has figures that explain why.
    ``labels``: what the cluster's Prometheus selects monitors by.
    """
    metadata = owner.metadata()
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**metadata, "labels": {**labels, **metadata["labels"]}},
        "spec": {
            "selector": {"matchLabels": traffic_selector(owner.name)},
            "podTargetLabels": [names.LABEL_SERVICE, names.LABEL_TRACK],
            "podMetricsEndpoints": [{"port": HTTP_PORT_NAME, "path": METRICS_PATH}],
        },
    }
