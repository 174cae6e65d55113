"""Manifests that are right and wrong, for the tests of this process and of the API server alike."""

from pathlib import Path
from typing import Any

import yaml

from plimsoll.api.schema import resource_schema

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES: dict[str, dict[str, Any]] = {
    f"{file.stem}/{document['metadata']['name']}": document
    for file in sorted((ROOT / "examples").glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    if document["kind"] == "VLLMService"
}


def _rules(node: dict[str, Any]) -> dict[str, str]:
    inner = [node[key] for key in ("items", "additionalProperties") if key in node]
    below = [*node.get("properties", {}).values(), *inner]
    own = {rule["message"]: rule["rule"] for rule in node.get("x-kubernetes-validations", ())}
    return {**own, **{message: cel for child in below for message, cel in _rules(child).items()}}


RULES = _rules(resource_schema())
"""Every CEL rule by its message."""


def service(**changes: Any) -> dict[str, Any]:
    """A small valid VLLMService; ``spec__hardware__gpu=...`` sets that field, None removes it."""
    manifest: dict[str, Any] = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "VLLMService",
        "metadata": {"name": "qwen-docs", "namespace": "llm"},
        "spec": {
            "model": {"id": "Qwen/Qwen3.5-9B"},
            "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3"},
            "contextTokens": 131_072,
        },
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        node = manifest
        for parent in parents:
            node = node.setdefault(parent, {})
        if value is None:
            node.pop(last, None)
        else:
            node[last] = value
    return manifest


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # manifest, path to blame, part of the message
    (service(metadata__name="qwen3.5-9b"), "metadata.name", "qwen3.5-9b is not valid"),
    (service(metadata__name="a" * 51), "metadata.name", "at most 50 characters"),
    (service(metadata__name="9b"), "metadata.name", "first a letter"),
    (service(metadata__name="qwen\n"), "metadata.name", "DNS-1035"),
    (service(kind="Service"), "kind", "must be 'VLLMService'"),
    (service(spec=None), "spec", "is required"),
    (service(spec__model=None), "spec.model", "is required"),
    (service(spec__model__id="two words"), "spec.model.id", "for example Qwen/Qwen3.5-9B"),
    (service(spec__model__id="a/b/c"), "spec.model.id", "must match"),
    (service(spec__model__id="a" * 257), "spec.model.id", "at most 256 characters"),
    (service(spec__contextTokens="131072"), "spec.contextTokens", "must be a whole number"),
    (service(spec__contextTokens=True), "spec.contextTokens", "must be a whole number"),
    (service(spec__contextTokens=0), "spec.contextTokens", "must be at least 1"),
    (service(spec__contextTokens=16_777_217), "spec.contextTokens", "must be at most 16777216"),
    (service(spec__hardware__gpu=None), "spec.hardware", "exactly one of the two"),
    (service(spec__hardware__gpus=["NVIDIA-L4"]), "spec.hardware", "exactly one of the two"),
    (service(spec__hardware={"gpus": []}), "spec.hardware.gpus", "must not be empty"),
    (service(spec__hardware={"gpus": ["L4", "L4"]}), "spec.hardware.gpus", "must not name anything twice"),
    (service(spec__hardware={"gpus": ["ok", "not ok"]}), "spec.hardware.gpus[1]", "must match"),
    (service(spec__hardware__maxGPUs=0), "spec.hardware.maxGPUs", "must be at least 1"),
    (service(spec__load__concurrency=0), "spec.load.concurrency", "must be at least 1"),
    (service(spec__load__requestsPerSecond=0), "spec.load.requestsPerSecond", "must be more than 0"),
    (service(spec__load={"promptTokens": 10, "sharedPrefixTokens": 11}), "spec.load.sharedPrefixTokens", "prompt"),
    (service(spec__load={"promptTokens": 131_072, "outputTokens": 1}), "spec.load", "must not exceed contextTokens"),
    (service(spec__slo__ttft="0.0s"), "spec.slo.ttft", "longer than 0"),
    (service(spec__slo__itl="50"), "spec.slo.itl", "for example 50ms"),
    (service(spec__slo__itl=50), "spec.slo.itl", "must be text"),
    (service(spec__slo__percentile=100), "spec.slo.percentile", "must be at most 99"),
    (service(spec__objective="Cheap"), "spec.objective", "'Latency', 'Throughput' or 'Balanced'"),
    (service(spec__scaling={"minReplicas": 3, "maxReplicas": 2}), "spec.scaling.minReplicas", "maxReplicas"),
    (service(spec__scaling__minReplicas=0), "spec.scaling.minReplicas", "needs activation.query"),
    (service(spec__scaling__maxReplicas=9), "spec.scaling.maxReplicas", "must not exceed hardware.maxGPUs"),
    (service(spec__scaling__minReplicas=9), "spec.scaling.minReplicas", "must not exceed hardware.maxGPUs"),
    (service(spec__tuning__allow=["Everything"]), "spec.tuning.allow[0]", "'MaxNumSeqs'"),
    (service(spec__tuning__freeze=[{}]), "spec.tuning.freeze[0].timeZone", "is required"),
    (
        service(spec__tuning__freeze=[{"timeZone": "Etc/UTC", "from": "8:00"}]),
        "spec.tuning.freeze[0].from",
        "for example 08:00",
    ),
    (
        service(
            spec__tuning__freeze=[{"timeZone": "Etc/UTC"}, {"timeZone": "Etc/UTC", "from": "07:00", "to": "07:00"}]
        ),
        "spec.tuning.freeze[1].to",
        "must differ",
    ),
    (
        service(spec__tuning__freeze=[{"timeZone": "Etc/UTC", "days": ["Friday", "Mon"]}]),
        "spec.tuning.freeze[0].days[1]",
        "'Monday'",
    ),
    (
        service(spec__tuning__freeze=[{"timeZone": "Etc/UTC", "days": ["Monday", "Monday"]}]),
        "spec.tuning.freeze[0].days",
        "must not name anything twice",
    ),
    (
        service(spec__tuning__freeze=[{"timeZone": "../../etc/passwd"}]),
        "spec.tuning.freeze[0].timeZone",
        "for example Europe/Berlin",
    ),
    (service(spec__engine__version="v0.32.0"), "spec.engine.version", "for example 0.32.0"),
    (service(spec__engine__extraArgs="--enforce-eager"), "spec.engine.extraArgs", "must be a list"),
    (service(spec__engine__extraArgs=[""]), "spec.engine.extraArgs[0]", "must not be empty"),
    (service(spec__engine__extraArgs=["-x"] * 65), "spec.engine.extraArgs", "at most 64 entries"),
    (service(spec__model__source={}), "spec.model.source", "exactly one of hub, pvc, hostPath and image"),
    (
        service(spec__model__source={"hub": {}, "pvc": {"claimName": "models"}}),
        "spec.model.source",
        "exactly one of hub, pvc, hostPath and image",
    ),
    (
        service(spec__model__source={"pvc": {"claimName": "models", "path": "qwen", "tokenSecret": {"name": "hf"}}}),
        "spec.model.source.pvc.path",
        "are not fetched",
    ),
    (service(spec__model__source={"pvc": {"claimName": "m", "path": "../m"}}), "spec.model.source.pvc.path", "match"),
    (service(spec__model__source={"pvc": {"path": "m"}}), "spec.model.source.pvc.claimName", "is required"),
    (service(spec__model__source={"hostPath": {"path": "/a/../b"}}), "spec.model.source.hostPath.path", "match"),
    (
        service(spec__model__id="/models/qwen", spec__model__source={"hub": {}}),
        "spec.model.source",
        "is a path in the engine's image",
    ),
    (service(spec__podTemplate={"spec": {"containers": [{}]}}), "spec.podTemplate.spec.containers[0].name", "required"),
    (
        service(spec__podTemplate={"spec": {"env": [{"name": "A=B", "value": "x"}]}}),
        "spec.podTemplate.spec.env[0].name",
        "must match",
    ),
    (
        service(spec__podTemplate={"metadata": {"labels": {"team": "a b"}}}),
        "spec.podTemplate.metadata.labels.team",
        "must match",
    ),
    (
        service(spec__podTemplate={"spec": {"resources": {"limits": {"memory": "lots"}}}}),
        "spec.podTemplate.spec.resources.limits.memory",
        "must be an amount such as",
    ),
    (service(spec__drain__timeout="0s"), "spec.drain.timeout", "longer than 0"),
    (service(spec__engine__sharedMemory="0"), "spec.engine.sharedMemory", "must match"),
    (service(spec__engine__security="Privileged"), "spec.engine.security", "'Restricted' or 'Baseline'"),
    (service(spec__model__ropeScaling="Linear"), "spec.model.ropeScaling", "'None' or 'YaRN'"),
    (service(spec__load={"promptTokensP95": 10}), "spec.load.promptTokensP95", "needs promptTokens beside it"),
    (service(spec__load={"promptTokens": 10, "promptTokensP95": 9}), "spec.load.promptTokensP95", "must not be less"),
    (service(spec__load={"outputTokens": 10, "outputTokensP95": 9}), "spec.load.outputTokensP95", "must not be less"),
    (service(spec__load={"outputTokens": 9, "outputTokensP95": 131_072}), "spec.load", "less than contextTokens"),
    (service(spec__engine__lora={"maxRank": 24}), "spec.engine.lora.maxRank", "must be 8, 16, 32"),
    (service(spec__engine__lora={"maxLoras": 0}), "spec.engine.lora.maxLoras", "must be at least 1"),
    (
        service(spec__engine__lora={"modules": [{"name": "sql", "path": "a/b"}, {"name": "sql", "path": "a/c"}]}),
        "spec.engine.lora.modules",
        "must not name anything twice",
    ),
    (service(spec__engine__lora={"modules": [{"name": "a=b", "path": "a"}]}), "spec.engine.lora.modules[0].name", "m"),
    (service(spec__engine__speculative={"method": "MTP"}), "spec.engine.speculative.tokens", "is required"),
    (
        service(spec__engine__speculative={"method": "Eagle3", "tokens": 3}),
        "spec.engine.speculative.model",
        "model names the draft of Eagle, Eagle3 and DraftModel",
    ),
    (
        service(spec__engine__speculative={"method": "NGram", "tokens": 3, "model": "a/b"}),
        "spec.engine.speculative.model",
        "MTP and NGram have none",
    ),
    (
        service(spec__engine__speculative={"method": "MTP", "tokens": 1, "acceptedTokensPerStep": 2.5}),
        "spec.engine.speculative.acceptedTokensPerStep",
        "must not exceed tokens + 1",
    ),
    (service(spec__engine__kvOffload={"hostMemory": "many"}), "spec.engine.kvOffload.hostMemory", "must match"),
    (service(spec__replicas=-1), "spec.replicas", "must be at least 0"),
    (service(spec__mode="Observe"), "spec.mode", "'Act' or 'Shadow'"),
]

ACCEPTED = [
    service(spec__replicas=0, spec__scaling__mode="Fixed"),
    service(spec__model__id="gpt2"),
    service(spec__model__id="/models/qwen_3/v1.0"),
    service(spec__hardware={"gpus": ["NVIDIA-L40S", "NVIDIA-L4"], "maxGPUs": 1}),
    service(spec__load={"concurrency": 1, "requestsPerSecond": 1}),
    service(spec__load={"promptTokens": 131_071, "outputTokens": 1}),
    service(spec__load={"sharedPrefixTokens": 200_000}),
    service(spec__slo__ttft="1.5s"),
    service(spec__engine={"image": "registry.example.com:5000/vllm@sha256:0a"}),
    service(spec__engine__version="0.32.0rc1"),
    service(spec__model__source={"hub": {"tokenSecret": {"name": "hf"}, "revision": "refs/pr/3"}}),
    service(spec__model__source={"pvc": {"claimName": "models", "path": "qwen/3.5-9b", "readOnly": True}}),
    service(spec__model__source={"hostPath": {"path": "/mnt/nvme/models"}}),
    service(spec__model__source={"image": {"reference": "registry.example.com/qwen@sha256:0a", "path": "weights"}}),
    service(spec__drain={"timeout": "20m", "endpointDelay": "15s"}, spec__startup={"timeout": "45m"}),
    service(spec__engine={"security": "Baseline", "sharedMemory": "16Gi"}),
    service(
        spec__podTemplate={
            "metadata": {"labels": {"team": "search"}, "annotations": {"note": "any text: at all"}},
            "spec": {
                "containers": [
                    {"name": "vllm", "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]},
                    {"name": "proxy", "image": "proxy:1", "livenessProbe": {"httpGet": {"path": "/", "port": 9000}}},
                ],
                "resources": {"requests": {"cpu": 4, "memory": "32Gi"}},
                "volumes": [{"name": "data", "configMap": {"name": "data", "items": [{"key": "a", "path": "b"}]}}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
                "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            },
        }
    ),
    service(spec__model__ropeScaling="YaRN"),
    service(spec__load={"promptTokens": 10, "promptTokensP95": 10, "outputTokens": 1, "outputTokensP95": 131_071}),
    service(spec__engine__lora={"maxLoras": 2, "maxRank": 32, "modules": [{"name": "sql", "path": "/adapters/sql"}]}),
    service(spec__engine__speculative={"method": "MTP", "tokens": 1, "acceptedTokensPerStep": 2}),
    service(spec__engine__speculative={"method": "DraftModel", "tokens": 3, "model": "Qwen/Qwen3-0.6B"}),
    service(spec__engine__kvOffload={"hostMemory": "64Gi"}),
    service(metadata__name="a"),
]
