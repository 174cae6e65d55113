"""What a pod template is told, asked for in one line."""

from typing import Any

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.podtemplate.check import template_refusals
from plimsoll.core.policy import read_policy
from tests.unit.core.manifests.rendering import SPEC

TOKEN = {"source": {"hub": {"tokenSecret": {"name": "hf-token"}}}}


def spec_of(template: dict[str, Any], **fields: Any) -> VLLMServiceSpec:
    model = {**SPEC["model"], **fields.pop("model", {})}
    return VLLMServiceSpec.model_validate({**SPEC, **fields, "model": model, "podTemplate": template})


def refusals(pod: dict[str, Any], allow: dict[str, Any] | None = None, **fields: Any) -> list[str]:
    """Why ``spec.podTemplate.spec`` is refused under a policy."""
    return template_refusals(spec_of({"spec": pod}, **fields), read_policy({"allow": allow or {}}).allow)


def sidecar(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "side", "image": "side:1", **fields}]}


def on_engine(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "vllm", **fields}]}


def volume(**kind: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "data", **kind}]}
