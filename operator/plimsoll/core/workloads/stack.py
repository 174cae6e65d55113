"""The vLLM production stack: its chart's values, and its operator's fields, as they become a command line."""

from collections.abc import Iterator
from typing import Any, Final

from plimsoll.core.workloads.candidates import Candidate
from plimsoll.core.workloads.helm import values_of
from plimsoll.core.workloads.tree import Tree, as_list, at, entries, part, text, walk, whole

STACK: Final = "servingEngineSpec"


_STACK_TOP: Final = frozenset(
    {"servingEngineSpec", "routerSpec", "cacheserverSpec", "loraController", "sharedStorage", "global", "grafana",
     "kube-prometheus-stack", "prometheus-adapter", "loraAdapters", "nameOverride", "fullnameOverride",
     "serviceMonitor", "lmcacheController", "operator", "monitoring", "extraManifests", "commonLabels"}
)  # fmt: skip


_VLLM_CONFIG: Final = (
    "maxModelLen", "dtype", "tensorParallelSize", "pipelineParallelSize", "maxNumSeqs", "gpuMemoryUtilization",
    "maxLoras", "extraArgs", "enableChunkedPrefill", "enablePrefixCaching",
)  # fmt: skip


def ignored_keys(document: Tree) -> list[tuple[str, str]]:
    """(path, why) of what the production stack's chart silently passes over."""
    found = values_of(document)
    values = found[0] if found else {}
    if STACK not in values:
        return []
    ignored = [(key, f"{key}: the chart has no such value") for key in values if key not in _STACK_TOP]
    for index, model in enumerate(entries(values, STACK, "modelSpec")):
        at_path = f"{STACK}.modelSpec[{index}]"
        misplaced = [key for key in _VLLM_CONFIG if key in model]
        ignored += [(f"{at_path}.{key}", f"{key} belongs below vllmConfig") for key in misplaced]
        if "shmSize" in model and "tensorParallelSize" not in part(model, "vllmConfig"):
            ignored.append((f"{at_path}.shmSize", "the chart mounts /dev/shm only when tensorParallelSize is set"))
    return ignored


def stack_candidates(document: Tree, values: Tree, prefix: str) -> Iterator[Candidate]:
    """Engines as the production stack's chart makes them (``helm/templates/deployment-vllm-multi.yaml``)."""
    engine = part(values, STACK)
    base = f"{prefix}.{STACK}" if prefix else STACK
    for index, model in enumerate(entries(engine, "modelSpec")):
        path = f"{base}.modelSpec[{index}]"
        yield Candidate(
            document,
            _stack_container(engine, model),
            path,
            _stack_pod(engine, model),
            base,
            scope="values",
            argv=tuple(_stack_argv(engine, model)),
            gpus=whole(model.get("requestGPU")),
            replicas=whole(model.get("replicaCount")),
            replicas_path=f"{path}.replicaCount",
        )


def _stack_argv(engine: Tree, model: Tree) -> Iterator[str]:
    port = text(engine, "containerPort") or "8000"
    yield from (text(model, "modelURL") or "", "--host", "0.0.0.0", "--port", port)  # noqa: S104 - what the chart writes
    yield from stack_model_flags(model)
    yield from spec_flags(part(model, "vllmConfig"))
    if text(model, "chatTemplate"):
        yield from ("--chat-template", f"/templates/{model['chatTemplate']}")


def stack_model_flags(model: Tree) -> Iterator[str]:
    """LoRA and tools, which stand beside ``vllmConfig``."""
    if model.get("enableLoRA") is True:
        yield "--enable-lora"
    if model.get("enableTool") is True:
        yield "--enable-auto-tool-choice"
    if text(model, "toolCallParser"):
        yield from ("--tool-call-parser", str(model["toolCallParser"]))


def _stack_container(engine: Tree, model: Tree) -> dict[str, Any]:
    repository, tag = text(model, "repository"), text(model, "tag")
    memory, config = text(model, "requestMemory"), part(model, "vllmConfig")
    container: dict[str, Any] = {
        "name": text(model, "name") or "vllm",
        "image": f"{repository}:{tag or ''}" if repository else None,
        "env": [*as_list(model.get("env")), *as_list(config.get("env")), *_stack_variables(engine, model)],
        "resources": {"requests": {"memory": memory} if memory else {}, "limits": {}},
    }
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    return container | {probe: part(engine, probe) for probe in probes if part(engine, probe)}


def _stack_variables(engine: Tree, model: Tree) -> Iterator[dict[str, Any]]:
    secret = {"secretKeyRef": {"name": "values", "key": "values"}}
    if str(at(model, "vllmConfig", "v0")) == "1":
        yield {"name": "VLLM_USE_V1", "value": "0"}
    if engine.get("vllmApiKey"):
        yield {"name": "VLLM_API_KEY", "valueFrom": secret}
    if isinstance(model.get("hf_token"), str):
        yield {"name": "HF_TOKEN", "value": model["hf_token"]}
    elif model.get("hf_token"):
        yield {"name": "HF_TOKEN", "valueFrom": secret}


def _stack_pod(engine: Tree, model: Tree) -> dict[str, Any]:
    terms = as_list(model.get("nodeSelectorTerms"))
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {
        "affinity": {"nodeAffinity": required} if terms else {},
        "nodeSelector": part(model, "nodeSelector"),
        "strategy": part(engine, "strategy"),
    }


def stack_models(document: Tree) -> list[tuple[str, Tree, Tree]]:
    """(path, model, engine) of every model of the production stack's values."""
    found = values_of(document)
    for path, each in walk(found[0], found[1]) if found else ():
        engine = part(each, STACK)
        if engine:
            base = f"{path}.{STACK}" if path else STACK
            return [(f"{base}.modelSpec[{i}]", m, engine) for i, m in enumerate(entries(engine, "modelSpec"))]
    return []


def spec_flags(config: Tree) -> Iterator[str]:
    """The production stack's ``vllmConfig`` as its templates write it, in their order."""
    for key, yes, no in (
        ("enableChunkedPrefill", "--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        ("enablePrefixCaching", "--enable-prefix-caching", "--no-enable-prefix-caching"),
    ):
        if isinstance(config.get(key), bool):
            yield yes if config[key] else no
    for key, flag in (
        ("maxModelLen", "--max-model-len"), ("dtype", "--dtype"), ("tensorParallelSize", "--tensor-parallel-size"),
        ("pipelineParallelSize", "--pipeline-parallel-size"), ("maxNumSeqs", "--max-num-seqs"),
        ("gpuMemoryUtilization", "--gpu_memory_utilization"), ("maxLoras", "--max_loras"),
    ):  # fmt: skip
        value = text(config, key)
        if value is not None:
            yield from (flag, value)
    yield from (str(word) for word in as_list(config.get("extraArgs")))
