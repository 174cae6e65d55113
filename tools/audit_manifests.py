"""Facts about a manifest → the manifest: what ``tools/audit_facts.py`` writes around each row of its file."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import yaml

Row = Mapping[str, Any]
Manifest = dict[str, Any]
_STACK = "chart default"
_STACK_VALUES = {
    "--max-model-len": "maxModelLen",
    "--dtype": "dtype",
    "--tensor-parallel-size": "tensorParallelSize",
    "--max-num-seqs": "maxNumSeqs",
    "--gpu_memory_utilization": "gpuMemoryUtilization",
    "--max_loras": "maxLoras",
}
_STACK_SWITCHES = {
    "--enable-chunked-prefill": ("enableChunkedPrefill", True),
    "--no-enable-chunked-prefill": ("enableChunkedPrefill", False),
    "--enable-prefix-caching": ("enablePrefixCaching", True),
    "--no-enable-prefix-caching": ("enablePrefixCaching", False),
}


def manifests(row: Row) -> list[Manifest]:
    """Objects that say what a row says."""
    kind = str(row["kind"]).partition(" ")[0]
    write = _WRITERS.get("KubeAI" if "KubeAI" in row["kind"] else kind)
    if write is not None:
        return [*write(row), *_config(row)]
    return [*_workload(row, str(row["kind"])), *_config(row)]


def _release_of(row: Row) -> list[Manifest]:
    return [_object("HelmRelease", row, {"values": _stack(row)}) if row["scope"] == "values" else _release(row)]


def _values_of(row: Row) -> list[Manifest]:
    stack = str((row["probes"] or {}).get("startup", "")).startswith(_STACK)
    return [_stack(row) if stack else _values(row)]


def _runtime(row: Row) -> list[Manifest]:
    spec = _pod(row) if row["scope"] == "pod" else {"engineConfig": {"containers": [container(row)]}}
    return [_object(str(row["kind"]), row, spec)]


def _dynamo(row: Row) -> list[Manifest]:
    spec = {"services": {"worker": {"extraPodSpec": {"mainContainer": container(row)}}}}
    return [_object("DynamoGraphDeployment", row, spec)]


def _inference_service(row: Row) -> list[Manifest]:
    return [_object("InferenceService", row, {"predictor": {"containers": [container(row)]}})]


def _workload(row: Row, kind: str) -> list[Manifest]:
    pod = _pod(row)
    template = {"metadata": {"labels": {"app": row["id"]}}, "spec": pod}
    if kind == "LWS":
        return [
            _object(
                "LeaderWorkerSet",
                row,
                {"replicas": row["replicas"], "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
            )
        ]
    if kind in {"ModelServing", "RayService"}:
        return [_object(kind, row, {"replicas": row["replicas"], "template": {"roles": [{"entryTemplate": template}]}})]
    real = kind.partition(" ")[0]
    spec: Manifest = {"template": template}
    if real != "Job":
        spec |= {"selector": {"matchLabels": {"app": row["id"]}}, "replicas": row["replicas"]}
    if row["strategy"]:
        spec["strategy"] = _strategy(str(row["strategy"]))
    found = _object(real, row, spec)
    if row["scope"] != "pod" or not row["complete"]:
        del spec["selector"]
        pod["containers"][0].pop("image", None)
    return [found]


def _strategy(text: str) -> Manifest:
    name, _, rest = text.partition(" ")
    surge = re.search(r"surge (\d+)/unavailable (\d+)", rest)
    found: Manifest = {"type": name}
    if surge:
        found["rollingUpdate"] = {"maxSurge": int(surge[1]), "maxUnavailable": int(surge[2])}
    return found


def _object(kind: str, row: Row, spec: Manifest) -> Manifest:
    return {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": row["id"], "namespace": "llm"},
        "spec": spec,
    }


def _pod(row: Row) -> Manifest:
    pod: Manifest = {"containers": [container(row)], "volumes": []}
    if row["grace_seconds"] is not None:
        pod["terminationGracePeriodSeconds"] = row["grace_seconds"]
    if row["shm"]:
        pod["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    if row["launch"] == "--config file":
        pod["volumes"].append({"name": "config", "configMap": {"name": f"{row['id']}-config"}})
    return pod


def container(row: Row) -> Manifest:
    """The container of a row."""
    found: Manifest = {"name": "vllm", **_command(row), "env": list(_env(row["env"]))}
    if row["image"]:
        found["image"] = row["image"]
    count = row["n_gpus"]
    if count:
        found["resources"] = {"limits": {_resource(row): count}}
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}] if row["shm"] else []  # noqa: S108
    if row["launch"] == "--config file":
        mounts.append({"name": "config", "mountPath": "/etc/vllm"})
    if mounts:
        found["volumeMounts"] = mounts
    return found | _probes(row)


def _resource(row: Row) -> str:
    gpu = str(row["gpu"] or "")
    for word, name in (
        ("AMD", "amd.com/gpu"),
        ("Gaudi", "habana.ai/gaudi"),
        ("XPU", "gpu.intel.com/i915"),
        ("Trn", "aws.amazon.com/neuron"),
        ("TPU", "google.com/tpu"),
        ("Ascend", "huawei.com/Ascend910"),
    ):
        if word in gpu:
            return name
    return "nvidia.com/gpu"


def _command(row: Row) -> Manifest:
    args, launch = row["args"], row["launch"]
    if args is None:
        return {"command": ["/opt/run.sh"]} if launch != "image default" else {}
    if launch.startswith("python"):
        return {"command": ["python3", "-m", "vllm.entrypoints.openai.api_server"], "args": list(args)}
    if launch == "vllm serve":
        return {"command": ["vllm", "serve"], "args": list(args)}
    if launch == "shell -c":
        return {"command": ["/bin/sh", "-c"], "args": [_script(args)]}
    if launch == "--config file":
        head = args[:1] if not args[0].startswith("-") else []
        return {"command": ["vllm", "serve"], "args": [*head, "--config", "/etc/vllm/config.yaml"]}
    return {"args": list(args)}


def _script(args: Sequence[str]) -> str:
    words = [word if re.fullmatch(r"\$\w+|\$\{\w+\}", word) else shlex.quote(word) for word in args]
    return "export A=1 && \\\n exec vllm serve " + " \\\n   ".join(words) + "\n"


def _env(written: Sequence[str]) -> Iterator[Manifest]:
    for each in written:
        name, equals, value = each.partition("=")
        yield (
            {"name": name, "value": value}
            if equals
            else {
                "name": name,
                "valueFrom": {"secretKeyRef": {"name": "s", "key": name}},
            }
        )


def _probes(row: Row) -> Manifest:
    found = {}
    for name in ("startup", "liveness", "readiness"):
        probe = (row["probes"] or {}).get(name)
        if isinstance(probe, Mapping):
            found[f"{name}Probe"] = dict(_probe(probe))
    return found


def _probe(facts: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if "http" in facts:
        path, _, port = facts["http"].partition(":")
        yield "httpGet", {"path": path, "port": int(port) if port.isdigit() else port or 8000}
    if "tcp" in facts:
        yield "tcpSocket", {"port": int(facts["tcp"])}
    if "exec" in facts:
        yield "exec", {"command": ["sh", "-c", facts["exec"]]}
    names = {
        "delay": "initialDelaySeconds",
        "period": "periodSeconds",
        "timeout": "timeoutSeconds",
        "fail": "failureThreshold",
    }
    yield from ((names[key], value) for key, value in facts.items() if key in names)


def _config(row: Row) -> list[Manifest]:
    if row["launch"] != "--config file" or row["args"] is None:
        return []
    args = list(row["args"])
    flags: Manifest = {}
    while args:
        word = args.pop(0)
        if word.startswith("--"):
            values = []
            while args and not args[0].startswith("--"):
                values.append(args.pop(0))
            flags[word[2:]] = values[0] if values else True
    body = yaml.safe_dump(flags, sort_keys=False)
    meta = {"name": f"{row['id']}-config", "namespace": "llm"}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"config.yaml": body}}]


def _release(row: Row) -> Manifest:
    """The layout of the app-template chart, which most home clusters use."""
    inner = container(row)
    probes = {
        n: {"enabled": True, "custom": True, "spec": inner.pop(f"{n}Probe")}
        if f"{n}Probe" in inner
        else {"enabled": False}
        for n in ("startup", "liveness", "readiness")
    }
    name, _, tag = str(row["image"]).rpartition(":")
    inner |= {"probes": probes, "image": {"repository": name, "tag": tag}}
    controller = {"replicas": row["replicas"], "strategy": row["strategy"], "containers": {"app": inner}}
    return _object("HelmRelease", row, {"values": {"controllers": {"vllm": controller}}})


def _kubeai(row: Row) -> Manifest:
    args = list(row["args"])
    model, name, rest = args[1], args[3], args[4:]
    spec = {"url": f"hf://{model}", "engine": "VLLM", "args": rest, "env": dict(e.split("=", 1) for e in row["env"]),
            "resourceProfile": f"{_profile(row['gpu'])}:{row['n_gpus'] or 1}"}  # fmt: skip
    return {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": name}, "spec": spec}


def _profile(gpu: str | None) -> str:
    return f"nvidia-gpu-{gpu.lower()}" if gpu and gpu[0] in "ALHB" else "gaudi"


def _llm_inference_service(row: Row) -> Manifest:
    return _object(
        "LLMInferenceService",
        row,
        {"replicas": row["replicas"], "template": {"containers": [container(row) | {"command": [], "args": []}]}},
    )


def _stack(row: Row) -> Manifest:
    """Values of the production stack, with every argument that its chart has no value for in extraArgs."""
    args = list(row["args"])
    model, rest = args[0], args[5:]
    values: Manifest = {}
    order = list(_STACK_VALUES)
    last = -1
    while rest and (rest[0] in _STACK_SWITCHES or (rest[0] in _STACK_VALUES and order.index(rest[0]) > last)):
        word = rest.pop(0)
        if word in _STACK_SWITCHES:
            values[_STACK_SWITCHES[word][0]] = _STACK_SWITCHES[word][1]
        else:
            last = order.index(word)
            values[_STACK_VALUES[word]] = rest.pop(0)
    image, _, tag = str(row["image"]).rpartition(":")
    spec = {
        "name": row["id"],
        "repository": image,
        "tag": tag,
        "modelURL": model,
        "replicaCount": row["replicas"],
        "requestGPU": row["n_gpus"],
        "vllmConfig": {**values, "extraArgs": rest},
        "env": list(_env(row["env"])),
    }
    return {"servingEngineSpec": {"modelSpec": [spec]}}


def _values(row: Row) -> Manifest:
    inner = container(row)
    if row["image"] and not row["image"].startswith("("):
        name, _, tag = str(row["image"]).rpartition(":")
        inner["image"] = {"repository": name, "tag": tag} if name else row["image"]
    else:
        inner["image"] = (
            {"repository": "vllm/vllm-openai", "tag": str(row["image"]).partition(":")[2]}
            if row["image"]
            else "vllm/vllm-openai:v0.20.0"
        )
    if row["replicas"] is not None:
        inner["replicaCount"] = row["replicas"]
    if row["strategy"]:
        inner["strategy"] = _strategy(str(row["strategy"]))
    if row["shm"] is False:
        inner.setdefault("volumeMounts", [])
    if row["grace_seconds"] is not None:
        inner["terminationGracePeriodSeconds"] = row["grace_seconds"]
    return {"vllm": inner}


_WRITERS: Mapping[str, Callable[[Row], list[Manifest]]] = {
    "HelmRelease": _release_of,
    "KubeAI": lambda row: [_kubeai(row)],
    "LLMInferenceService": lambda row: [_llm_inference_service(row)],
    "values": _values_of,
    "DynamoGraphDeployment": _dynamo,
    "InferenceService": _inference_service,
    "ServingRuntime": _runtime,
    "ClusterServingRuntime": _runtime,
    "fragment": lambda row: [{"containers": [container(row)]}],
}
