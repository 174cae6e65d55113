"""The kinds that this world has, and what of each the API server does by itself. Anything else is refused loudly."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from plimsoll.adapters.ports import (
    AUTOSCALERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    DISRUPTION_BUDGETS,
    EVENTS,
    JOBS,
    LEASES,
    NETWORK_SERVICES,
    NODES,
    PODS,
    REVISIONS,
    SERVICES,
    VOLUME_CLAIMS,
    Kind,
)
from tests.faults.world.shapes import BuiltIn, Custom, Shape

NAMESPACES: Final = Kind("", "v1", "namespaces", "Namespace")
REPLICA_SETS: Final = Kind("apps", "v1", "replicasets", "ReplicaSet")
CRD: Final = Path(__file__).parents[3] / "crds" / "plimsoll.dev_vllmservices.yaml"

Object = dict[str, Any]


class UnfaithfulError(Exception):
    """The world was asked for what it cannot do as Kubernetes does: extend it, or ask something else."""


_PLAIN: Final = BuiltIn()


@dataclass(frozen=True)
class Traits:
    """What the API server does with objects of a kind beyond storing them."""

    shape: Shape = _PLAIN
    namespaced: bool = True
    status: bool = False
    """There is a status subresource: other writes leave the status alone."""
    generation: bool = False
    tracked: bool = True
    """Who owns which field is kept; of kinds that nobody applies it is not, and applying them is refused."""
    grace: bool = False
    """Deletion waits for somebody to confirm it."""
    defaults: Callable[[Object], Object] = lambda obj: obj


def _deployment(obj: Object) -> Object:
    spec: Object = {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate"},
        **obj["spec"],
    }
    strategy = spec["strategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = {"maxSurge": "25%", "maxUnavailable": "25%", **(strategy.get("rollingUpdate") or {})}
        spec["strategy"] = {**strategy, "rollingUpdate": rolling}
    return {**obj, "spec": {**spec, "template": _template(spec["template"])}}


def _replica_set(obj: Object) -> Object:
    return {**obj, "spec": {"replicas": 1, **obj["spec"]}}


def _job(obj: Object) -> Object:
    spec = {"completions": 1, "parallelism": 1, "backoffLimit": 6, **obj["spec"]}
    return {**obj, "spec": {**spec, "template": _template(spec["template"])}}


def _template(template: Object) -> Object:
    spec = template["spec"]
    filled = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        **spec,
        "containers": [_container(container) for container in spec["containers"]],
    }
    return {**template, "spec": filled}


def _container(container: Object) -> Object:
    filled = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", **container}
    if ports := container.get("ports"):
        filled["ports"] = [{"protocol": "TCP", **port} for port in ports]
    return filled


def _pod(obj: Object) -> Object:
    return {**_template(obj), "status": obj.get("status") or {"phase": "Pending"}}


def _service(obj: Object) -> Object:
    spec = {"type": "ClusterIP", "sessionAffinity": "None", **obj["spec"]}
    spec["ports"] = [{"protocol": "TCP", "targetPort": port["port"], **port} for port in spec["ports"]]
    return {**obj, "spec": spec}


TRAITS: Final[Mapping[Kind, Traits]] = {
    DEPLOYMENTS: Traits(status=True, generation=True, defaults=_deployment),
    REPLICA_SETS: Traits(tracked=False, status=True, generation=True, defaults=_replica_set),
    REVISIONS: Traits(BuiltIn(raw=True)),
    NETWORK_SERVICES: Traits(status=True, defaults=_service),
    DISRUPTION_BUDGETS: Traits(status=True, generation=True),
    JOBS: Traits(status=True, generation=True, defaults=_job),
    CONFIG_MAPS: Traits(),
    VOLUME_CLAIMS: Traits(status=True),
    PODS: Traits(tracked=False, status=True, grace=True, defaults=_pod),
    NODES: Traits(tracked=False, namespaced=False, status=True),
    NAMESPACES: Traits(tracked=False, namespaced=False, status=True),
    EVENTS: Traits(tracked=False),
    LEASES: Traits(tracked=False),
    AUTOSCALERS: Traits(status=True),
}


@cache
def crd_schema() -> Mapping[str, Any]:
    """The schema of VLLMServices as ``crds/`` says it."""
    document = yaml.load(CRD.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schema: Mapping[str, Any] = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@cache
def traits(kind: Kind) -> Traits:
    """What the API server does with a kind. Raises UnfaithfulError for one that this world has not."""
    if kind == SERVICES:
        return Traits(Custom(crd_schema()), status=True, generation=True)
    if kind not in TRAITS:
        raise UnfaithfulError(f"{kind.kind}: no such kind in this world")
    return TRAITS[kind]
