"""The operator as a pod: what the chart asks of the kubelet, and what the kubelet makes of it."""

from typing import Any

import pytest

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.node.suite.services import SYSTEM, Services, process_facts

pytestmark = pytest.mark.usefixtures("operator")

SELECTOR = "app.kubernetes.io/name=plimsoll"


def operator_pod(kubectl: Kubectl) -> dict[str, Any]:
    """The one that runs; there may be a second on its way out."""
    pods = kubectl.get("pods", "-n", SYSTEM, "-l", SELECTOR)["items"]
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    assert len(alive) == 1
    return dict(alive[0])


def run_python(kubectl: Kubectl, code: str) -> str:
    return kubectl("exec", "deployment/plimsoll", "-n", SYSTEM, "--", "python3", "-c", code).strip()


def test_it_runs_without_rights_and_with_a_read_only_root(kubectl: Kubectl) -> None:
    status = process_facts(run_python(kubectl, "print(open('/proc/1/status').read())"))
    assert status["Uid"].split() == ["65532"] * 4
    assert int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    with pytest.raises(KubectlError, match="Read-only file system"):
        run_python(kubectl, "open('/opt/plimsoll/x', 'w')")


def test_it_started_at_the_first_try(kubectl: Kubectl) -> None:
    container = operator_pod(kubectl)["status"]["containerStatuses"][0]
    assert container["restartCount"] == 0
    assert container["ready"]


def test_a_new_operator_pod_leaves_the_fleet_alone_and_goes_on(kubectl: Kubectl, services: Services) -> None:
    services.apply("kept")
    services.until("kept", "Ready", "True")
    before = {pod["metadata"]["uid"] for pod in services.pods("kept")}
    deployment = services.get("deployment", "kept")["metadata"]["resourceVersion"]
    old = operator_pod(kubectl)["metadata"]["name"]

    kubectl("delete", "pod", old, "-n", SYSTEM)
    kubectl("rollout", "status", "deployment/plimsoll", "-n", SYSTEM, "--timeout=60s")
    services.apply("fresh")  # answered by the new one
    services.until("fresh", "Ready", "True")

    assert {pod["metadata"]["uid"] for pod in services.pods("kept")} == before
    assert services.get("deployment", "kept")["metadata"]["resourceVersion"] == deployment
    eventually(lambda: not kubectl("get", "pod", old, "-n", SYSTEM, "--ignore-not-found"))
