"""Which nodes a pod may go to, and what it asks of them: the scheduler's own rules, as far as GPUs need them. Pure.

Selectors, required node affinity, taints and requests are read as kube-scheduler reads them. Pod (anti-)affinity,
topology spread and volumes are left to it: they need more than one node to be judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from plimsoll.core.quantity import quantity

Requests = Mapping[str, Decimal]

_REPELLING: Final = ("NoSchedule", "NoExecute")
_ZERO: Final = Decimal(0)


@dataclass(frozen=True)
class Needs:
    """What one pod asks of a node."""

    requests: Requests
    selector: Mapping[str, str] = field(default_factory=dict)
    terms: Sequence[Mapping[str, Any]] = ()
    """Required node affinity: one of these terms must match; none given: every node does."""
    tolerations: Sequence[Mapping[str, Any]] = ()

    @property
    def gpu_resource(self) -> str:
        """The extended resource that stands for GPUs (whole ones or MIG slices), or empty."""
        return next((name for name in self.requests if is_gpu(name)), "")

    @property
    def gpus(self) -> int:
        """GPUs (or slices) of one pod."""
        return int(sum((amount for name, amount in self.requests.items() if is_gpu(name)), _ZERO))


def is_gpu(resource: str) -> bool:
    """Whether a resource name means a GPU or a part of one."""
    vendor, _, kind = resource.partition("/")
    return vendor in ("nvidia.com", "amd.com", "gpu.intel.com") and kind != ""


def read_needs(spec: Mapping[str, Any]) -> Needs:
    """What a pod with this spec asks for."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    return Needs(
        requests=pod_requests(spec),
        selector=spec.get("nodeSelector") or {},
        terms=required.get("nodeSelectorTerms") or (),
        tolerations=spec.get("tolerations") or (),
    )


def pod_requests(spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """Requests of a pod: its containers and sidecars together, or its largest init container, and its overhead.

    A limit without a request is one, as the API server fills it in.
    """
    inits = spec.get("initContainers") or ()
    together = [*(spec.get("containers") or ()), *(c for c in inits if c.get("restartPolicy") == "Always")]
    total = _sum(_container(c) for c in together)
    for one in (_container(c) for c in inits if c.get("restartPolicy") != "Always"):
        total = {name: max(total.get(name, _ZERO), one.get(name, _ZERO)) for name in {*total, *one}}
    return _sum((total, _amounts(spec.get("overhead") or {})))


def repelled_by(needs: Needs, taints: Iterable[Mapping[str, Any]]) -> str:
    """The first taint the pod does not tolerate, as ``key=value:effect``, or empty."""
    for taint in taints:
        if taint.get("effect") in _REPELLING and not any(_tolerates(t, taint) for t in needs.tolerations):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{taint.get('key')}{value}:{taint.get('effect')}"
    return ""


def selects(needs: Needs, labels: Mapping[str, str]) -> bool:
    """Whether selector and required affinity let the pod on a node with these labels."""
    if any(labels.get(key) != value for key, value in needs.selector.items()):
        return False
    return not needs.terms or any(_matches(term, labels) for term in needs.terms)


def _container(container: Mapping[str, Any]) -> dict[str, Decimal]:
    resources = container.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(resources: Mapping[str, Any]) -> dict[str, Decimal]:
    read = ((name, quantity(text)) for name, text in resources.items())
    return {name: amount for name, amount in read if amount is not None}


def _sum(parts: Iterable[Requests]) -> dict[str, Decimal]:
    total: dict[str, Decimal] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, _ZERO) + amount
    return total


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _matches(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """All expressions of a term; one on fields (metadata.name) is taken not to match."""
    expressions = term.get("matchExpressions") or ()
    return not term.get("matchFields") and bool(expressions) and all(_holds(e, labels) for e in expressions)


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    found, values = labels.get(str(expression.get("key"))), expression.get("values") or ()
    match expression.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case "Gt" | "Lt" as order:
            return _compares(order, found, values)
    return False


def _compares(order: str, found: str | None, values: Sequence[str]) -> bool:
    try:
        number, limit = int(found or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > limit if order == "Gt" else number < limit
