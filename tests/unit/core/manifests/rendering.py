"""Pod templates of small services, asked for in one line."""

from typing import Any

from plimsoll.core import rollout
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.policy import PodPolicy, read_policy
from plimsoll.core.request import Request, read_request

SPEC: dict[str, Any] = {
    "model": {"id": "Qwen/Qwen3-8B"},
    "hardware": {"gpu": "NVIDIA-L40S", "maxGPUs": 4},
    "contextTokens": 8192,
}


def request(annotations: dict[str, str] | None = None, **fields: Any) -> Request:
    """A service's request; ``model`` and ``engine`` are merged into the small spec's."""
    spec = {**SPEC, **fields, "model": {**SPEC["model"], **fields.get("model", {})}}
    meta = {"namespace": "ns", "name": "svc", "uid": "u", "generation": 1, "annotations": annotations or {}}
    return read_request({"metadata": meta, "spec": spec})


OPEN = read_policy({"allow": {"hostPaths": ["/mnt"]}})
"""A policy that lets a node's folder be used."""


def planned(asked: Request, config: ModelConfig | None = None, policy: PodPolicy = OPEN) -> Plan:
    known = config or bundled_config(asked.spec.model.id)
    found = plan_service(asked.spec, 1, known, Inventory(policy=policy))
    assert isinstance(found, Plan), found
    return found


def template(config: ModelConfig | None = None, policy: PodPolicy = OPEN, **fields: Any) -> dict[str, Any]:
    asked = request(**fields)
    return dict(rollout.render(asked, planned(asked, config, policy), 1).template)


def pod(**fields: Any) -> dict[str, Any]:
    """The pod's spec."""
    found: dict[str, Any] = template(**fields)["spec"]
    return found


def engine(**fields: Any) -> dict[str, Any]:
    """The engine's container."""
    found: dict[str, Any] = pod(**fields)["containers"][0]
    return found


def env(container: dict[str, Any]) -> dict[str, Any]:
    """Variables by name: the value, or where it comes from."""
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
