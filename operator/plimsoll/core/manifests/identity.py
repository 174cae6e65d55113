"""Who a service's children are: names, labels, selectors and owner. Selectors are immutable, so they never depend on
the spec (decision 12 of the architecture page).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api import names

APP_NAME = "vllm"
WORKER_NAME = "vllm-worker"


@dataclass(frozen=True)
class Owner:
    """The VLLMService that owns the children: its address and uid."""

    namespace: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        """The controller owner reference: deleting the service deletes the child, no finalizer needed."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def metadata(self, name: str | None = None) -> dict[str, Any]:
        """Metadata of a child: same namespace, our labels, owned by the service."""
        return {
            "name": name or self.name,
            "namespace": self.namespace,
            "labels": labels(self.name),
            "ownerReferences": [self.reference()],
        }


def labels(service: str) -> dict[str, str]:
    """Labels of every child of the service."""
    return {
        names.LABEL_NAME: APP_NAME,
        names.LABEL_INSTANCE: service,
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_PART_OF: names.MANAGED_BY,
        names.LABEL_SERVICE: service,
    }


def pod_labels(service: str, track: str = names.TRACK_MAIN) -> dict[str, str]:
    """Labels of the service's pods on one track: main, canary or control."""
    return {**labels(service), names.LABEL_TRACK: track}


def worker_labels(service: str) -> dict[str, str]:
    """Labels of a replica's further nodes: they serve nothing, so neither traffic nor replica selectors match them."""
    return {**labels(service), names.LABEL_NAME: WORKER_NAME, names.LABEL_TRACK: names.TRACK_WORKER}


def track_selector(service: str, track: str = names.TRACK_MAIN) -> dict[str, str]:
    """Pods of one track; the Deployment's, the PDB's and ``status.selector``."""
    return {names.LABEL_INSTANCE: service, names.LABEL_TRACK: track}


def traffic_selector(service: str) -> dict[str, str]:
    """Pods that answer requests, of any track: a canary takes real traffic.

    The app's name stands beside the instance, since another chart's release may be called the same.
    """
    return {names.LABEL_NAME: APP_NAME, names.LABEL_INSTANCE: service}


def selector_text(selector: Mapping[str, str]) -> str:
    """A label selector as text, for ``status.selector`` and ``kubectl -l``."""
    return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
