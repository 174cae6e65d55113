"""Helm values: those of the vLLM production stack as its chart reads them, others as far as they show a container."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from plimsoll.core.workloads.candidates import Candidate, Scope
from plimsoll.core.workloads.helm import values_of
from plimsoll.core.workloads.shell import words_of
from plimsoll.core.workloads.stack import STACK, stack_candidates
from plimsoll.core.workloads.tree import Tree, along, at, entries, part, text, walk, whole

_ARGUMENTS: Final = ("args", "extraArgs", "vllmArgs", "vllmExtraArgs", "additionalArgs", "engineArgs")


def values_candidates(document: Tree) -> list[Candidate]:
    """Engines in Helm values."""
    found = values_of(document)
    if found is None:
        return []
    values, path = found
    if _is_compose(values):
        return []
    for inner_path, each in walk(values, path):
        if entries(each, STACK, "modelSpec"):
            return list(stack_candidates(document, each, inner_path))
    return list(_others(document, values, path))


def _is_compose(values: Tree) -> bool:
    """Docker Compose: containers too, but not of Kubernetes."""
    services = part(values, "services").values()
    return any(isinstance(each, Mapping) and ("image" in each or "build" in each) for each in services)


def charted_exposure(document: Tree) -> tuple[str, str] | None:
    """(path, how) of what lets the outside reach the engines of a chart's values."""
    found = values_of(document)
    for path, each in walk(found[0], found[1]) if found else ():
        name = path.rpartition(".")[2]
        kind = text(each, "type") if name == "service" else text(each, "serviceType")
        if kind in {"LoadBalancer", "NodePort"}:
            return path, kind
        if name in {"ingress", "route", "httpRoute"} and each.get("enabled") is True:
            return path, name
    return None


def charted_autoscaling(document: Tree) -> str | None:
    """The path of an autoscaler on CPU in a chart's values."""
    found = values_of(document)
    for path, each in walk(found[0], found[1]) if found else ():
        if each.get("targetCPUUtilizationPercentage") and each.get("enabled", True) is True:
            return path
    return None


def _others(document: Tree, values: Tree, path: str) -> Iterator[Candidate]:
    """Whatever in the values has arguments, with the image and resources that stand nearest above it."""
    for each_path, each in walk(values, path):
        argument = next((key for key in (*_ARGUMENTS, "command") if isinstance(each.get(key), list | str)), None)
        if argument is None or "containers" in each:
            continue
        above = _above(values, path, each_path)
        image = _image(next((node["image"] for node in above if node.get("image")), None))
        args = each.get(argument) if argument != "command" else None
        container = {
            **{key: node[key] for node in reversed(above) for key in _CONTAINER_FIELDS if key in node},
            **_probes(above),
            "image": image,
            "command": words_of(each.get("command")),
            "args": words_of(args),
        }
        yield Candidate(
            document, container, each_path or argument, _pod(above), path, scope=_scope(each_path),
            replicas=_replicas(above),
        )  # fmt: skip


_CONTAINER_FIELDS: Final = ("env", "envFrom", "resources", "volumeMounts", "lifecycle", "securityContext")


_STRATEGIES: Final = ("deploymentStrategy", "updateStrategy", "rolloutStrategy")


def _probes(above: list[Tree]) -> dict[str, Any]:
    """Probes by Kubernetes' names, or below ``probes`` by their short ones."""
    found: dict[str, Any] = {}
    for node in reversed(above):
        for short in ("startup", "liveness", "readiness"):
            probe = at(node, f"{short}Probe") or at(node, "probes", short)
            if isinstance(probe, Mapping) and probe.get("enabled") is not False:
                found[f"{short}Probe"] = probe.get("spec", probe)
    return found


def _scope(path: str) -> Scope:
    """The app-template chart adds nothing to its containers: what is absent there is absent in the pod."""
    return "pod" if re.search(r"controllers\.[^.]+\.containers\.[^.]+$", path) else "values"


def _replicas(above: list[Tree]) -> int | None:
    return next((whole(node[key]) for node in above for key in ("replicas", "replicaCount") if key in node), None)


def _pod(above: list[Tree]) -> dict[str, Any]:
    keys = ("nodeSelector", "affinity", "terminationGracePeriodSeconds", "volumes", "tolerations", "strategy")
    found = {key: node[key] for node in reversed(above) for key in keys if key in node}
    other = next((node[key] for node in above for key in _STRATEGIES if key in node), None)
    strategy = found.get("strategy", other)
    return {**found, "strategy": {"type": strategy} if isinstance(strategy, str) else strategy}


def _above(values: Tree, root: str, path: str) -> list[Tree]:
    """The mappings from one of the tree up to its root, nearest first."""
    below = along(values, path[len(root) :].lstrip(".")) if path != root else ()
    return [values, *below][::-1]


def _image(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return None
    name = "/".join(filter(None, (text(value, "registry"), text(value, "repository") or text(value, "name"))))
    tag = text(value, "tag")
    digest = text(value, "digest")
    return (f"{name}@{digest}" if digest else f"{name}:{tag}" if tag is not None else name) if name else None
