"""Secrets and ConfigMaps that a pod refers to, as a kubelet fetches them before it creates a container.

Only whether object and key exist matters here: values are not handed to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from e2e.fleet.api import NOT_FOUND, Api, ApiError

PLURALS: Final = {"secret": "secrets", "configmap": "configmaps"}


@dataclass(frozen=True)
class Reference:
    """One object that has to exist; ``volume`` of a mount, ``key`` of an environment variable."""

    kind: str
    name: str
    volume: str = ""
    key: str = ""


def of_volumes(spec: Mapping[str, Any]) -> Iterator[Reference]:
    """What the pod's volumes need; as a kubelet does, volumes that no container mounts are ignored."""
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    mounted = {mount["name"] for container in containers for mount in container.get("volumeMounts") or ()}
    for volume in [v for v in spec.get("volumes") or () if v["name"] in mounted]:
        for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
            secret, config = source.get("secret"), source.get("configMap")
            if secret and not secret.get("optional"):
                yield Reference("secret", secret.get("secretName") or secret["name"], volume["name"])
            if config and not config.get("optional"):
                yield Reference("configmap", config["name"], volume["name"])


def of_environment(container: Mapping[str, Any]) -> Iterator[Reference]:
    """What a container's environment needs."""
    for entry in container.get("env") or ():
        source = entry.get("valueFrom") or {}
        for kind, field in (("secret", "secretKeyRef"), ("configmap", "configMapKeyRef")):
            if (found := source.get(field)) and not found.get("optional"):
                yield Reference(kind, found["name"], key=found["key"])
    for entry in container.get("envFrom") or ():
        for kind, field in (("secret", "secretRef"), ("configmap", "configMapRef")):
            if (found := entry.get(field)) and not found.get("optional"):
                yield Reference(kind, found["name"])


async def missing(api: Api, namespace: str, references: Iterator[Reference]) -> str:
    """The kubelet's words for the first that is not there; empty when all are."""
    for wanted in references:
        try:
            found = await api.get(f"/api/v1/namespaces/{namespace}/{PLURALS[wanted.kind]}/{wanted.name}")
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            words = f'{wanted.kind} "{wanted.name}" not found'
            return f'MountVolume.SetUp failed for volume "{wanted.volume}" : {words}' if wanted.volume else words
        if wanted.key and wanted.key not in {**(found.get("data") or {}), **(found.get("binaryData") or {})}:
            owner = "Secret" if wanted.kind == "secret" else "ConfigMap"
            return f"couldn't find key {wanted.key} in {owner} {namespace}/{wanted.name}"
    return ""
