# ruff: noqa: E501 - a row of a table is one line
"""``plimsoll import``: the service that would replace a workload, and everything it does not say."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from plimsoll.cli.main import app
from plimsoll.core.plan.model import bundled_config
from tests.unit.core.audit.deployments import ARGS, beside, deployment


def run(command: str, *objects: Mapping[str, Any] | str, options: tuple[str, ...] = ()) -> Result:
    text = "---\n".join(each if isinstance(each, str) else yaml.safe_dump(each) for each in objects)
    return CliRunner().invoke(app, [command, "-", *options], input=text, catch_exceptions=False)


def imported(*objects: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("import", *objects, options=("-o", "json")).stdout)
    return found


def left(found: Mapping[str, Any]) -> dict[str, str]:
    return {each["what"]: each["why"] for each in found["unexpressed"]}


def test_a_service_with_the_same_plan() -> None:
    found = imported(deployment(args=["--dtype", "bfloat16"], spec={"replicas": 2}))
    spec, choice = found["service"]["spec"], found["plan"]["choice"]
    assert found["service"]["metadata"] == {
        "name": "qwen-plimsoll", "namespace": "llm", "annotations": {"plimsoll.dev/hold": "true"},
    }  # fmt: skip
    assert spec["model"] == {
        "id": "Qwen/Qwen3-8B",
        "source": {"pvc": {"claimName": "cache", "tokenSecret": {"name": "hf", "key": "token"}}},
    }
    assert (spec["contextTokens"], spec["replicas"], spec["scaling"]) == (16384, 2, {"mode": "Fixed"})
    assert (choice["tensorParallel"], choice["gpu"], choice["engineVersion"]) == (1, "NVIDIA-H100-80GB-HBM3", "0.32.0")
    arguments = " ".join(choice["args"])
    for same in ("--max-model-len 16384", "--max-num-seqs 64", "--gpu-memory-utilization 0.9", "--dtype bfloat16"):
        assert same in arguments
    assert found["same"]
    assert all(each["reason"] for each in found["differences"])


def test_what_is_printed_is_a_service_that_can_be_applied() -> None:
    text = run("import", deployment()).stdout
    [manifest] = yaml.safe_load_all(text)
    assert manifest["kind"] == "VLLMService"
    assert run("plan", text).exit_code == 0
    assert "# Flags that differ from the running ones:" in text


@pytest.mark.parametrize(
    ("objects", "code", "said"),
    [
        pytest.param([deployment(pod={"nodeSelector": None})], 1, "no GPU product is named", id="no GPU"),
        pytest.param([deployment(container={"command": ["/run.sh"], "args": None})], 1, "is a script of the image", id="a script"),
        pytest.param([deployment(container={"image": "own/vllm-cpu:v0.32.0"})], 1, "runs on", id="CPUs"),
        pytest.param([deployment(args=["--max-model-len", "40960"], pod={"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}})],
                     1, "not feasible", id="a plan that is refused"),
        pytest.param([deployment(), "kind: [\n"], 2, "not YAML", id="something unreadable"),
        pytest.param([beside("Service", "x")], 1, "no vLLM server", id="nothing to import"),
        pytest.param([{**beside("PersistentVolumeClaim", "x"), "spec": ["a"]}], 1, "no vLLM server", id="a claim that is none"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_said(objects: list[Mapping[str, Any] | str], code: int, said: str) -> None:
    result = run("import", *objects)
    assert result.exit_code == code
    assert said in result.stdout + result.stderr


def test_an_autoscaler_keeps_the_replicas() -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "qwen"}
    scaler = beside("HorizontalPodAutoscaler", "q", spec={"scaleTargetRef": target, "maxReplicas": 4})
    found = imported(deployment(spec={"replicas": 2}), scaler)
    assert found["service"]["spec"]["scaling"] == {"mode": "External"}
    assert "replicas" not in found["service"]["spec"]
    assert found["service"]["spec"]["hardware"]["maxGPUs"] == 4
    assert "target the VLLMService" in left(found)["HorizontalPodAutoscaler q"]


def test_weights_in_a_folder_of_a_claim() -> None:
    mount = [{"name": "cache", "mountPath": "/models"}]
    found = imported(deployment(container={"args": ["/models/Qwen3-8B", *ARGS[1:]], "volumeMounts": mount}))
    model = found["service"]["spec"]["model"]
    assert model == {"id": "Qwen/Qwen3-8B", "source": {"pvc": {"claimName": "cache", "path": "Qwen3-8B"}}}
    assert "by its name" in left(found)["the folder /models/Qwen3-8B"]


def test_what_the_operators_owner_may_refuse_is_listed() -> None:
    token = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "team-secret", "key": "t"}}}
    volumes = [{"name": "cache", "hostPath": {"path": "/mnt/models"}}]
    found = imported(deployment(container={"env": [token]}, pod={"volumes": volumes}))
    source = found["service"]["spec"]["model"]["source"]
    assert source == {"hostPath": {"path": "/mnt/models", "tokenSecret": {"name": "team-secret", "key": "t"}}}
    assert {"the token Secret team-secret", "the node's folder /mnt/models"} <= set(left(found))
    assert found["refusal"] is None


def test_what_a_release_no_longer_takes_is_left_out_with_the_reason() -> None:
    found = imported(deployment(args=["--swap-space", "16", "--max-num-batched-token", "4096", "--api-key", "sk-1"]))
    arguments = found["service"]["spec"]["engine"]["extraArgs"]
    assert "--max-num-batched-tokens" in arguments
    assert not {"--swap-space", "--api-key", "--max-num-batched-token"} & set(arguments)
    assert "last seen in 0.16.0" in left(found)["--swap-space 16"]
    assert "Secret" in left(found)["--api-key"]
    assert "sk-1" not in json.dumps([found["unexpressed"], found["differences"], found["service"]])


def test_an_engine_older_than_any_we_know_becomes_the_newest() -> None:
    found = imported(deployment(container={"image": "vllm/vllm-openai:v0.8.5"}))
    assert found["service"]["spec"]["engine"]["version"] == "0.32.0"
    assert "0.32.0 is taken" in left(found)["vLLM 0.8.5"]
    # Its default share of memory is not that of the new release.
    assert "0.9" in found["service"]["spec"]["engine"]["extraArgs"]


def test_a_configuration_that_was_given_has_to_be_in_the_cluster_too(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(bundled_config("Qwen/Qwen3-8B").config), encoding="utf-8")  # type: ignore[union-attr] # it is
    own = deployment(container={"args": ["acme/own-8b", *ARGS[1:]]})
    found = json.loads(run("import", own, options=("-o", "json", "--model-config", str(path))).stdout)
    assert found["same"]
    assert "configRef" in left(found)["the model's configuration"]


def test_the_pod_around_the_engine() -> None:
    pod = {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "pool": "inference"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "serviceAccountName": "runner",
    }
    found = imported(deployment(pod=pod, env={"NCCL_DEBUG": "INFO", "VLLM_USE_V1": "1", "VLLM_API_KEY": "sk-1"}))
    template = found["service"]["spec"]["podTemplate"]["spec"]
    assert template["nodeSelector"] == {"pool": "inference"}
    assert template["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert template["containers"] == [{"name": "vllm", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}]
    assert {"variable VLLM_USE_V1", "variable VLLM_API_KEY", "serviceAccountName of the pod"} <= set(left(found))
    assert found["refusal"] is None
