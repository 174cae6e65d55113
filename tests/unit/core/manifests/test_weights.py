"""Sources of weights: what is mounted, what the engine is told to serve, where caches live, who may go to the hub."""

from typing import Any

import pytest

from plimsoll.core.manifests.container import CACHE, WEIGHTS
from tests.unit.core.manifests.rendering import engine, env, planned, pod, request, template

MODEL = "Qwen/Qwen3-8B"
KEY = ".plimsoll/0.32.0-NVIDIA-L40S"
PVC = {"persistentVolumeClaim": {"claimName": "models"}}


@pytest.mark.parametrize(
    ("source", "model", "volume", "compiled", "offline"),
    [
        pytest.param(None, MODEL, {"emptyDir": {}}, CACHE, False, id="the hub by default"),
        pytest.param({"hub": {}}, MODEL, {"emptyDir": {}}, CACHE, False, id="the hub"),
        pytest.param({"pvc": {"claimName": "models"}}, MODEL, PVC, CACHE, False, id="a claim caches the hub"),
        pytest.param(
            {"pvc": {"claimName": "models", "path": "q/8b"}},
            f"{WEIGHTS}/q/8b",
            PVC,
            WEIGHTS,
            True,
            id="a folder of a claim",
        ),
        pytest.param(
            {"pvc": {"claimName": "models", "path": "q", "readOnly": True}},
            f"{WEIGHTS}/q",
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            CACHE,
            True,
            id="a read-only claim",
        ),
        pytest.param(
            {"hostPath": {"path": "/mnt/models"}},
            MODEL,
            {"hostPath": {"path": "/mnt/models", "type": "DirectoryOrCreate"}},
            CACHE,
            False,
            id="a folder of the node",
        ),
        pytest.param(
            {"image": {"reference": "r/m:1", "path": "w", "pullPolicy": "Always"}},
            f"{WEIGHTS}/w",
            {"image": {"reference": "r/m:1", "pullPolicy": "Always"}},
            CACHE,
            True,
            id="an image of weights",
        ),
    ],
)
def test_each_source(source: Any, model: str, volume: dict[str, Any], compiled: str, offline: bool) -> None:
    spec = pod(model={"source": source} if source else {})
    container = spec["containers"][0]
    assert container["args"][0] == model
    assert any(volume == {k: v for k, v in each.items() if k != "name"} for each in spec["volumes"])
    variables = env(container)
    assert variables["VLLM_CACHE_ROOT"] == f"{compiled}/{KEY}/vllm"
    assert variables["TORCHINDUCTOR_CACHE_DIR"].startswith(f"{compiled}/{KEY}/")
    assert (variables.get("HF_HUB_OFFLINE"), variables.get("TRANSFORMERS_OFFLINE")) == (
        ("1", "1") if offline else (None, None)
    )
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {each["name"] for each in spec["volumes"]}
    assert "--served-model-name" in container["args"]
    assert container["args"][container["args"].index("--served-model-name") + 1] == MODEL


def test_a_path_in_the_image_needs_no_network() -> None:
    from plimsoll.core.plan.model import bundled_config  # noqa: PLC0415

    container = engine(model={"id": "/models/qwen"}, config=bundled_config(MODEL))
    assert container["args"][0] == "/models/qwen"
    assert env(container)["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("kind", ["hub", "pvc", "hostPath"])
def test_token_and_revision_reach_whoever_fetches(kind: str) -> None:
    where = {"hub": {}, "pvc": {"claimName": "models"}, "hostPath": {"path": "/mnt"}}[kind]
    container = engine(model={"source": {kind: {**where, "tokenSecret": {"name": "hf", "key": "t"}, "revision": "v1"}}})
    assert env(container)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "t"}}
    assert container["args"][:3] == [MODEL, "--revision", "v1"]


def test_caches_of_another_engine_or_gpu_lie_apart() -> None:
    source = {"source": {"pvc": {"claimName": "models"}}}
    roots = {
        env(engine(model=source, **other))["VLLM_CACHE_ROOT"]
        for other in ({}, {"engine": {"version": "0.28.0"}}, {"hardware": {"gpu": "NVIDIA-L4"}})
    }
    assert len(roots) == 3


def test_another_source_is_another_template_and_the_same_plan() -> None:
    here, there = request(), request(model={"source": {"pvc": {"claimName": "models"}}})
    assert planned(here).choice == planned(there).choice
    assert template() != template(model={"source": {"pvc": {"claimName": "models"}}})
