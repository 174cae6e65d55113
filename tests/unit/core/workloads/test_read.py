# ruff: noqa: E501 - a row of a table is one line
"""The argv as the engine would get it, from every way to start vLLM and every kind of object."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from plimsoll.core.workloads.neighbours import gathered
from plimsoll.core.workloads.read import servers_of
from plimsoll.core.workloads.server import Server

WORDS = ["Qwen/Qwen3-8B", "--max-model-len", "8192"]
TEXT = "Qwen/Qwen3-8B --max-model-len 8192"


def read(*objects: Mapping[str, Any]) -> list[Server]:
    around = gathered(objects)
    return [server for each in objects for server in servers_of(each, around)]


def argvs(*objects: Mapping[str, Any]) -> list[list[str] | None]:
    return [list(server.launch.argv) if server.launch.argv is not None else None for server in read(*objects)]


def pod(*containers: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "vllm/vllm-openai:v0.32.0", **each} for each in containers], **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "llm"}, "spec": spec}


@pytest.mark.parametrize(
    ("container", "argv"),
    [
        pytest.param({"args": WORDS}, WORDS, id="arguments for the image's entrypoint"),
        pytest.param({"args": ["serve", *WORDS]}, WORDS, id="serve for an entrypoint vllm"),
        pytest.param({"command": ["vllm", "serve"], "args": WORDS}, WORDS, id="vllm serve"),
        pytest.param({"command": ["/opt/venv/bin/vllm", "serve", *WORDS]}, WORDS, id="by its path"),
        pytest.param({"command": ["python3", "-u", "-m", "vllm.entrypoints.openai.api_server"], "args": ["--model", "x"]},
                     ["--model", "x"], id="the module"),
        pytest.param({"command": ["tini", "--", "env", "A=1", "vllm", "serve", *WORDS]}, WORDS, id="behind wrappers"),
        pytest.param({"command": ["sh", "-c"], "args": [f"exec vllm serve {TEXT}"]}, WORDS, id="a shell string"),
        pytest.param({"command": ["bash", "-lc", f"source v && vllm serve {TEXT} 2>&1 | tee l"]}, WORDS, id="after && and in a pipe"),
        pytest.param({"command": ["sh", "-c", "bash -c 'vllm serve " + TEXT + "'"]}, WORDS, id="a shell in a shell"),
        pytest.param({"args": ["$(M)", "--max-model-len", "$(L)"], "env": [{"name": "M", "value": "Qwen/Qwen3-8B"}, {"name": "L", "value": "8192"}]},
                     WORDS, id="variables as Kubernetes replaces them"),
        pytest.param({"args": ["--api-key", "$(KEY)"], "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
                     ["--api-key", "$(KEY)"], id="a Secret stays what it is"),
        pytest.param({"args": ["--model", "x", "--max-model-len=8", "--max_num_seqs", 4]}, ["--model", "x", "--max-model-len=8", "--max_num_seqs", "4"],
                     id="signs, underscores and numbers"),
        pytest.param({"image": "registry.example.com/own:1", "args": ["--model", "x", "--max-model-len", "8"]}, ["--model", "x", "--max-model-len", "8"],
                     id="an image of any name, by flags that only vLLM has"),
        pytest.param({"command": ["/app/start.sh"]}, None, id="a script in the image is not guessed"),
    ],
)  # fmt: skip
def test_argv_of_a_container(container: Mapping[str, Any], argv: Sequence[str] | None) -> None:
    assert argvs(pod(container)) == [argv]


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"image": "ghcr.io/acme/vllm-router:1", "args": ["--port", "1"]}, id="a router"),
        pytest.param({"image": "nginx:1", "args": ["--port", "1"]}, id="another server"),
        pytest.param(
            {"image": "lmsysorg/sglang:1", "command": ["python3", "-m", "sglang.launch_server"]}, id="another engine"
        ),
        pytest.param({"command": ["sleep", "infinity"]}, id="an idle container"),
    ],
)
def test_what_is_no_engine(container: Mapping[str, Any]) -> None:
    assert argvs(pod(container)) == []


def test_several_servers_in_one_pod() -> None:
    assert argvs(pod({"args": WORDS}, {"args": ["--model", "x"]})) == [WORDS, ["--model", "x"]]


def test_a_config_file_stands_before_what_the_command_line_says() -> None:
    volumes = [{"name": "v", "configMap": {"name": "cfg"}}]
    mounts = [{"name": "v", "mountPath": "/etc/vllm"}]
    server = pod(
        {"args": ["Qwen/Qwen3-8B", "--config", "/etc/vllm/c.yaml", "--port", "1"], "volumeMounts": mounts},
        volumes=volumes,
    )
    data = {"c.yaml": "max-model-len: 8192\nenable-prefix-caching: true\n"}
    config_map = {"kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": data}
    assert argvs(config_map, server) == [
        ["Qwen/Qwen3-8B", "--max-model-len", "8192", "--enable-prefix-caching", "--port", "1"]
    ]
    assert "not among the files" in read(server)[0].launch.why_unknown


def test_a_script_in_a_config_map_is_read() -> None:
    volumes = [{"name": "v", "configMap": {"name": "cfg"}}]
    container = {"command": ["sh", "/s/run.sh"], "volumeMounts": [{"name": "v", "mountPath": "/s"}]}
    config_map = {
        "kind": "ConfigMap",
        "metadata": {"name": "cfg"},
        "data": {"run.sh": f"set -e\nexec vllm serve {TEXT}\n"},
    }
    assert argvs(config_map, pod(container, volumes=volumes)) == [WORDS]


def test_scripts_that_call_one_another_come_to_an_end() -> None:
    volumes = [{"name": "v", "configMap": {"name": "cfg"}}]
    container = {"command": ["sh", "/s/a.sh"], "volumeMounts": [{"name": "v", "mountPath": "/s"}]}
    data = {"a.sh": "sh /s/b.sh\n", "b.sh": f"vllm serve {TEXT}\nsh /s/a.sh\n"}
    config_map = {"kind": "ConfigMap", "metadata": {"name": "cfg"}, "data": data}
    assert WORDS in argvs(config_map, pod(container, volumes=volumes))


OBJECTS = """
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: l}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {spec: {containers: [{image: 'vllm/vllm-openai:v0.32.0', args: [Qwen/Qwen3-8B, --max-model-len, '8192']}]}}
    workerTemplate: {spec: {containers: [{image: 'vllm/vllm-openai:v0.32.0', command: [sh, -c, ray start]}]}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: c}
spec: {jobTemplate: {spec: {template: {spec: {containers: [{image: 'vllm/vllm-openai:v0.32.0', args: [Qwen/Qwen3-8B, --max-model-len, '8192']}]}}}}}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: i}
spec: {predictor: {containers: [{image: 'vllm/vllm-openai:v0.32.0', args: [Qwen/Qwen3-8B, --max-model-len, '8192']}]}}
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: h}
spec: {predictor: {model: {modelFormat: {name: huggingface}, args: [--model_name=n, --model_id=Qwen/Qwen3-8B, --max-model-len, '8192']}}}
---
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: m}
spec:
  model: {uri: 'hf://Qwen/Qwen3-8B'}
  template: {containers: [{name: main, env: [{name: VLLM_ADDITIONAL_ARGS, value: --max-model-len 8192}]}]}
---
apiVersion: kubeai.org/v1
kind: Model
metadata: {name: q}
spec: {url: 'hf://Qwen/Qwen3-8B', engine: VLLM, args: [--max-model-len=8192], resourceProfile: 'nvidia-gpu-l4:2'}
---
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: r}
spec:
  model: {modelURL: Qwen/Qwen3-8B, maxModelLen: 8192}
  vllmConfig: {enableChunkedPrefill: false, extraArgs: [--seed, '1']}
  deploymentConfig: {replicas: 2, resources: {gpu: '1'}, image: {registry: docker.io, name: 'vllm/vllm-openai:v0.32.0'}}
---
servingEngineSpec:
  modelSpec:
    - {name: s, repository: vllm/vllm-openai, tag: v0.32.0, modelURL: Qwen/Qwen3-8B, requestGPU: 1, vllmConfig: {maxModelLen: 8192}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: f}
spec:
  values:
    controllers: {v: {containers: {app: {image: {repository: vllm/vllm-openai, tag: v0.32.0}, args: [Qwen/Qwen3-8B, --max-model-len, '8192']}}}}
---
image: {repository: vllm/vllm-openai, tag: v0.32.0}
extraArgs: --model Qwen/Qwen3-8B --max-model-len 8192
"""  # fmt: skip


def test_every_kind_of_object() -> None:
    found = {f"{s.kind} {s.name}": " ".join(s.launch.argv or ()) for s in read(*yaml.safe_load_all(OBJECTS))}
    assert found == {
        "LeaderWorkerSet l": TEXT,
        "CronJob c": TEXT,
        "InferenceService i": TEXT,
        "InferenceService h": "--max-model-len 8192",
        "LLMInferenceService m": "--max-model-len 8192",
        "Model q": "--model Qwen/Qwen3-8B --served-model-name q --max-model-len=8192",
        "VLLMRuntime r": "Qwen/Qwen3-8B --host 0.0.0.0 --port 8000 --no-enable-chunked-prefill --max-model-len 8192 --seed 1",
        "values s": "Qwen/Qwen3-8B --host 0.0.0.0 --port 8000 --max-model-len 8192",
        "HelmRelease f": TEXT,
        "values unnamed": "--model Qwen/Qwen3-8B --max-model-len 8192",
    }


@pytest.mark.parametrize(
    ("fields", "product"),
    [
        pytest.param({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L40S"}}, "NVIDIA-L40S", id="a product label"),
        pytest.param({"nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"}}, "NVIDIA-L4", id="GKE"),
        pytest.param({"nodeSelector": {"node.kubernetes.io/instance-type": "p5.48xlarge"}}, "NVIDIA-H100-80GB-HBM3", id="AWS"),
        pytest.param({"nodeSelector": {"beta.kubernetes.io/instance-type": "Standard_NC24ads_A100_v4"}}, "NVIDIA-A100-80GB-PCIe", id="Azure"),
        pytest.param({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H200"]}]}]}}}}, "NVIDIA-H200", id="affinity"),
        pytest.param({"nodeSelector": {"pool": "gpu"}}, None, id="a label of their own says nothing"),
    ],
)  # fmt: skip
def test_the_gpu_that_a_pod_can_only_run_on(fields: Mapping[str, Any], product: str | None) -> None:
    assert read(pod({"args": WORDS}, **fields))[0].product == product


def test_pods_of_a_workload_say_nothing_that_it_does_not() -> None:
    owned = pod({"args": WORDS})
    owned["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": "r"}]
    assert read(owned) == []
