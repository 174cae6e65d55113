"""What stands around the workloads in the same files or cluster: ConfigMaps, Services, claims, autoscalers, routes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.api.names import GPU_PRODUCT_LABEL
from plimsoll.core.workloads.candidates import RUNTIMES
from plimsoll.core.workloads.tree import Tree, part, text, walk

_ROUTES: Final = frozenset({"Ingress", "HTTPRoute", "Route", "IngressRoute", "VirtualService", "GRPCRoute", "TCPRoute"})
_OPEN_SERVICES: Final = frozenset({"LoadBalancer", "NodePort"})
_SCALERS: Final = frozenset({"HorizontalPodAutoscaler", "ScaledObject", "PodAutoscaler"})


@dataclass(frozen=True)
class Named:
    """An object beside a workload."""

    kind: str
    namespace: str
    name: str
    body: Tree

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def meets(one: str, other: str) -> bool:
    """Whether two namespaces may be the same: one that is not written may be any."""
    return not one or not other or one == other


@dataclass
class Neighbours:
    """All of them; one instance for everything that is read together."""

    config_maps: dict[str, list[Named]] = field(default_factory=dict)
    services: list[Named] = field(default_factory=list)
    claims: dict[str, list[Named]] = field(default_factory=dict)
    scalers: dict[str, list[Named]] = field(default_factory=dict)
    routes: dict[str, list[Named]] = field(default_factory=dict)
    nodes: list[Tree] = field(default_factory=list)
    runtimes: dict[str, Named] = field(default_factory=dict)

    def add(self, manifest: Tree) -> None:
        """Remember an object that a workload may refer to."""
        kind = str(manifest.get("kind", ""))
        named = Named(kind, text(manifest, "metadata", "namespace") or "", _name(manifest), manifest)
        if kind == "ConfigMap":
            self.config_maps.setdefault(named.name, []).append(named)
        elif kind == "PersistentVolumeClaim":
            self.claims.setdefault(named.name, []).append(named)
        elif kind == "Service":
            self.services.append(named)
        elif kind in _SCALERS:
            self.scalers.setdefault(text(manifest, "spec", "scaleTargetRef", "name") or "", []).append(named)
        elif kind in _ROUTES:
            for backend in _backends(manifest):
                self.routes.setdefault(backend, []).append(named)
        elif kind == "Node":
            self.nodes.append(manifest)
        elif kind in RUNTIMES:
            self.runtimes[named.name] = named

    def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The text data of a ConfigMap; also of one that kustomize generates, whose name has a hash behind it."""
        for each in self.config_maps.get(name, ()):
            if meets(each.namespace, namespace):
                return {str(key): value for key, value in part(each.body, "data").items() if isinstance(value, str)}
        return None

    def claim(self, namespace: str, name: str) -> Tree | None:
        """The spec of a PersistentVolumeClaim."""
        found = (each for each in self.claims.get(name, ()) if meets(each.namespace, namespace))
        return next((part(each.body, "spec") for each in found), None)

    def scalers_of(self, namespace: str, kind: str, name: str) -> list[Named]:
        """Autoscalers that write the replicas of a workload."""
        return [
            each
            for each in self.scalers.get(name, ())
            if meets(each.namespace, namespace)
            and (text(each.body, "spec", "scaleTargetRef", "kind") or "Deployment") == kind
        ]

    def services_of(self, namespace: str, labels: Mapping[str, Any]) -> list[Named]:
        """Services whose selector fits a pod's labels."""
        return [each for each in self.services if meets(each.namespace, namespace) and _selects(each.body, labels)]

    def services_named(self, namespace: str, name: str) -> list[Named]:
        """Services of a name that pods of a namespace see as variables."""
        return [each for each in self.services if each.name == name and meets(each.namespace, namespace)]

    def opens(self, service: Named) -> list[Named]:
        """What lets the outside reach a Service: its own type, or routes to it."""
        own = [service] if text(service.body, "spec", "type") in _OPEN_SERVICES else []
        return [*own, *(each for each in self.routes.get(service.name, ()) if meets(each.namespace, service.namespace))]

    def products(self, selector: Mapping[str, Any]) -> set[str]:
        """GPU products of the nodes that fit a selector, as their labels say."""
        found = set()
        for node in self.nodes:
            labels = part(node, "metadata", "labels")
            product = labels.get(GPU_PRODUCT_LABEL)
            if product and all(labels.get(key) == value for key, value in selector.items()):
                found.add(str(product))
        return found


def gathered(manifests: Iterable[Tree]) -> Neighbours:
    """Everything that stands in some objects."""
    found = Neighbours()
    for manifest in manifests:
        found.add(manifest)
    return found


def _name(manifest: Tree) -> str:
    name = text(manifest, "metadata", "name")
    return name or (text(manifest, "metadata", "generateName") or "").rstrip("-")


def _selects(service: Tree, labels: Mapping[str, Any]) -> bool:
    selector = part(service, "spec", "selector")
    return bool(selector) and all(str(labels.get(key)) == str(value) for key, value in selector.items())


def _backends(route: Tree) -> Iterator[str]:
    """Names of Services that a route leads to, whatever kind of route it is."""
    for path, each in walk(part(route, "spec")):
        last = path.rpartition(".")[2].partition("[")[0]
        if last in {"service", "backendRefs", "to", "services", "destination", "alternateBackends"}:
            name = text(each, "name") or text(each, "host")
            if name:
                yield name.partition(".")[0]
        if isinstance(each.get("serviceName"), str):
            yield each["serviceName"]
