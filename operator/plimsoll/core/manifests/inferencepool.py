"""The InferencePool: the engines as a Gateway API backend whose requests an endpoint picker places."""

from typing import Any, Final

from plimsoll.api.routing import EndpointPicker
from plimsoll.core.manifests.container import HTTP_PORT
from plimsoll.core.manifests.identity import Owner, traffic_selector

API_VERSION: Final = "inference.networking.k8s.io/v1"
KIND: Final = "InferencePool"


def inference_pool(owner: Owner, picker: EndpointPicker) -> dict[str, Any]:
    """The pods that the Service sends traffic to, and the picker that the user runs for them."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": owner.metadata(),
        "spec": {
            "selector": {"matchLabels": traffic_selector(owner.name)},
            "targetPorts": [{"number": HTTP_PORT}],
            "endpointPickerRef": {
                "kind": "Service",
                "name": picker.service,
                "port": {"number": picker.port},
                "failureMode": picker.failure_mode,
            },
        },
    }
