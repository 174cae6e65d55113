"""Plans of bundled models, asked for in one line."""

from collections.abc import Mapping
from typing import Any

from plimsoll.api.parse import parse_service
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.request import minimum_replicas

L4, L40S, A30 = "NVIDIA-L4", "NVIDIA-L40S", "NVIDIA-A30"
A100, H100, H200, B200 = "NVIDIA-A100-SXM4-80GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H200", "NVIDIA-B200"


def spec_of(model: str, gpu: str | list[str], context: int, max_gpus: int = 8, **fields: Any) -> VLLMServiceSpec:
    gpus = {"gpu": gpu} if isinstance(gpu, str) else {"gpus": gpu}
    text_only = fields.pop("textOnly", False)
    source = fields.pop("source", None)
    rope = {"ropeScaling": fields.pop("ropeScaling")} if "ropeScaling" in fields else {}
    extra = fields.pop("args", [])
    engine = {**fields.pop("engine", {}), **({"extraArgs": extra} if extra else {})}
    spec = {
        "model": {"id": model, "textOnly": text_only, **rope, **({"source": source} if source else {})},
        "hardware": {**gpus, "maxGPUs": max_gpus},
        "contextTokens": context,
        **({"engine": engine} if engine else {}),
        **fields,
    }
    manifest = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VLLMService",
        "metadata": {"name": "case"},
        "spec": spec,
    }
    return parse_service(manifest).spec


def answer(
    model: str,
    gpu: str | list[str],
    context: int,
    max_gpus: int = 8,
    *,
    config: ModelConfig | None = None,
    inventory: Inventory | None = None,
    **fields: Any,
) -> Plan | Refusal:
    spec = spec_of(model, gpu, context, max_gpus, **fields)
    known = config or bundled_config(model)
    return plan_service(spec, minimum_replicas(spec), known, inventory or Inventory())


def plan(*args: Any, **fields: Any) -> Plan:
    found = answer(*args, **fields)
    assert isinstance(found, Plan), found
    return found


def refusal(*args: Any, **fields: Any) -> Refusal:
    found = answer(*args, **fields)
    assert isinstance(found, Refusal), found
    return found


def flags(found: Plan) -> Mapping[str, str]:
    """Arguments by name; a switch is followed by the next flag, which nobody asks for."""
    words = found.choice.args
    return dict(zip(words, (*words[1:], ""), strict=True))


def load(
    concurrency: int | None = None, rate: float | None = None, prompt: int = 2000, output: int = 400
) -> dict[str, Any]:
    asked: dict[str, Any] = {"promptTokens": prompt, "outputTokens": output}
    if concurrency:
        asked["concurrency"] = concurrency
    if rate:
        asked["requestsPerSecond"] = rate
    return asked
