"""CRDs of optional kinds, by the plural of the kind."""

import gzip
import json
from pathlib import Path
from typing import Any, Final, Literal

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually

FOLDER: Final = Path(__file__).parent / "crds"

Plural = Literal["leaderworkersets", "podmonitors", "inferencepools"]


def definition(plural: Plural) -> dict[str, Any]:
    """The CustomResourceDefinition, as its project ships it but for descriptions."""
    crd: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{plural}.json.gz").read_bytes()))
    return crd


def install(kubectl: Kubectl, plural: Plural) -> None:
    """Return when the API server serves the kind."""
    crd = definition(plural)
    kubectl.apply(crd)
    group = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}"
    eventually(lambda: _serves(kubectl, group, plural))


def _serves(kubectl: Kubectl, group: str, plural: Plural) -> bool:
    try:
        return any(found["name"] == plural for found in json.loads(kubectl("get", "--raw", group))["resources"])
    except KubectlError:
        return False


def remove(kubectl: Kubectl, plural: Plural) -> None:
    """Delete the definition, and with it every object of the kind."""
    kubectl("delete", "crd", definition(plural)["metadata"]["name"], "--ignore-not-found", "--wait=true")
