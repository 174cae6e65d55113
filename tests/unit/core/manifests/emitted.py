"""Command lines of engine containers: what the planner writes for every release, over services of every kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from plimsoll.core import rollout
from plimsoll.core.manifests.nodes import node_templates
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.facts import engines
from tests.unit.core.manifests.rendering import OPEN, request

H100, L40S, B200 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S", "NVIDIA-B200"
_LORA: Final = {"maxLoras": 4, "maxRank": 64, "modules": [{"name": "sql", "path": "acme/sql"}]}
_SLO: Final[dict[str, Any]] = {
    "slo": {"ttft": "2s", "itl": "45ms"},
    "load": {"concurrency": 8, "promptTokens": 2000, "outputTokens": 400},
}


def _service(
    model: str, gpu: str, gpus: int = 8, engine: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    hardware = {"gpu": gpu, "maxGPUs": gpus}
    source = fields.pop("of_model", {})
    return {
        "hardware": hardware,
        "engine": engine or {},
        "contextTokens": 8192,
        "model": {"id": model, **source},
        **fields,
    }


_VARIABLES: Final = {"LWS_WORKER_INDEX": "1", "LWS_LEADER_ADDRESS": "svc-0.svc"}


SERVICES: Final[dict[str, dict[str, Any]]] = {
    "one GPU, parsers of reasoning and tools": _service("Qwen/Qwen3-8B", L40S),
    "targets": _service("Qwen/Qwen3-8B", L40S, **_SLO),
    "several ranks": _service("Qwen/Qwen3-32B", L40S),
    "gated delta nets": _service("Qwen/Qwen3.5-9B", H100),
    "windows and sinks": _service("openai/gpt-oss-120b", H100),
    "windows without a tower": _service("google/gemma-3-27b-it", H100, of_model={"textOnly": True}),
    "latent attention and experts": _service("deepseek-ai/DeepSeek-V3", B200, 16),
    "a vision tower left out": _service("Qwen/Qwen3-VL-8B-Instruct", L40S, of_model={"textOnly": True}),
    "a pooling model": _service("Qwen/Qwen3-Embedding-8B", L40S),
    "several nodes": _service("deepseek-ai/DeepSeek-V3", H100, 16),
    "adapters": _service("Qwen/Qwen3-8B", H100, engine={"lora": _LORA}),
    "a draft": _service(
        "Qwen/Qwen3-8B", H100, engine={"speculative": {"method": "DraftModel", "model": "Qwen/Qwen3-0.6B", "tokens": 3}}
    ),
    "a second tier": _service("Qwen/Qwen3-8B", H100, engine={"kvOffload": {"hostMemory": "8Gi"}}),
    "stretched positions": _service(
        "Qwen/Qwen3-8B", H100, of_model={"ropeScaling": "YaRN"}, contextTokens=60_000
    ),
    "a revision": _service("Qwen/Qwen3-8B", H100, of_model={"source": {"hub": {"revision": "main"}}}),
    "fp8 KV, no caching, no chunks": _service(
        "Qwen/Qwen3-8B", H100,
        engine={"extraArgs": ["--kv-cache-dtype", "fp8", "--no-enable-prefix-caching", "--no-enable-chunked-prefill"]},
    ),
    "engines of one replica": _service(
        "deepseek-ai/DeepSeek-V3", B200, engine={"extraArgs": ["--data-parallel-size", "8", "--enable-expert-parallel"]}
    ),
    "ranks of contexts": _service(
        "deepseek-ai/DeepSeek-V3", B200,
        engine={"extraArgs": ["--decode-context-parallel-size", "2", "--tensor-parallel-size", "8"]},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class CommandLine:
    """What one container of one service is started with, model first."""

    version: str
    service: str
    argv: tuple[str, ...]


@cache
def emitted() -> tuple[CommandLine, ...]:
    """All of them, every recorded release; a service that a release cannot run is left out."""
    return tuple(line for version in engines.RECORDED for name in SERVICES for line in _lines(version, name))


def _lines(version: str, name: str) -> Iterator[CommandLine]:
    fields = SERVICES[name]
    asked = request(**{**fields, "engine": {**fields["engine"], "version": version}})
    found = plan_service(asked.spec, 1, bundled_config(asked.spec.model.id), Inventory(policy=OPEN))
    if not isinstance(found, Plan):
        return
    template = dict(rollout.render(asked, found, 1).template)
    nodes = found.choice.nodes_per_replica
    pods = [template] if nodes == 1 else [*_both(node_templates(template, "svc", nodes))]
    for pod in pods:
        yield CommandLine(version, name, tuple(map(_as_the_kubelet, pod["spec"]["containers"][0]["args"])))


def _as_the_kubelet(word: str) -> str:
    """References to variables replaced, as when the container starts."""
    for name, value in _VARIABLES.items():
        word = word.replace(f"$({name})", value)
    return word


def _both(templates: Any) -> tuple[dict[str, Any], ...]:
    return (templates.leader, templates.worker)
