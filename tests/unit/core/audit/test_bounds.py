# ruff: noqa: E501 - a row of a table is one line
"""Rules just at their bounds, and beside what only looks alike: one row speaks, its neighbour does not."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from plimsoll.core.audit.usage import Usage, freed, said
from tests.unit.core.audit.deployments import beside, deployment, found, judged

HTTP = {"httpGet": {"path": "/health", "port": "http"}, "timeoutSeconds": 5}


def args(*words: str) -> list[dict[str, Any]]:
    return [deployment(args=list(words))]


def container(**fields: Any) -> list[dict[str, Any]]:
    return [deployment(container=fields)]


def gpus(count: int, *words: str, **fields: Any) -> list[dict[str, Any]]:
    limits = {"limits": {"nvidia.com/gpu": count, "memory": "512Gi"}}
    return [deployment(container={"resources": limits, **fields}, args=list(words))]


def named(model: str, gpu: str | None, *words: str) -> list[dict[str, Any]]:
    """A model that only its name tells the size of."""
    selector = {"nvidia.com/gpu.product": gpu} if gpu else None
    return [deployment(container={"args": [model, "--max-model-len", "8", *words]}, pod={"nodeSelector": selector})]


def shared_memory(size: str) -> list[dict[str, Any]]:
    volumes = [{"name": "s", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return [
        deployment(
            pod={"volumes": volumes},
            container={"volumeMounts": [{"name": "s", "mountPath": "/dev/shm"}]},
        )
    ]


def scaled(**spec: Any) -> list[dict[str, Any]]:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}
    return [deployment(), beside("HorizontalPodAutoscaler", "qwen", spec={"scaleTargetRef": target, **spec})]


def volume(*modes: str) -> list[dict[str, Any]]:
    return [
        deployment(spec={"strategy": None}),
        beside("PersistentVolumeClaim", "cache", spec={"accessModes": [*modes]}),
    ]


def strategy(**fields: Any) -> list[dict[str, Any]]:
    claim = beside("PersistentVolumeClaim", "cache", spec={"accessModes": ["ReadWriteOnce"]})
    return [deployment(spec={"strategy": fields}), claim]


def opened(kind: str, **pod: Any) -> list[dict[str, Any]]:
    ports = [{"port": 8000}]
    service = beside("Service", "qwen", spec={"type": kind, "selector": {"app": "qwen"}, "ports": ports})
    return [deployment(pod=pod), service]


PP2 = ["--pipeline-parallel-size", "2"]
SPEAKS: Sequence[tuple[str, Sequence[Mapping[str, Any]], bool]] = [
    ("small-shared-memory", shared_memory("1Gi"), False),
    ("small-shared-memory", shared_memory("1023Mi"), True),
    ("no-shared-memory", gpus(2, "--tensor-parallel-size", "2"), True),
    ("no-shared-memory", [deployment(container={"resources": {"limits": {"nvidia.com/gpu": 2, "memory": "64Gi"}}},
                                     args=["--tensor-parallel-size", "2"], pod={"hostIPC": True})], False),
    ("utilisation-low", args("--gpu-memory-utilization", "0.5"), True),
    ("utilisation-low", args("--gpu-memory-utilization", "0.51"), False),
    ("weights-exceed-gpus", named("acme/Own-70B", "NVIDIA-L4"), True),
    ("weights-exceed-gpus", named("acme/Own-7B", "NVIDIA-L4"), False),
    ("weights-exceed-gpus", named("acme/Own-70B", "NVIDIA-L4", "--cpu-offload-gb", "200"), False),
    ("weights-exceed-gpus", named("acme/Own-70B", None), False),
    ("weights-exceed-gpus", named("acme/Own-thing", "NVIDIA-L4"), False),
    ("large-model-on-unnamed-gpus", named("acme/Own-70B", None), True),
    ("large-model-on-unnamed-gpus", named("acme/Own-20B", None), False),
    ("large-model-on-unnamed-gpus", named("acme/Own-70B", "NVIDIA-L4"), False),
    ("pipeline-on-one-node", gpus(2, *PP2), True),
    ("pipeline-on-one-node", gpus(1, *PP2), False),
    ("pipeline-on-one-node", gpus(3, *PP2, "--tensor-parallel-size", "2"), False),
    ("pipeline-on-one-node", gpus(4, *PP2, "--tensor-parallel-size", "2"), True),
    ("fewer-gpus-than-ranks", gpus(2, "--tensor-parallel-size", "2"), False),
    ("fewer-gpus-than-ranks", gpus(1, *PP2), True),
    ("fewer-gpus-than-ranks", gpus(1, *PP2, "--nnodes", "2"), False),
    ("fewer-gpus-than-ranks", [{**gpus(1, *PP2)[0], "kind": "Odd"}], False),
    ("fewer-gpus-than-ranks", [{**gpus(1, "--tensor-parallel-size", "2")[0], "kind": "Odd"}], True),
    ("gpus-unused", gpus(2), True),
    ("gpus-unused", gpus(2, "--data-parallel-size", "2"), False),
    ("gpus-unused", gpus(2, "--max-num-seqs", "$(N)"), False),
    ("no-gpu-requested", container(image="own/thing:1", resources={"limits": {}}), False),
    ("no-gpu-requested", container(resources={"limits": {}}), True),
    ("cpu-settings-on-gpu-image", [deployment(env={"VLLM_CPU_KVCACHE_SPACE": "4"}, container={"resources": {}})], True),
    ("cpu-settings-on-gpu-image", [deployment(env={"VLLM_CPU_KVCACHE_SPACE": "4"})], False),
    ("kv-dtype-unsupported", args("--kv-cache-dtype", "fp8"), False),
    ("value-in-one-element", args("--served-model-name", "a name of two words"), False),
    ("unknown-flag", args("--not-a-flag", "8"), True),
    ("switch-with-value", args("--enable-prefix-caching=false"), True),
    ("switch-with-value", args("--no-enable-prefix-caching"), False),
    ("stray-word", args("--enable-prefix-caching", "false"), True),
    ("liveness-kills-during-load", container(startupProbe=None, livenessProbe={**HTTP, "initialDelaySeconds": 60}), True),
    ("liveness-kills-during-load", container(startupProbe=None, livenessProbe={**HTTP, "initialDelaySeconds": 3000}), False),
    ("liveness-kills-during-load", container(livenessProbe={**HTTP, "initialDelaySeconds": 60}), False),
    ("liveness-timeout-one-second", container(livenessProbe={**HTTP, "timeoutSeconds": 2}), False),
    ("liveness-timeout-one-second", container(livenessProbe={**HTTP, "timeoutSeconds": 1}), True),
    ("liveness-timeout-one-second", container(livenessProbe=None), False),
    ("liveness-kills-busy-server", container(livenessProbe={**HTTP, "periodSeconds": 5, "failureThreshold": 3}), True),
    ("liveness-kills-busy-server", container(livenessProbe={**HTTP, "periodSeconds": 6, "failureThreshold": 3}), False),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "timeoutSeconds": 2, "failureThreshold": 1}), True),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "timeoutSeconds": 3, "failureThreshold": 1}), False),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "timeoutSeconds": 2, "failureThreshold": 2}), False),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "timeoutSeconds": 10}), False),
    ("readiness-too-strict", container(readinessProbe={**HTTP, "timeoutSeconds": 11}), True),
    ("readiness-too-strict", container(readinessProbe=None), False),
    ("probe-delay-too-long", container(livenessProbe={**HTTP, "initialDelaySeconds": 3600}), True),
    ("probe-delay-too-long", container(livenessProbe={**HTTP, "initialDelaySeconds": 3599}), False),
    ("probe-delay-too-long", container(startupProbe={**HTTP, "initialDelaySeconds": 180, "failureThreshold": 99}), True),
    ("probe-delay-too-long", container(startupProbe={**HTTP, "initialDelaySeconds": 179, "failureThreshold": 99}), False),
    ("probe-proves-nothing", container(livenessProbe={"exec": {"command": ["curl", "x"]}, "timeoutSeconds": 9}), False),
    ("probe-proves-nothing", container(livenessProbe={"exec": {"command": ["sh", "-c", "grep ok a.log"]}, "timeoutSeconds": 9}), True),
    ("probe-proves-nothing", container(livenessProbe={"exec": {"command": ["sh", "-c", "grep ok a.txt"]}, "timeoutSeconds": 9}), False),
    ("ready-timeout-above-startup-budget", [deployment(env={"VLLM_ENGINE_READY_TIMEOUT_S": "1200"})], False),
    ("ready-timeout-above-startup-budget", [deployment(env={"VLLM_ENGINE_READY_TIMEOUT_S": "1300"})], True),
    ("port-mismatch", container(readinessProbe={"tcpSocket": {"port": 9000}}), True),
    ("port-mismatch", container(readinessProbe={"tcpSocket": {"port": 8000}}), False),
    ("port-mismatch", args("--port", "$(PORT)"), False),
    ("scales-on-cpu", scaled(targetCPUUtilizationPercentage=80), True),
    ("scales-on-cpu", scaled(metrics=[{"resource": {"name": "memory"}}]), True),
    ("scales-on-cpu", scaled(metrics=[{"external": {"metric": {"name": "waiting"}}}]), False),
    ("rwo-volume-rolling-update", volume("ReadWriteOnce"), True),
    ("rwo-volume-rolling-update", volume("ReadWriteOncePod"), True),
    ("rwo-volume-rolling-update", volume("ReadWriteOnce", "ReadWriteMany"), False),
    ("rwo-volume-rolling-update", strategy(type="RollingUpdate"), True),
    ("rwo-volume-rolling-update", strategy(type="Recreate"), False),
    ("rwo-volume-rolling-update", strategy(type="RollingUpdate", rollingUpdate={"maxSurge": 0}), False),
    ("surge-needs-spare-gpu", strategy(type="RollingUpdate", rollingUpdate={"maxSurge": 0, "maxUnavailable": 1}), False),
    ("surge-needs-spare-gpu", strategy(type="RollingUpdate"), True),
    ("exposed-without-api-key", opened("LoadBalancer"), True),
    ("exposed-without-api-key", opened("ClusterIP"), False),
    ("exposed-without-api-key", opened("ClusterIP", hostNetwork=True), False),
    ("no-max-model-len", container(args=["Qwen/Qwen3-8B", "--hf-overrides", '{"max_position_embeddings": 8192}']), False),
    ("no-max-model-len", container(args=["Qwen/Qwen3-8B", "--hf-overrides", '{"a": 1}']), True),
    ("adapters-without-lora", args("--max-loras", "4", "--enable-lora"), False),
    ("slow-quantisation-kernel", [deployment(args=["--quantization", "awq"], pod={"nodeSelector": None})], False),
    ("slow-quantisation-kernel", args("--quantization", "awq"), True),
    ("model-newer-than-engine", container(image="own/thing:v0.6.4", args=["Qwen/Qwen3-8B", "--max-model-len", "8"]), False),
    ("own-vllm-port", [deployment(env={"VLLM_PORT": "9000"})], False),
    ("service-named-vllm", [deployment(), beside("Service", "other", spec={"ports": [{"port": 80}]})], False),
    ("downloads-at-each-start", [deployment(pod={"volumes": []}, env={"HF_HUB_OFFLINE": "1"})], False),
    ("downloads-at-each-start", [deployment(container={"args": ["/models/x", "--max-model-len", "8"]}, pod={"volumes": []})], False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "objects", "speaks"), [pytest.param(*row, id=f"{row[0]} {at}: {row[2]}") for at, row in enumerate(SPEAKS)]
)
def test_a_rule_speaks_up_to_its_bound(rule: str, objects: Sequence[Mapping[str, Any]], speaks: bool) -> None:
    messages = found(*objects)
    assert (rule in messages) is speaks, messages


WEEK = Usage(hours=168, replicas=4, peak_pools=1.5, peak_running=60, peak_waiting=0, preemptions=0, covered=1.0)


def test_what_prometheus_knows_nothing_of() -> None:
    [judgement] = judged(deployment())
    nothing = Usage(
        hours=168, replicas=None, peak_pools=None, peak_running=None, peak_waiting=None, preemptions=None, covered=None
    )
    assert freed(judgement.server, judgement.evidence, nothing) is None
    assert "Prometheus knows nothing of it" in said(judgement.server, nothing, None)
    assert "Prometheus knows nothing of it" not in said(judgement.server, WEEK, None)
