"""Custom resources that hold vLLM's arguments in fields of their own: KServe, KubeAI, production stack, KAITO."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from plimsoll.core.workloads.accelerators import named_product
from plimsoll.core.workloads.candidates import Candidate, candidates, containers_of
from plimsoll.core.workloads.helm import engine_flags_of
from plimsoll.core.workloads.neighbours import Neighbours
from plimsoll.core.workloads.shell import words_of
from plimsoll.core.workloads.stack import spec_flags, stack_model_flags
from plimsoll.core.workloads.tree import Tree, as_list, at, entries, part, text, whole
from plimsoll.facts import instance_types

_PROFILE: Final = re.compile(r"(?:nvidia-gpu-|amd-gpu-|google-)?(?P<gpu>[^:]+?)(?::(?P<count>\d+))?")


def customs(manifest: Tree, around: Neighbours) -> list[Candidate] | None:
    """Candidates of a kind that is known here; None for every other kind."""
    kind = str(manifest.get("kind", ""))
    reader = _READERS.get(kind)
    if reader is None or (kind == "Model" and "kubeai" not in str(manifest.get("apiVersion", ""))):
        return None
    return list(reader(manifest, around))


def _inference_service(manifest: Tree, around: Neighbours) -> Iterator[Candidate]:
    predictor = part(manifest, "spec", "predictor")
    replicas = whole(predictor.get("minReplicas"))
    if isinstance(predictor.get("containers"), list):
        yield from (
            replace(each, replicas=replicas, labels={}) for each in _pods(manifest, predictor, "spec.predictor")
        )
    model = part(predictor, "model")
    if model:
        yield from _of_model(manifest, model, predictor, replicas, around)
    elif not predictor:  # another project's kind of the same name, with a pod or arguments of its own
        yield from candidates(manifest)
        if isinstance(at(manifest, "spec", "args"), list) or isinstance(at(manifest, "spec", "extraArgs"), list):
            yield Candidate(manifest, part(manifest, "spec"), "spec", scope="operator", argv=_flat(manifest))


def _flat(manifest: Tree) -> tuple[str, ...]:
    spec = part(manifest, "spec")
    return tuple(words_of(spec.get("args")) or words_of(spec.get("extraArgs")))


def _of_model(
    manifest: Tree, model: Tree, predictor: Tree, replicas: int | None, around: Neighbours
) -> Iterator[Candidate]:
    """The runtime's container first, the model's own arguments after it, as KServe merges them."""
    runtime = around.runtimes.get(text(model, "runtime") or "")
    base = next(iter(entries(runtime.body, "spec", "containers")), {}) if runtime else {}
    if not base and (text(model, "modelFormat", "name") or "").lower() not in {"vllm", "huggingface"}:
        return
    merged = {**base, **{key: value for key, value in model.items() if key in _CONTAINER_FIELDS}}
    merged["args"] = [*as_list(base.get("args")), *words_of(model.get("args"))]
    hugging = not base and (text(model, "modelFormat", "name") or "").lower() == "huggingface"
    yield Candidate(
        manifest, merged, "spec.predictor.model", predictor, "spec.predictor", scope="operator", replicas=replicas,
        argv=tuple(_without_runtime_flags(merged["args"])) if hugging else None,
        model=_hub_id(text(model, "storageUri") or "") or None,
    )  # fmt: skip


_CONTAINER_FIELDS: Final = frozenset(
    {"image", "command", "env", "envFrom", "resources", "volumeMounts", "livenessProbe", "readinessProbe",
     "startupProbe", "ports", "lifecycle"}
)  # fmt: skip
_RUNTIME_FLAGS: Final = ("--model_id", "--model_name", "--model_dir", "--model_revision", "--backend", "--task")


def _without_runtime_flags(args: list[str]) -> Iterator[str]:
    """KServe's Hugging Face server takes flags of its own and gives the rest to vLLM."""
    words = list(args)
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if name.replace("-", "_").replace("__", "--", 1) in _RUNTIME_FLAGS or name in _RUNTIME_FLAGS:
            if not equals and words and not words[0].startswith("--"):
                words.pop(0)
            continue
        yield word


def _llm_inference_service(manifest: Tree, around: Neighbours) -> Iterator[Candidate]:  # noqa: ARG001 - one shape
    spec = part(manifest, "spec")
    model = text(spec, "model", "uri") or text(spec, "model", "name") or ""
    for path, holder in (("spec", spec), ("spec.prefill", part(spec, "prefill"))):
        template = part(holder, "template")
        for each in _pods(manifest, template, f"{path}.template"):
            yield replace(
                each, argv=_extra(each.container, holder), replicas=whole(holder.get("replicas")),
                model=_hub_id(model), nodes=1,
            )  # fmt: skip


def _extra(container: Tree, holder: Tree) -> tuple[str, ...] | None:
    """What the controller's own template passes on: VLLM_ADDITIONAL_ARGS, and the sizes of ``parallelism``."""
    own = words_of(container.get("args"))
    if container.get("command") or not isinstance(container.get("env"), list):
        return tuple(own) if own and not container.get("command") else None
    added = next(
        (text(e, "value") or "" for e in entries(container, "env") if e.get("name") == "VLLM_ADDITIONAL_ARGS"), ""
    )
    sizes = part(holder, "parallelism")
    flags = [
        ("tensor", "--tensor-parallel-size"),
        ("pipeline", "--pipeline-parallel-size"),
        ("data", "--data-parallel-size"),
    ]
    parallel = [word for key, flag in flags if whole(sizes.get(key)) for word in (flag, str(sizes[key]))]
    return (*own, *words_of(added), *parallel)


def _kubeai_model(manifest: Tree, around: Neighbours) -> Iterator[Candidate]:  # noqa: ARG001 - one shape
    spec = part(manifest, "spec")
    if (text(spec, "engine") or "VLLM").lower() != "vllm":
        return
    profile = _PROFILE.fullmatch((text(spec, "resourceProfile") or "").strip().lower())
    served = text(manifest, "metadata", "name") or ""
    url = (text(spec, "url") or "").partition("?")[0]
    model = _hub_id(url) or url
    argv = ("--model", model, "--served-model-name", served, *words_of(spec.get("args")))
    yield Candidate(
        manifest, spec, "spec", spec, "spec", scope="operator", replicas=whole(spec.get("replicas")), argv=argv,
        gpus=int(profile["count"] or 1) if profile else None,
        product=named_product(profile["gpu"]) if profile else None,
    )  # fmt: skip


def _vllm_runtime(manifest: Tree, around: Neighbours) -> Iterator[Candidate]:  # noqa: ARG001 - one shape
    """The production stack's own resource: one engine a resource."""
    spec = part(manifest, "spec")
    model, config, deployment = (part(spec, key) for key in ("model", "vllmConfig", "deploymentConfig"))
    url = text(model, "modelURL") or ""
    merged: dict[str, Any] = {
        **config,
        **{key: model[key] for key in ("maxModelLen", "dtype", "maxNumSeqs") if key in model},
    }
    head = (url, "--host", "0.0.0.0", "--port", str(config.get("port", 8000)))  # noqa: S104 - what the operator writes
    argv = (*head, *stack_model_flags(model), *spec_flags(merged))
    image = part(deployment, "image")
    resources = part(deployment, "resources")
    container = {
        "image": "/".join(filter(None, (text(image, "registry"), text(image, "name")))) or None,
        "env": config.get("env") or [],
        "resources": {"limits": resources, "requests": resources},
    }
    yield Candidate(
        manifest, container, "spec.vllmConfig", deployment, "spec.deploymentConfig", scope="operator",
        replicas=whole(deployment.get("replicas")), replicas_path="spec.deploymentConfig.replicas", argv=argv,
        gpus=whole(resources.get("gpu")),
    )  # fmt: skip


def _kaito(manifest: Tree, around: Neighbours) -> Iterator[Candidate]:
    """A workspace's own template, or a preset whose vLLM section stands in a ConfigMap."""
    inference = part(manifest, "inference")
    product = instance_types.gpu_of(text(manifest, "resource", "instanceType") or "")
    template = part(inference, "template", "spec")
    if template:
        yield from (replace(c, product=product) for c in _pods(manifest, template, "inference.template.spec"))
        return
    preset = text(inference, "preset", "name")
    if preset is None:
        return
    name = text(inference, "config") or ""
    data = around.config_map(text(manifest, "metadata", "namespace") or "", name) if name else None
    argv = tuple(engine_flags_of((data or {}).get("inference_config.yaml", ""), "vllm")) if data else None
    yield Candidate(manifest, inference, "inference", scope="operator", argv=argv, product=product, model=preset)


def _pods(manifest: Tree, pod: Tree, path: str) -> Iterator[Candidate]:
    return containers_of(manifest, pod, path, scope="operator")


def _hub_id(url: str) -> str:
    scheme, found, rest = url.partition("://")
    return rest if found and scheme in {"hf", "huggingface"} else ("" if found else url)


_READERS: Final[Mapping[str, Callable[[Tree, Neighbours], Iterator[Candidate]]]] = {
    "InferenceService": _inference_service,
    "LLMInferenceService": _llm_inference_service,
    "Model": _kubeai_model,
    "VLLMRuntime": _vllm_runtime,
    "Workspace": _kaito,
}
