"""Engines that die: what the kubelet says about it is what the service's conditions say."""

from e2e.eventually import eventually
from e2e.node.suite.services import Services

MEMORY_LIMIT = "192Mi"


def test_a_missing_image_is_named(services: Services) -> None:
    services.apply("svc", engine={"version": "0.28.0"})
    condition = services.until("svc", "Ready", "False", message="Pull")
    assert "vllm/vllm-openai:v0.28.0" in condition["message"]


def test_an_engine_killed_for_its_memory_is_named_and_comes_back(services: Services) -> None:
    limit_memory(services)
    services.apply("svc")
    services.until("svc", "Ready", "True")
    pod = services.pods("svc")[0]

    services.signal(pod, "SIGUSR2")
    condition = services.until("svc", "Ready", "False", message="137")
    assert "OOMKilled" in condition["message"]
    services.until("svc", "Ready", "True")
    ended = services.engine(pod)["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_an_engine_that_dies_with_exit_code_0_is_a_failure_too(services: Services) -> None:
    services.apply("svc")
    services.until("svc", "Ready", "True")
    pod = services.pods("svc")[0]

    services.signal(pod, "SIGUSR1")
    eventually(lambda: services.engine(pod)["restartCount"] == 1)
    condition = services.until("svc", "Ready", "False")
    assert "exit code 0" in condition["message"]
    services.until("svc", "Ready", "True")
    previous = services.kubectl("logs", pod["metadata"]["name"], "-n", services.namespace, "--previous")
    assert "EngineDeadError" in previous


def limit_memory(services: Services) -> None:
    """A limit by the namespace's owner: engines ask for none, a page cache only helps them."""
    metadata = {"name": "limit", "namespace": services.namespace}
    limits = [{"type": "Container", "default": {"memory": MEMORY_LIMIT}, "defaultRequest": {"memory": "32Mi"}}]
    services.kubectl.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": limits}})
