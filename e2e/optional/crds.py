"""CRDs of optional kinds, by the plural of the kind."""

import gzip
import json
from pathlib import Path
from typing import Any, Final, Literal

from e2e.controlplane.kubectl import Kubectl

FOLDER: Final = Path(__file__).parent / "crds"
ESTABLISHED_SECONDS: Final = 30

Plural = Literal["leaderworkersets", "podmonitors", "inferencepools"]


def definition(plural: Plural) -> dict[str, Any]:
    """The CustomResourceDefinition, as its project ships it but for descriptions."""
    crd: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{plural}.json.gz").read_bytes()))
    return crd


def install(kubectl: Kubectl, plural: Plural) -> None:
    """Return when the API server serves the kind."""
    crd = definition(plural)
    kubectl.apply(crd)
    kubectl("wait", "--for=condition=Established", f"--timeout={ESTABLISHED_SECONDS}s", "crd", crd["metadata"]["name"])


def remove(kubectl: Kubectl, plural: Plural) -> None:
    """Delete the definition, and with it every object of the kind."""
    kubectl("delete", "crd", definition(plural)["metadata"]["name"], "--ignore-not-found", "--wait=true")


def serve(kubectl: Kubectl, plural: Plural, *, served: bool) -> None:
    """Stop to serve the kind, or serve it again; its objects stay where they are."""
    patch = [{"op": "replace", "path": "/spec/versions/0/served", "value": served}]
    name = definition(plural)["metadata"]["name"]
    kubectl("patch", "crd", name, "--type=json", "-p", json.dumps(patch))
