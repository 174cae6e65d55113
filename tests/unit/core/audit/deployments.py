"""A Deployment that no rule has anything to say about, and ways to spoil it."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.cli.predict import Models
from plimsoll.core.audit.evidence import Planner
from plimsoll.core.audit.judge import Judgement, judge
from plimsoll.core.workloads.neighbours import gathered
from plimsoll.core.workloads.read import servers_of

PLANNER = Planner(Models(Path.cwd()))
ARGS = [
    "Qwen/Qwen3-8B", "--port", "8000", "--max-model-len", "16384", "--gpu-memory-utilization", "0.9",
    "--max-num-seqs", "64",
]  # fmt: skip
_HEALTH = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}
_CONTAINER: dict[str, Any] = {
    "name": "vllm",
    "image": "vllm/vllm-openai:v0.32.0",
    "args": ARGS,
    "ports": [{"name": "http", "containerPort": 8000}],
    "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}],
    "resources": {"requests": {"memory": "24Gi"}, "limits": {"memory": "32Gi", "nvidia.com/gpu": 1}},
    "startupProbe": {**_HEALTH, "periodSeconds": 10, "failureThreshold": 120},
    "livenessProbe": {**_HEALTH, "periodSeconds": 10, "failureThreshold": 6},
    "readinessProbe": dict(_HEALTH),
    "lifecycle": {"preStop": {"exec": {"command": ["sleep", "15"]}}},
    "volumeMounts": [{"name": "cache", "mountPath": "/root/.cache/huggingface"}],
}
_POD: dict[str, Any] = {
    "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    "terminationGracePeriodSeconds": 180,
    "volumes": [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache"}}],
}


def deployment(
    container: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    args: list[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The good one with some fields replaced; a field given as None is left out."""
    own = copy.deepcopy(_CONTAINER) | dict(container or {})
    if args is not None:
        own["args"] = [*ARGS, *args]
    own["env"] = [*own.get("env", ()), *({"name": name, "value": value} for name, value in (env or {}).items())]
    inner = {**copy.deepcopy(_POD), "containers": [_without_none(own)], **(pod or {})}
    base: dict[str, Any] = {
        "selector": {"matchLabels": {"app": "qwen"}},
        "strategy": {"type": "Recreate"},
        "template": {"metadata": {"labels": {"app": "qwen"}}, "spec": _without_none(inner)},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "qwen", "namespace": "llm"},
        "spec": _without_none({**base, **(spec or {})}),
    }


def beside(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    """Another object of the namespace."""
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "llm"}, **fields}


def judged(*objects: Mapping[str, Any]) -> list[Judgement]:
    """What the rules say of every server among the objects."""
    around = gathered(objects)
    return [judge(server, PLANNER) for each in objects for server in servers_of(each, around)]


def found(*objects: Mapping[str, Any]) -> dict[str, str]:
    """Messages by rule."""
    return {each.rule.id: each.message for judgement in judged(*objects) for each in judgement.findings}


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
