"""Helm values: those of the vLLM production stack as its chart reads them, others as far as they show a container."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from plimsoll.core.workloads.candidates import Candidate, Scope
from plimsoll.core.workloads.shell import words_of
from plimsoll.core.workloads.tree import Tree, at, entries, part, text, walk, whole

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
_ARGUMENTS: Final = ("args", "extraArgs", "vllmArgs", "vllmExtraArgs", "additionalArgs", "engineArgs")
LONGEST_YAML: Final = 1 << 20


def values_of(document: Tree) -> tuple[Tree, str] | None:
    """(values, their path) of a values file, or of a release that carries values; None for other objects."""
    kind = document.get("kind")
    if kind is None:
        return document, ""
    if kind == "HelmRelease":
        return part(document, "spec", "values"), "spec.values"
    if kind == "HelmChart":
        return _loaded(text(document, "spec", "valuesContent")), "spec.valuesContent"
    if kind == "Application":
        source = part(document, "spec", "source", "helm")
        if part(source, "valuesObject"):
            return part(source, "valuesObject"), "spec.source.helm.valuesObject"
        return _loaded(text(source, "values")), "spec.source.helm.values"
    return None


def values_candidates(document: Tree) -> list[Candidate]:
    """Engines in Helm values."""
    found = values_of(document)
    if found is None:
        return []
    values, path = found
    if _is_compose(values):
        return []
    for inner_path, each in walk(values, path):
        if entries(each, STACK, "modelSpec"):
            return list(_stack(document, each, inner_path))
    return list(_others(document, values, path))


def _is_compose(values: Tree) -> bool:
    """Docker Compose: containers too, but not of Kubernetes."""
    services = part(values, "services").values()
    return any(isinstance(each, Mapping) and ("image" in each or "build" in each) for each in services)


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


def _stack(document: Tree, values: Tree, prefix: str) -> Iterator[Candidate]:
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
        "env": [*_list(model.get("env")), *_list(config.get("env")), *_stack_variables(engine, model)],
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
    terms = _list(model.get("nodeSelectorTerms"))
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


def charted_exposure(document: Tree) -> tuple[str, str] | None:
    """(path, how) of what lets the outside reach the engines of a chart's values."""
    found = values_of(document)
    for path, each in walk(found[0], found[1]) if found else ():
        name = path.rpartition(".")[2]
        kind = text(each, "type") if name == "service" else text(each, "serviceType")
        if kind in {"LoadBalancer", "NodePort"}:
            return path, kind
        if name in {"ingress", "route", "httpRoute"} and each.get("enabled") is True:
            return path, name
    return None


def charted_autoscaling(document: Tree) -> str | None:
    """The path of an autoscaler on CPU in a chart's values."""
    found = values_of(document)
    for path, each in walk(found[0], found[1]) if found else ():
        if each.get("targetCPUUtilizationPercentage") and each.get("enabled", True) is True:
            return path
    return None


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
    yield from (str(word) for word in _list(config.get("extraArgs")))


def engine_flags_of(written: str, section: str = "") -> Iterator[str]:
    """The flags of a YAML file as ``--config`` reads it: ``key: value`` for each, true alone for a switch."""
    loaded = part(_loaded(written), section) if section else _loaded(written)
    for key, value in loaded.items():
        if value is True:
            yield f"--{key}"
        elif value is not False and value is not None:
            yield f"--{key}"
            yield from _flag_values(value)


def _flag_values(value: object) -> Iterator[str]:
    if isinstance(value, list):
        yield from (str(each) for each in value)
    elif isinstance(value, Mapping):
        yield json.dumps(value)
    else:
        yield str(value)


def _others(document: Tree, values: Tree, path: str) -> Iterator[Candidate]:
    """Whatever in the values has arguments, with the image and resources that stand nearest above it."""
    for each_path, each in walk(values, path):
        argument = next((key for key in (*_ARGUMENTS, "command") if isinstance(each.get(key), list | str)), None)
        if argument is None or "containers" in each:
            continue
        above = _above(values, path, each_path)
        image = _image(next((node["image"] for node in above if node.get("image")), None))
        args = each.get(argument) if argument != "command" else None
        container = {
            **{key: node[key] for node in reversed(above) for key in _CONTAINER_FIELDS if key in node},
            **_probes(above),
            "image": image,
            "command": words_of(each.get("command")),
            "args": words_of(args),
        }
        yield Candidate(
            document, container, each_path or argument, _pod(above), path, scope=_scope(each_path),
            replicas=_replicas(above),
        )  # fmt: skip


_CONTAINER_FIELDS: Final = ("env", "envFrom", "resources", "volumeMounts", "lifecycle", "securityContext")


_STRATEGIES: Final = ("deploymentStrategy", "updateStrategy", "rolloutStrategy")


def _probes(above: list[Tree]) -> dict[str, Any]:
    """Probes by Kubernetes' names, or below ``probes`` by their short ones."""
    found: dict[str, Any] = {}
    for node in reversed(above):
        for short in ("startup", "liveness", "readiness"):
            probe = at(node, f"{short}Probe") or at(node, "probes", short)
            if isinstance(probe, Mapping) and probe.get("enabled") is not False:
                found[f"{short}Probe"] = probe.get("spec", probe)
    return found


def _scope(path: str) -> Scope:
    """The app-template chart adds nothing to its containers: what is absent there is absent in the pod."""
    return "pod" if re.search(r"controllers\.[^.]+\.containers\.[^.]+$", path) else "values"


def _replicas(above: list[Tree]) -> int | None:
    return next((whole(node[key]) for node in above for key in ("replicas", "replicaCount") if key in node), None)


def _pod(above: list[Tree]) -> dict[str, Any]:
    keys = ("nodeSelector", "affinity", "terminationGracePeriodSeconds", "volumes", "tolerations", "strategy")
    found = {key: node[key] for node in reversed(above) for key in keys if key in node}
    other = next((node[key] for node in above for key in _STRATEGIES if key in node), None)
    strategy = found.get("strategy", other)
    return {**found, "strategy": {"type": strategy} if isinstance(strategy, str) else strategy}


def _above(values: Tree, root: str, path: str) -> list[Tree]:
    """The mappings from one of the tree up to its root, nearest first."""
    steps = path[len(root) :].lstrip(".").replace("[", ".[").split(".") if path != root else []
    node: object = values
    found: list[Tree] = [values]
    for step in steps:
        if step.startswith("[") and isinstance(node, list):
            node = node[int(step[1:-1])]
        elif isinstance(node, Mapping):
            node = node.get(step)
        if isinstance(node, Mapping):
            found.insert(0, node)
    return found


def _image(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping):
        return None
    name = "/".join(filter(None, (text(value, "registry"), text(value, "repository") or text(value, "name"))))
    tag = text(value, "tag")
    digest = text(value, "digest")
    return (f"{name}@{digest}" if digest else f"{name}:{tag}" if tag is not None else name) if name else None


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _loaded(written: str | None) -> Tree:
    if not written or len(written) > LONGEST_YAML:
        return {}
    try:
        found = yaml.safe_load(written)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
