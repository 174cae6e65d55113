"""PersistentVolumeClaims under a fleet: who may mount one at a time decides how many replicas can use it.

A ReadWriteOnce volume attaches to one node: a second replica elsewhere waits for ever (D21). A ReadWriteOncePod one
serves a single pod, wherever it is.
"""

from collections.abc import Mapping
from typing import Final

from plimsoll.api import reasons
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.plan.result import Choice, Refusal

MANY: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
Claims = Mapping[str, tuple[str, ...]]
"""Access modes by claim; a claim that could not be read is not among them."""


def claim_names(spec: VLLMServiceSpec) -> tuple[str, ...]:
    """Every claim that the pods mount."""
    source, template = spec.model.source, spec.pod_template
    own = [source.pvc.claim_name] if source and source.pvc else []
    volumes = template.spec.volumes if template and template.spec else ()
    others = [v.persistent_volume_claim.claim_name for v in volumes if v.persistent_volume_claim]
    return tuple(dict.fromkeys((*own, *others)))


def exclusive(claims: Claims) -> Mapping[str, tuple[str, ...]]:
    """Claims that only one node, or one pod, may mount at a time."""
    return {name: modes for name, modes in claims.items() if modes and not MANY & set(modes)}


def claims_problem(spec: VLLMServiceSpec, choice: Choice, claims: Claims) -> Refusal | None:
    """Why the claims cannot serve the fleet, or None."""
    source = spec.model.source
    own = source.pvc if source else None
    if own and not own.read_only and claims.get(own.claim_name) == ("ReadOnlyMany",):
        message = f"spec.model.source.pvc: claim {own.claim_name} is ReadOnlyMany: set readOnly: true"
        return Refusal(reasons.SOURCE_REFUSED.name, message)
    alone, most = exclusive(claims), _most_replicas(spec, choice.gpus_per_replica)
    if not alone or most <= 1:
        return None
    named = ", ".join(f"{name} is {' and '.join(modes)}" for name, modes in alone.items())
    field = "spec.replicas" if spec.scaling.mode == "Fixed" else "scaling.maxReplicas"
    if spec.scaling.mode == "External":
        field = f"hardware.maxGPUs: {choice.gpus_per_replica}, or scaling.mode Fixed with spec.replicas"
    message = (
        f"PersistentVolumeClaim {named}: replicas on other nodes cannot mount it, and up to {most} may run; use a "
        f"ReadWriteMany or ReadOnlyMany claim, or set {field}: 1"
    )
    return Refusal(reasons.VOLUME_NOT_SHAREABLE.name, message)


def _most_replicas(spec: VLLMServiceSpec, gpus_per_replica: int) -> int:
    by_gpus = spec.hardware.max_gpus // gpus_per_replica
    if spec.scaling.mode == "Fixed":
        return min(by_gpus, spec.replicas)
    limit = spec.scaling.max_replicas if spec.scaling.mode == "Auto" else None
    return by_gpus if limit is None else min(by_gpus, limit)
