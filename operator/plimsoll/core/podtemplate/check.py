"""Whether a service may have the pods it asks for: its source of weights and its pod template, against the policy."""

import json
from collections.abc import Iterator
from typing import Any, Final

from plimsoll.api import reasons
from plimsoll.api.reason import Reason
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.api.weights import WeightsSource
from plimsoll.core.podtemplate.beyond import beyond
from plimsoll.core.podtemplate.ours import ours
from plimsoll.core.podtemplate.references import engine_refusals, source_references, template_references
from plimsoll.core.podtemplate.token import token_of
from plimsoll.core.podtemplate.volumes import volumes_and_secrets
from plimsoll.core.podtemplate.words import AT, one_of, owners, plain
from plimsoll.core.policy import Allowed, PodPolicy, PolicyError, below, listed, read_policy

LARGEST_TEMPLATE: Final = 32_768
"""Bytes as JSON: the rendered template is kept in five revisions and in every ReplicaSet."""
_SOURCE: Final = "spec.model.source"


def refusals(spec: VLLMServiceSpec, allowed: Allowed) -> Iterator[tuple[Reason, list[str]]]:
    """Everything that a service may not have, by the reason it is refused for."""
    yield reasons.IMAGE_REFUSED, list(engine_refusals(spec, allowed))
    yield reasons.SOURCE_REFUSED, [*source_refusals(spec.model.source, allowed), *source_references(spec, allowed)]
    yield reasons.POD_TEMPLATE_REFUSED, template_refusals(spec, allowed)


def source_refusals(source: WeightsSource | None, allowed: Allowed) -> Iterator[str]:
    """Why the owner's policy refuses a source of weights."""
    node = source.host_path if source else None
    if node and not below(node.path, allowed.host_paths):
        yield owners(f"{_SOURCE}.hostPath.path", node.path, one_of(allowed.host_paths), "hostPaths")
    token = token_of(source)
    if token and not listed(token.name, allowed.token_secrets):
        yield owners(f"{_SOURCE}: tokenSecret.name", token.name, one_of(allowed.token_secrets), "tokenSecrets")


def template_refusals(spec: VLLMServiceSpec, allowed: Allowed) -> list[str]:
    """Why a template is refused, in its order; empty when it is not."""
    if spec.pod_template is None:
        return []
    found = plain(spec.pod_template)
    size = len(json.dumps(found).encode())
    if size > LARGEST_TEMPLATE:
        return [f"{AT}: {size} bytes as JSON, at most {LARGEST_TEMPLATE} are kept; put long values into a ConfigMap"]
    token = token_of(spec.model.source)
    secrets = volumes_and_secrets(found, allowed, token.name if token else None)
    return [*ours(found), *beyond(found, allowed), *secrets, *template_references(found, allowed)]


def owners_policy(document: Any) -> PodPolicy:  # noqa: ANN401 - parsed YAML
    """The policy of an owner's document, its defaults checked for what belongs to Plimsoll.

    Raises:
        PolicyError: as ``read_policy``, or a default that no pod could have.
    """
    policy = read_policy(document)
    problems = list(ours(plain(policy.defaults)))
    if problems:
        raise PolicyError("; ".join(each.replace(AT, "defaults", 1) for each in problems))
    return policy
