"""A quality gate's Job template against the owner's policy: what pod templates may not, it may not either."""

from collections.abc import Iterator
from typing import Any, Final

from plimsoll.api.quality_gate import QualityGateSpec
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.container import CONTAINER, GATE_CONTAINER
from plimsoll.core.podtemplate.beyond import beyond
from plimsoll.core.podtemplate.ours import ours
from plimsoll.core.podtemplate.references import template_references
from plimsoll.core.podtemplate.token import token_of
from plimsoll.core.podtemplate.volumes import volumes_and_secrets
from plimsoll.core.podtemplate.words import AT, containers
from plimsoll.core.policy import Allowed

GATE: Final = "spec.tuning.qualityGate.podTemplate"


def plain_gate(gate: QualityGateSpec) -> dict[str, Any]:
    """The template as the user wrote it."""
    return gate.pod_template.model_dump(mode="json", by_alias=True, exclude_unset=True) if gate.pod_template else {}


def gate_refusals(spec: VLLMServiceSpec, allowed: Allowed) -> list[str]:
    """Why a gate may not run; empty when it may, or none is named."""
    gate = spec.tuning.quality_gate
    if gate is None:
        return []
    token = token_of(spec.model.source)
    found = plain_gate(gate)
    refused = [*_names(found), *ours(_with_image(found)), *beyond(found, allowed)]
    refused += [*volumes_and_secrets(found, allowed, token.name if token else None)]
    refused += [*template_references(found, allowed)]
    return [each.replace(AT, GATE) for each in refused]


def _names(template: dict[str, Any]) -> Iterator[str]:
    for where, container in containers(template.get("spec", {})):
        if container["name"] == CONTAINER:
            yield f"{where}.name: {CONTAINER} is the engine's; the one that compares is called {GATE_CONTAINER}"


def _with_image(template: dict[str, Any]) -> dict[str, Any]:
    """As if the container that is ours without an image had one, and the engine's were not there."""
    spec = template.get("spec", {})
    known = [
        {"image": "the operator's own", **each} if each["name"] == GATE_CONTAINER else each
        for each in spec.get("containers", ())
        if each["name"] != CONTAINER
    ]
    return {**template, "spec": {**spec, "containers": known}}
