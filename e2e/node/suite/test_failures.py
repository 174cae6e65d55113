"""Engines that die: what the kubelet says about it is what the service's conditions say."""

import pytest

from e2e.eventually import eventually
from e2e.fleet.vllm_args import NEWEST
from e2e.node.images.store import GPU, SMALL_ENGINE_VERSION
from e2e.node.suite.services import Services

MEMORY_LIMIT = "192Mi"
NOWHERE = (
    "registry.invalid/vllm-openai:v1"  # a name that no name server has, so a cluster on the internet pulls nothing
)
SMALL_GPU = {"model": {"id": "Qwen/Qwen3-8B"}, "engine": {"version": SMALL_ENGINE_VERSION}}
ONE_GPU = {"gpu": GPU, "maxGPUs": 1}


@pytest.fixture(scope="module")
def failing(services: Services) -> Services:
    """All of them side by side, in a namespace whose owner limits memory: engines themselves ask for no limit."""
    metadata = {"name": "limit", "namespace": services.namespace}
    limits = [{"type": "Container", "default": {"memory": MEMORY_LIMIT}, "defaultRequest": {"memory": "32Mi"}}]
    services.kubectl.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}})
    services.apply("no-image", engine={"image": NOWHERE, "version": NEWEST})
    services.apply("small-gpu", contextTokens=32768, **SMALL_GPU)
    services.apply("too-small", contextTokens=40960, hardware=ONE_GPU, **SMALL_GPU)
    services.apply("greedy")
    services.apply("mortal")
    settings = {"volumes": [{"name": "conf", "configMap": {"name": "late"}}]}
    mounted = {"volumeMounts": [{"name": "conf", "mountPath": "/conf"}]}  # the kubelet ignores a volume nobody mounts
    services.apply("no-settings", podTemplate={"spec": {**settings, **mounted}})
    return services


def test_a_missing_image_is_named(failing: Services) -> None:
    condition = failing.until("no-image", "Ready", "False", message="Pull")
    assert NOWHERE in condition["message"]


def test_a_volume_that_is_not_there_is_named_by_the_kubelets_events(failing: Services) -> None:
    condition = failing.until("no-settings", "Stalled", "True", message="late")
    assert condition["reason"] == "ObjectMissing"
    assert f"ConfigMap {failing.namespace}/late (volume conf) does not exist" in condition["message"]
    metadata = {"name": "late", "namespace": failing.namespace}
    failing.kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    failing.until("no-settings", "Ready", "True")


def test_a_cache_that_is_too_small_is_planned_again_with_what_the_log_says(failing: Services) -> None:
    failing.until("small-gpu", "Ready", "True")
    assert "the engine found" in str(failing.get("vllmservice", "small-gpu")["status"]["plan"]["assumptions"])


def test_a_cache_that_no_plan_makes_large_enough_is_in_status_and_logs(failing: Services) -> None:
    condition = failing.until("too-small", "Stalled", "True", message="40960")
    assert condition["reason"] == "KVCacheTooSmall"
    pod = failing.pods("too-small")[0]
    ended = eventually(lambda: failing.engine(pod).get("lastState", {}).get("terminated"))
    assert ended["exitCode"] == 1
    assert "Engine core initialization failed" in ended["message"]  # all that a message of the log's end can hold
    log = failing.kubectl("logs", pod["metadata"]["name"], "-n", failing.namespace, "--previous")
    assert "To serve at least one request" in log


def test_an_engine_killed_for_its_memory_is_named_and_comes_back(failing: Services) -> None:
    failing.until("greedy", "Ready", "True")
    pod = failing.pods("greedy")[0]
    failing.signal(pod, "SIGUSR2")
    condition = failing.until("greedy", "Ready", "False", message="137")
    assert "OOMKilled" in condition["message"]
    failing.until("greedy", "Ready", "True")
    ended = failing.engine(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_an_engine_that_dies_with_exit_code_0_has_failed(failing: Services) -> None:
    failing.until("mortal", "Ready", "True")
    pod = failing.pods("mortal")[0]
    failing.signal(pod, "SIGUSR1")
    condition = failing.until("mortal", "Ready", "False", message="exit code 0")
    assert "Completed" in condition["message"]
    failing.until("mortal", "Ready", "True")
    log = failing.kubectl("logs", pod["metadata"]["name"], "-n", failing.namespace, "--previous")
    assert "EngineDeadError" in log
