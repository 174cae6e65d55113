"""What belongs to Plimsoll, whoever asks: a user or the owner's own defaults."""

from collections.abc import Iterator, Mapping
from typing import Final

from plimsoll.api import names
from plimsoll.core.manifests.container import CONTAINER, HTTP_PORT, HTTP_PORT_NAME, OUR_MOUNTS, VOLUMES_PREFIX
from plimsoll.core.podtemplate.words import AT, Object, containers, decided, taken

_OUR_LABELS: Final = (names.LABEL_NAME, names.LABEL_INSTANCE, names.LABEL_MANAGED_BY, names.LABEL_PART_OF)
_OUR_DOMAINS: Final = (names.GROUP, "leaderworkerset.sigs.k8s.io")
_CONTROLLERS_LABELS: Final = ("pod-template-hash", "controller-revision-hash")
_ENGINES_OWN: Final[Mapping[str, str]] = {
    "image": "spec.engine.image",
    "command": "spec.engine.image",
    "args": "spec.engine.extraArgs",
    "ports": "Plimsoll (the Service and the probes use 8000)",
    "livenessProbe": "Plimsoll (a busy engine must not be killed)",
    "readinessProbe": "Plimsoll (/health)",
    "startupProbe": "spec.startup",
    "lifecycle": "spec.drain",
    "restartPolicy": "Plimsoll",
}


def ours(template: Object) -> Iterator[str]:
    """What belongs to Plimsoll, whoever asks: a user or the owner's own defaults."""
    yield from _our_metadata(template.get("metadata", {}))
    spec = template.get("spec", {})
    if "terminationGracePeriodSeconds" in spec:
        yield decided(f"{AT}.spec.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], "spec.drain")
    for key in spec.get("nodeSelector", {}):
        if key == names.GPU_PRODUCT_LABEL or key.startswith(names.MIG_RESOURCE_PREFIX):
            yield decided(f"{AT}.spec.nodeSelector[{key}]", spec["nodeSelector"][key], "spec.hardware")
    for volume in spec.get("volumes", ()):
        if volume["name"].startswith(VOLUMES_PREFIX):
            yield taken(f"{AT}.spec.volumes[].name", volume["name"], "names that do not begin with plimsoll-")
    for where, container in containers(spec):
        yield from _our_container(where, container)


def _our_metadata(metadata: Object) -> Iterator[str]:
    for kind in ("labels", "annotations"):
        for key, value in metadata.get(kind, {}).items():
            if key in _OUR_LABELS or _domain(key) in _OUR_DOMAINS or key in _CONTROLLERS_LABELS:
                yield taken(f"{AT}.metadata.{kind}[{key}]", value, "keys of your own domain")


def _domain(key: str) -> str:
    return key.partition("/")[0] if "/" in key else ""


def _our_container(where: str, container: Object) -> Iterator[str]:
    engine = container["name"] == CONTAINER
    if engine and ".initContainers[" in where:
        yield taken(f"{where}.name", CONTAINER, "any other name")
        return
    if engine:
        for key, who in _ENGINES_OWN.items():
            if key in container:
                yield decided(f"{where}.{key}", container[key], who)
    elif "image" not in container:
        yield f"{where}.image: is required; only the container {CONTAINER} has one already"
    yield from _ports(where, container)
    yield from _gpus(where, container)
    for mount in container.get("volumeMounts", ()):
        path = mount["mountPath"].rstrip("/") or "/"
        if engine and path in OUR_MOUNTS:
            yield taken(f"{where}.volumeMounts[].mountPath", path, f"paths outside {', '.join(OUR_MOUNTS)}")


def _ports(where: str, container: Object) -> Iterator[str]:
    if container["name"] == CONTAINER:
        return
    for port in container.get("ports", ()):
        if port["containerPort"] == HTTP_PORT:
            yield taken(f"{where}.ports[].containerPort", HTTP_PORT, "any other port: the engine listens there")
        if port.get("name") == HTTP_PORT_NAME:
            yield taken(f"{where}.ports[].name", HTTP_PORT_NAME, "any other name: the Service means the engine by it")


def _gpus(where: str, container: Object) -> Iterator[str]:
    for kind in ("requests", "limits"):
        for resource, amount in container.get("resources", {}).get(kind, {}).items():
            if _domain(resource) in ("nvidia.com", "amd.com", "gpu.intel.com"):
                yield decided(f"{where}.resources.{kind}[{resource}]", amount, "spec.hardware")
