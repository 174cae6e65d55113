# ruff: noqa: E501 - a row of a table is one line
"""Every rule speaks where its fault is, and is silent on a Deployment that has none."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from plimsoll.core.audit.judge import MODULES
from plimsoll.core.audit.rule import RULES
from tests.unit.core.audit.deployments import ARGS, beside, deployment, found, judged

HTTP = {"httpGet": {"path": "/health", "port": "http"}}
SCALER = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}}
ROLLING = {"strategy": None}
CPU_SCALER = beside("HorizontalPodAutoscaler", "qwen", spec={**SCALER, "metrics": [{"resource": {"name": "cpu"}}]})
OPEN = beside("Service", "qwen", spec={"type": "LoadBalancer", "selector": {"app": "qwen"}, "ports": [{"port": 8000}]})
LARGE = ["Qwen/Qwen3-32B", "--tensor-parallel-size", "2", "--max-model-len", "16384"]
TWO_GPUS = {"limits": {"nvidia.com/gpu": 2, "memory": "128Gi"}}


def stack(**model: Any) -> dict[str, Any]:
    """Values of the production stack."""
    spec = {
        "name": "q",
        "repository": "vllm/vllm-openai",
        "tag": "v0.32.0",
        "modelURL": "Qwen/Qwen3-8B",
        "requestGPU": 1,
    }
    return {"servingEngineSpec": {"modelSpec": [{**spec, "vllmConfig": {"maxModelLen": 8192}, **model}]}}


def args(*words: str) -> list[dict[str, Any]]:
    return [deployment(args=list(words))]


def container(**fields: Any) -> list[dict[str, Any]]:
    return [deployment(container=fields)]


def pod(**fields: Any) -> list[dict[str, Any]]:
    return [deployment(pod=fields)]


def env(**variables: str) -> list[dict[str, Any]]:
    return [deployment(env=variables)]


FAULTS: Sequence[tuple[str, Sequence[Mapping[str, Any]], str]] = [
    ("value-in-one-element", args("--tensor-parallel-size 1"), "one list element"),
    ("value-in-one-element", container(args=["--model x --max-model-len 8 --port 8000"]), "whole command line"),
    ("unknown-flag", args("--shm-size=16G"), "docker option"),
    ("unknown-flag", args("--max-sequence-length", "8"), "no recorded vLLM release"),
    ("removed-flag", args("--disable-log-requests"), "the engine here already refuses it"),
    ("removed-flag", args("--device", "cuda"), "0.10 or before"),
    ("flag-newer-than-engine", container(image="vllm/vllm-openai:v0.11.0", args=[*ARGS, "--shutdown-timeout", "9"]), "yet"),
    ("abbreviated-flag", args("--max-num-batched-token", "4096"), "--max-num-batched-tokens is meant"),
    ("mixed-spelling", args("--max-num_batched-tokens", "4096"), "mixed"),
    ("bad-flag-value", args("--dtype", "float8"), "is not one of"),
    ("switch-with-value", args("--enable-chunked-prefill=false"), "--no-enable-chunked-prefill"),
    ("stray-word", args("--enforce-eager", "true"), "follows no flag"),
    ("repeated-flag", args("--max-num-seqs", "32"), "max-num-seqs"),
    ("removed-variable", env(VLLM_USE_V1="1"), "VLLM_USE_V1"),
    ("removed-variable", env(VLLM_ATTENTION_BACKEND="FLASHINFER"), "--attention-backend"),
    ("deprecated-variable", env(TRANSFORMERS_CACHE="/c"), "HF_HOME"),
    ("own-vllm-variables", env(VLLM_MAX_MODEL_LEN="8"), "VLLM_MAX_MODEL_LEN"),
    ("does-not-fit", args("--max-model-len", "4000000", "--hf-overrides", '{"max_position_embeddings": 4000000}'), "KV cache"),
    ("weights-exceed-gpus", pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-L4"},
     containers=[{"name": "v", "image": "vllm/vllm-openai:v0.32.0", "args": ["acme/Own-70B", "--max-model-len", "8"],
                  "resources": {"limits": {"nvidia.com/gpu": 1}}}]), "exceed"),
    ("barely-fits", [deployment(pod={"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}, args=["--max-model-len", "20000"])],
     "at once"),
    ("barely-fits", pod(nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
     containers=[{"name": "v", "image": "vllm/vllm-openai:v0.32.0", "args": ["acme/Own-37B", "--max-model-len", "8"],
                  "resources": {"limits": {"nvidia.com/gpu": 1}}}]), "almost no room"),
    ("large-model-on-unnamed-gpus", [deployment(pod={"nodeSelector": None}, container={"args": ["acme/Own-70B", "--max-model-len", "8"]})],
     "of unnamed type"),
    ("pipeline-on-one-node", [deployment(args=["--pipeline-parallel-size", "2"], container={"resources": TWO_GPUS})], "PP 2 × TP 1"),
    ("small-shared-memory", [deployment(pod={"volumes": [{"name": "s", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}]},
     container={"volumeMounts": [{"name": "s", "mountPath": "/dev/shm"}]})], "256Mi"),
    ("fewer-gpus-than-ranks", args("--tensor-parallel-size", "4"), "TP 4 but 1 GPU requested"),
    ("gpus-unused", container(resources=TWO_GPUS), "1 idle"),
    ("no-gpu-requested", container(resources={"limits": {"memory": "32Gi"}}), "no accelerator requested"),
    ("cpu-settings-on-gpu-image", args("--device", "cpu"), "will not run"),
    ("mixed-devices", container(image="intel/vllm:0.10.0-xpu", env=[{"name": "PT_HPU_LAZY_MODE", "value": "1"}]), "Gaudi"),
    ("kv-dtype-unsupported", [deployment(pod={"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}},
     args=["--kv-cache-dtype", "fp8"])], "no fp8 hardware"),
    ("utilisation-too-high", args("--gpu-memory-utilization", "0.97"), "too high"),
    ("utilisation-low", args("--gpu-memory-utilization", "0.4"), "shared"),
    ("two-pool-sizes", args("--kv-cache-memory-bytes", "9000000000"), "ignored"),
    ("no-max-model-len", container(args=["Qwen/Qwen3-8B"]), "no max-model-len"),
    ("memory-limit-below-weights", container(resources={"limits": {"nvidia.com/gpu": 1, "memory": "6Gi"}}), "below weight size"),
    ("memory-limit-below-weights", container(resources={"limits": {"nvidia.com/gpu": 1, "memory": "1.5Gi"}}), "1.5Gi below"),
    ("sequences-do-not-suit", args("--max-num-seqs", "1"), "one request at a time"),
    ("enforce-eager", args("--enforce-eager"), "CUDA graphs off"),
    ("slow-quantisation-kernel", args("--quantization", "awq"), "awq_marlin"),
    ("adapters-without-lora", args("--max-loras", "4"), "without --enable-lora"),
    ("gguf-without-tokenizer", container(args=["/models/x-Q4_K_M.gguf", "--max-model-len", "8"]), "tokenizer"),
    ("model-newer-than-engine", container(image="vllm/vllm-openai:v0.6.4", args=["Qwen/Qwen3-8B", "--max-model-len", "8"]),
     "newer than vLLM 0.6.4"),
    ("no-startup-probe", container(startupProbe=None), "no startupProbe"),
    ("no-liveness-probe", container(livenessProbe=None), "no livenessProbe"),
    ("no-readiness-probe", container(readinessProbe=None), "no readinessProbe"),
    ("liveness-kills-during-load", container(startupProbe=None, livenessProbe={**HTTP, "initialDelaySeconds": 60}), "only 90 s"),
    ("startup-budget-too-short", container(startupProbe={**HTTP, "periodSeconds": 10, "failureThreshold": 15}), "150 s"),
    ("liveness-timeout-one-second", container(livenessProbe=HTTP), "1 s (default, not set)"),
    ("liveness-kills-busy-server", container(livenessProbe={**HTTP, "periodSeconds": 5, "timeoutSeconds": 5}), "after 15 s"),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "failureThreshold": 1}), "after one answer"),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "timeoutSeconds": 200, "periodSeconds": 60}), "its period"),
    ("readiness-only-tcp", container(readinessProbe={"tcpSocket": {"port": 8000}}), "TCP"),
    ("probe-proves-nothing", container(livenessProbe={"exec": {"command": ["sh", "-c", "exit 0"]}, "timeoutSeconds": 9}),
     "always succeeds"),
    ("probe-delay-too-long", container(livenessProbe={**HTTP, "initialDelaySeconds": 300000}), "milliseconds"),
    ("ready-timeout-above-startup-budget", env(VLLM_ENGINE_READY_TIMEOUT_S="3600"), "gives up first"),
    ("port-mismatch", args("--port", "9000"), "vLLM listens on 9000"),
    ("grace-too-short", pod(terminationGracePeriodSeconds=None), "grace 30 s (default, not set)"),
    ("grace-too-short", pod(terminationGracePeriodSeconds=20), "grace 20 s"),
    ("no-pre-stop", container(lifecycle=None), "no preStop"),
    ("pre-stop-fills-grace", pod(terminationGracePeriodSeconds=15), "before it drains"),
    ("surge-needs-spare-gpu", [deployment(spec=ROLLING)], "default RollingUpdate"),
    ("rwo-volume-rolling-update", [deployment(spec=ROLLING),
     beside("PersistentVolumeClaim", "cache", spec={"accessModes": ["ReadWriteOnce"]})], "RWO"),
    ("progress-deadline-too-short", container(args=LARGE, resources=TWO_GPUS), "600 s (default) for a large model (32B)"),
    ("two-writers-of-replicas", [deployment(spec={"replicas": 2}), CPU_SCALER], "HorizontalPodAutoscaler qwen"),
    ("scales-on-cpu", [deployment(), CPU_SCALER], "scales on cpu"),
    ("signals-do-not-reach-engine", container(command=["sh", "-c"], args=["vllm serve Qwen/Qwen3-8B --max-model-len 8 | tee l"]),
     "pipe"),
    ("no-shared-memory", container(args=LARGE, resources=TWO_GPUS), "2 ranks"),
    ("no-memory-request", container(resources={"limits": {"nvidia.com/gpu": 1}}), "evicted"),
    ("exposed-without-api-key", [deployment(), OPEN], "LoadBalancer"),
    ("api-key-in-plain-text", args("--api-key", "sk-123456"), "in args"),
    ("hub-token-in-plain-text", container(env=[{"name": "HF_TOKEN", "value": "hf_abcdefgh"}]), "plain value"),
    ("hub-token-in-plain-text", container(env=[{"name": "HF_TOKEN", "value": "$HF_TOKEN"}]), "does not replace"),
    ("trust-remote-code-unpinned", args("--trust-remote-code"), "without pinned revision"),
    ("privileged-container", container(securityContext={"privileged": True}), "privileged"),
    ("host-namespaces", pod(hostNetwork=True, hostIPC=True), "host network and host IPC"),
    ("dev-mode", env(VLLM_SERVER_DEV_MODE="1"), "dev endpoints"),
    ("bypasses-device-plugin", env(NVIDIA_VISIBLE_DEVICES="all"), "device plugin"),
    ("mounts-over-the-image", env(LD_LIBRARY_PATH="/usr/lib"), "LD_LIBRARY_PATH"),
    ("floating-image-tag", container(image="vllm/vllm-openai:latest"), "latest"),
    ("floating-image-tag", container(image="vllm/vllm-openai"), "none"),
    ("downloads-at-each-start", pod(volumes=[]), "no persistent model cache"),
    ("downloads-at-each-start", pod(volumes=[{"name": "cache", "emptyDir": {}}]), "emptyDir"),
    ("service-named-vllm", [deployment(), beside("Service", "vllm", spec={"ports": [{"port": 80}]})], "VLLM_PORT"),
    ("own-vllm-port", env(VLLM_PORT="8000"), "equals the API port"),
    ("field-at-wrong-level", container(nodeSelector={"a": "b"}), "silently lost"),
    ("values-ignored", [stack(extraArgs=["--seed", "1"])], "drops it silently"),
    ("values-ignored", [stack(shmSize="20Gi")], "only when tensorParallelSize is set"),
    ("rwo-volume-rolling-update", [stack(pvcStorage="50Gi")], "chart default"),
    ("hub-token-in-plain-text", [stack(hf_token="hf_abcdefgh")], "plain value"),
    ("removed-variable", [stack(vllmConfig={"v0": 1})], "VLLM_USE_V1"),
    ("no-gpu-requested", [stack(requestGPU=None)], "no accelerator requested"),
    ("exposed-without-api-key", [{"routerSpec": {"serviceType": "LoadBalancer"}, **stack()}], "LoadBalancer"),
    ("scales-on-cpu", [{"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 80}, **stack()}], "CPU"),
    ("placeholder-model", container(args=["/models/YOUR-MODEL-PATH", "--max-model-len", "8"]), "placeholder"),
    ("relative-path", args("--chat-template", "examples/t.jinja"), "relative"),
    ("forced-gpu-target", env(HSA_OVERRIDE_GFX_VERSION="11.0.0"), "GPU target"),
    ("warm-up-skipped", env(VLLM_SKIP_WARMUP="true"), "first requests"),
    ("spot-without-drain", pod(nodeSelector={"cloud.google.com/gke-spot": "true"}, terminationGracePeriodSeconds=None), "spot"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "objects", "said"), [pytest.param(*row, id=f"{row[0]}: {row[2]}") for row in FAULTS])
def test_a_fault_is_found(rule: str, objects: Sequence[Mapping[str, Any]], said: str) -> None:
    messages = found(*objects)
    assert said in messages.get(rule, ""), messages


@pytest.mark.parametrize(
    ("tokens", "version", "severity"),
    [
        pytest.param("40000", "v0.32.0", "error", id="far beyond what is left"),
        pytest.param("29500", "v0.32.0", "warning", id="within what the planner cannot tell"),
        pytest.param("40000", "v0.8.5", "warning", id="a release whose rules nobody recorded"),
    ],
)
def test_a_refusal_is_as_sure_as_the_planner_is(tokens: str, version: str, severity: str) -> None:
    pod = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}
    engine = {"image": f"vllm/vllm-openai:{version}", "args": [*ARGS, "--max-model-len", tokens]}
    [judgement] = judged(deployment(container=engine, pod=pod))
    refused = {each.rule.id: each.severity.value for each in judgement.findings}
    assert refused["does-not-fit"] == severity


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found(deployment()) == {}


def test_every_rule_has_a_case() -> None:
    assert MODULES
    assert set(RULES) == {rule for rule, *_ in FAULTS}


@pytest.mark.parametrize(
    ("rule", "objects"),
    [
        pytest.param("removed-flag", container(image="registry.example.com/own:1", args=["--model", "x"]), id="no removed flag"),
        pytest.param("no-gpu-requested", container(image="own/vllm-cpu:v0.32.0", resources={}), id="a CPU image"),
        pytest.param("service-named-vllm", [deployment(pod={"enableServiceLinks": False}), beside("Service", "vllm")],
                     id="service links are off"),
        pytest.param("service-named-vllm", [deployment(), {**beside("Service", "vllm"), "metadata": {"name": "vllm", "namespace": "b"}}],
                     id="a Service of another namespace"),
        pytest.param("two-writers-of-replicas", [deployment(), CPU_SCALER], id="replicas are left to the autoscaler"),
        pytest.param("exposed-without-api-key", [deployment(env={"VLLM_API_KEY": "$(KEY)"}), OPEN], id="a key is asked for"),
        pytest.param("rwo-volume-rolling-update", [deployment(spec=ROLLING),
                     beside("PersistentVolumeClaim", "cache", spec={"accessModes": ["ReadWriteMany"]})], id="a shared volume"),
        pytest.param("port-mismatch", [deployment(args=["--port", "9000"], pod={"containers": [
            {"name": "vllm", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model", "x", "--port", "8200"],
             "readinessProbe": {"httpGet": {"port": 8000}}}, {"name": "proxy", "image": "own/router:1"}]})],
                     id="a proxy of the pod may listen there"),
        pytest.param("abbreviated-flag", args("--kv-cache-memory", "9000000000"), id="a name that vLLM itself printed"),
        pytest.param("trust-remote-code-unpinned", args("--trust-remote-code", "--revision", "a" * 40), id="pinned to a commit"),
        pytest.param("floating-image-tag", container(image="vllm/vllm-openai:nightly@sha256:" + "0" * 64), id="a digest"),
        pytest.param("own-vllm-variables", env(VLLM_ATTENTION_BACKEND="FLASHINFER"), id="a name that vLLM once read"),
        pytest.param("mounts-over-the-image", env(LD_LIBRARY_PATH="/usr/local/nvidia/lib64"), id="where Google's nodes have the driver"),
        pytest.param("no-startup-probe", [{**deployment(container={"startupProbe": None}), "kind": "Job"}], id="a Job"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_fault_is_left_alone(rule: str, objects: Sequence[Mapping[str, Any]]) -> None:
    assert rule not in found(*objects)
