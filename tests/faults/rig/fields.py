"""Every field of the spec, changed alone: what it is changed from and to, and around which other fields.

A field that changes nothing by itself stands in ``INERT`` with the reason.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.faults.world.kinds import crd_schema

Spec = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """``path`` becomes ``after``; ``before`` is None where the field is left out. ``around``: other fields, by path."""

    path: str
    before: Any
    after: Any
    around: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, value: Any) -> Spec:
        """A whole spec with the field at this value."""
        found: Spec = {"model": {"id": "Qwen/Qwen3-8B"}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}
        for path, other in self.around.items():
            put(found, path, other)
        put(found, self.path, value)
        return found


def put(spec: Spec, path: str, value: Any) -> None:
    """Set a field by its path; None removes it."""
    *above, last = path.split(".")
    at = spec
    for step in above:
        at = at.setdefault(step, {})
    if value is None:
        at.pop(last, None)
    else:
        at[last] = value


_LOAD: Final = {"load.concurrency": 8, "load.promptTokens": 1000, "load.outputTokens": 200}
_PVC: Final = {"model.source.pvc.claimName": "weights", "model.source.pvc.path": "a"}
_IMAGE: Final = {"model.source.image.reference": "registry/weights:1"}
_SPECULATIVE: Final = {"engine.speculative.method": "NGram", "engine.speculative.tokens": 3}
_HUB: Final = {"model.source.hub.revision": "main"}

CHANGES: Final = (
    Change("model.id", "Qwen/Qwen3-8B", "Qwen/Qwen3-4B"),
    Change("model.textOnly", False, True, {"model.id": "Qwen/Qwen3.5-9B"}),
    Change("model.ropeScaling", "None", "YaRN"),
    Change("model.configRef.name", "one", "other", {"model.configRef.key": "config.json"}),
    Change("model.configRef.key", "config.json", "other.json", {"model.configRef.name": "one"}),
    Change("model.source.hub.revision", "main", "v2"),
    Change("model.source.hub.tokenSecret.name", "hf-a", "hf-b", _HUB),
    Change("model.source.hub.tokenSecret.key", "token", "other", {**_HUB, "model.source.hub.tokenSecret.name": "hf-a"}),
    Change("model.source.pvc.claimName", "weights", "other", {"model.source.pvc.path": "a"}),
    Change("model.source.pvc.path", "a", "b", _PVC),
    Change("model.source.pvc.readOnly", False, True, _PVC),
    Change("model.source.hostPath.path", "/weights/a", "/weights/b"),
    Change("model.source.image.reference", "registry/weights:1", "registry/weights:2"),
    Change("model.source.image.path", "a", "b", _IMAGE),
    Change("model.source.image.pullPolicy", "Always", "IfNotPresent", _IMAGE),
    Change("hardware.gpu", "NVIDIA-L40S", "NVIDIA-H100-80GB-HBM3"),
    Change("hardware.gpus", ["NVIDIA-L40S"], ["NVIDIA-H100-80GB-HBM3"], {"hardware.gpu": None}),
    Change("hardware.maxGPUs", 8, 2, {"scaling.mode": "Fixed", "replicas": 4}),
    Change("contextTokens", 8192, 16384),
    Change("load.concurrency", 8, 800, _LOAD),
    Change("load.requestsPerSecond", 1, 90, _LOAD),
    Change("load.promptTokens", 1000, 4000, _LOAD),
    Change("load.outputTokens", 200, 2000, _LOAD),
    Change("load.promptTokensP95", 1000, 7000, _LOAD),
    Change("load.outputTokensP95", 200, 4000, _LOAD),
    Change("load.sharedPrefixTokens", 0, 900, _LOAD),
    Change("slo.ttft", "10s", "100ms", _LOAD),
    Change("slo.itl", "500ms", "5ms", _LOAD),
    Change("objective", "Throughput", "Latency", _LOAD),
    Change("scaling.mode", "Fixed", "External"),
    Change("scaling.minReplicas", 1, 3),
    Change("scaling.maxReplicas", 8, 2, {"load.concurrency": 900, "load.promptTokens": 4000, "load.outputTokens": 500}),
    Change("scaling.activation.query", "gateway", "other", {"scaling.minReplicas": 0}),
    Change("engine.version", "0.32.0", "0.28.0"),
    Change("engine.image", None, "registry/vllm:1", {"engine.version": "0.32.0"}),
    Change("engine.extraArgs", [], ["--max-num-seqs=64"]),
    Change("engine.lora.maxLoras", 1, 4, {"engine.lora.maxRank": 16}),
    Change("engine.lora.maxRank", 16, 64, {"engine.lora.maxLoras": 1}),
    Change("engine.lora.modules", [], [{"name": "a", "path": "org/adapter"}], {"engine.lora.maxLoras": 1}),
    Change("engine.speculative.method", "NGram", "MTP", {**_SPECULATIVE, "model.id": "Qwen/Qwen3.5-9B"}),
    Change("engine.speculative.model", "a/b", "c/d", {**_SPECULATIVE, "engine.speculative.method": "Eagle3"}),
    Change("engine.speculative.tokens", 3, 5, _SPECULATIVE),
    Change("engine.speculative.acceptedTokensPerStep", 1, 3, {**_SPECULATIVE, **_LOAD, "slo.itl": "50ms"}),
    Change("engine.kvOffload.hostMemory", "4Gi", "8Gi"),
    Change("engine.security", "Restricted", "Baseline"),
    Change("engine.sharedMemory", "2Gi", "4Gi"),
    Change("startup.timeout", "20m", "30m"),
    Change("drain.timeout", "1m", "2m"),
    Change("drain.endpointDelay", "5s", "15s"),
    Change("podTemplate", {"metadata": {"labels": {"team": "a"}}}, {"metadata": {"labels": {"team": "b"}}}),
    Change("replicas", 1, 3, {"scaling.mode": "Fixed"}),
    Change("className", None, "another"),
    Change("mode", "Act", "Shadow"),
)

INERT: Final[Mapping[str, str]] = {
    "slo.percentile": "which percentile is measured; it changes nothing before there is traffic",
    "scaling.activation.idleAfter": "how long without requests before the last replica goes",
    "tuning.mode": "who turns a setting, once something limits the service",
    "tuning.allow": "which settings are tried by themselves, once something limits the service",
    "tuning.qualityGate.threshold": "counts once fp8 KV is tried",
    "tuning.qualityGate.timeout": "counts once fp8 KV is tried",
    "tuning.qualityGate.podTemplate": "counts once fp8 KV is tried",
    "tuning.freeze": "when nothing is tried by itself, once something limits the service",
    "tuning.load": "counts once there were days of traffic",
    "rollout.noSpareGPU": "counts in a roll-out that finds no spare GPU",
    "routing.endpointPicker.service": "counts where InferencePools are served",
    "routing.endpointPicker.port": "counts where InferencePools are served",
    "routing.endpointPicker.failureMode": "counts where InferencePools are served",
    **{
        f"model.source.{kind}.{name}": "a token is for the hub, and refused beside anything else"
        for kind in ("pvc", "hostPath")
        for name in ("tokenSecret.name", "tokenSecret.key", "revision")
    },
}


def paths() -> set[str]:
    """Every field of the spec; a pod template counts as one."""
    return {*_paths(crd_schema()["properties"]["spec"], "")}


def _paths(schema: Mapping[str, Any], at: str) -> Iterator[str]:
    properties = {} if at.endswith("podTemplate") else schema.get("properties") or {}
    if not properties:
        yield at
    for name, inner in properties.items():
        yield from _paths(inner, f"{at}.{name}".strip("."))
