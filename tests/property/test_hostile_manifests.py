"""Whatever stands in somebody's manifests, reading and judging them never fails."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cli.predict import Models
from plimsoll.core.audit.evidence import Planner
from plimsoll.core.audit.judge import judge
from plimsoll.core.workloads.neighbours import gathered
from plimsoll.core.workloads.read import servers_of
from plimsoll.core.workloads.shell import commands

PLANNER = Planner(Models(Path.cwd()))
WORDS = st.sampled_from(
    ["--model", "Qwen/Qwen3-8B", "--tensor-parallel-size", "2", "--max-model-len=8k", "--", "-", "", "--port", "$X",
     "{", "--kv-transfer-config", '{"a": 1}', "--enable-lora", "--max-num-seqs=-1", "--gpu-memory-utilization", "nan",
     "--dtype"]
)  # fmt: skip
ODD = st.one_of(st.none(), st.booleans(), st.integers(-9, 10**12), st.floats(), st.text(max_size=5), WORDS)
KEYS = st.sampled_from(
    ["metadata", "name", "namespace", "spec", "template", "containers", "args", "command", "image", "env", "envFrom",
     "valueFrom", "configMapKeyRef", "resources", "limits", "nvidia.com/gpu", "memory", "livenessProbe", "httpGet",
     "port", "periodSeconds", "ports", "volumeMounts", "volumes", "nodeSelector", "strategy", "rollingUpdate",
     "servingEngineSpec", "modelSpec", "vllmConfig", "predictor", "model", "replicas", "selector", "data"]
)  # fmt: skip
TREES = st.recursive(
    ODD, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)), max_leaves=25
)
KINDS = st.sampled_from(
    ["Deployment", "Pod", "LeaderWorkerSet", "InferenceService", "LLMInferenceService", "Model", "VLLMRuntime",
     "Workspace", "ConfigMap", "Service", "HorizontalPodAutoscaler", "HelmRelease", "Other", None]
)  # fmt: skip


@given(st.lists(st.tuples(KINDS, st.dictionaries(KEYS, TREES, max_size=4)), max_size=3))
def test_any_objects(written: list[tuple[str | None, dict[str, Any]]]) -> None:
    objects = [{**body, **({"kind": kind, "apiVersion": "kubeai.org/v1"} if kind else {})} for kind, body in written]
    around = gathered(objects)
    for each in objects:
        for server in servers_of(each, around):
            assert judge(server, PLANNER).server is server


@given(TREES, TREES, st.lists(WORDS, max_size=8))
def test_any_fields_around_an_engine(container: Any, pod: Any, args: list[str]) -> None:
    own = container if isinstance(container, dict) else {"resources": container, "livenessProbe": pod, "env": container}
    around_it = pod if isinstance(pod, dict) else {"volumes": pod, "nodeSelector": container, "affinity": pod}
    engine = {**own, "image": "vllm/vllm-openai:latest", "args": args}
    spec = {"selector": {}, "strategy": container, "template": {"spec": {**around_it, "containers": [engine]}}}
    manifest = {"kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    for server in servers_of(manifest, gathered([manifest])):
        judge(server, PLANNER)


ENGINE = {"image": "vllm/vllm-openai:latest", "args": ["Qwen/Qwen3-8B"], "resources": {"limits": {"nvidia.com/gpu": 1}}}
NUMBERS: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 0, 1, "0", "0%", 1.5, True, [], {}, [{}], ["ReadWriteOnce"], "ReadWriteOnce"]
)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_any_value_in_a_probe_a_strategy_a_claim(figure: Any, surge: Any, modes: Any) -> None:
    """Kinds of value that no schema allows where a rule counts on one."""
    probe = {"httpGet": {}, "periodSeconds": figure, "failureThreshold": figure, "timeoutSeconds": figure}
    engine = {**ENGINE, "startupProbe": probe, "livenessProbe": probe, "readinessProbe": probe}
    pod = {"containers": [engine], "volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]}
    spec = {"selector": {}, "strategy": {"rollingUpdate": {"maxSurge": surge}}, "template": {"spec": pod}}
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"accessModes": modes}}
    model = {"name": "m", "modelURL": "a", "requestGPU": 1, "pvcStorage": "1Gi", "pvcAccessMode": modes}
    values = {"servingEngineSpec": {"modelSpec": [model], "strategy": {"rollingUpdate": {"maxSurge": surge}}}}
    objects: list[dict[str, Any]] = [{"kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}, claim, values]
    found = [server for each in objects for server in servers_of(each, gathered(objects))]
    assert [judge(server, PLANNER).server.model for server in found] == ["Qwen/Qwen3-8B", "a"]


@pytest.mark.parametrize("key", ["x[3]", "x.y", "x[a]", "[0]"])
def test_keys_that_look_like_paths(key: str) -> None:
    engine = {"image": "vllm/vllm-openai:latest", "args": ["--model", "a", "--max-model-len", "8"]}
    for each in (
        {"x": [], key: [engine]},
        {"x": [1], key: engine},
        {"kind": "X", "x": [], key: {"containers": [engine]}},
    ):
        assert [server.model for server in servers_of(each, gathered([each]))] == ["a"]


AMOUNT = r"[-+ ]?[0-9]{1,3}([.][0-9]{0,2})?(e[0-9]{1,7})?([numkKMGTPEX]i?)?|NaN|-?Infinity"


@given(st.from_regex(AMOUNT, fullmatch=True))
def test_any_amount_of_memory(written: str) -> None:
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    limits = {"resources": {"limits": {"memory": written}}}
    engine = {"image": "vllm/vllm-openai:latest", "args": ["Qwen/Qwen3-8B"], **limits, "volumeMounts": mounts}
    spec = {"containers": [engine], "volumes": [{"name": "shm", "emptyDir": {"sizeLimit": written}}]}
    for server in servers_of({"kind": "Pod", "metadata": {"name": "x"}, "spec": spec}, gathered([])):
        judge(server, PLANNER)


@given(st.text(alphabet="vllm serve-'\"\\$(){}[]<>|&;#\n=aA1` \t"))
def test_any_script(script: str) -> None:
    for command in commands(script, {"a": "b c"}):
        assert command.words
