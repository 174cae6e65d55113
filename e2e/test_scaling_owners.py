"""Who sets the replicas: a HorizontalPodAutoscaler on /scale, one on our Deployment, a hand-over, a hand-edit."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.external_metrics import ExternalMetrics
from e2e.labrun import Lab, LabOptions
from e2e.look import Apply, Look

pytestmark = pytest.mark.controlplane

WINDOW_SECONDS: Final = 6


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    env = {"PLIMSOLL_METRICS_INTERVAL_SECONDS": "1", "PLIMSOLL_SCALE_DOWN_SECONDS": str(WINDOW_SECONDS)}
    options = LabOptions(nodes="1*NVIDIA-H100-80GB-HBM3:8", load_seconds=1.0, operator_env=env)
    with Lab(options) as lab:
        yield lab


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


def count(look: Look, name: str) -> int:
    return int(look.get("deployments", name)["spec"]["replicas"])


def decided(look: Look, name: str) -> list[str]:
    return [entry["reason"] for entry in look.get("vllmservices", name)["status"].get("decisions", [])]


def autoscaler(look: Look, api: str, kind: str, metric: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "theirs", "namespace": look.namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": api, "kind": kind, "name": "svc"},
            "minReplicas": 1,
            "maxReplicas": 6,
            "metrics": [metric],
        },
    }


QUEUE: Final = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "4"}},
}
CPU: Final = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def test_an_hpa_owns_the_replicas_through_scale(lab: Lab, apply: Apply, look: Look, kubectl: Kubectl) -> None:
    apply("svc", scaling={"mode": "External"}, hardware={"gpu": "NVIDIA-H100-80GB-HBM3", "maxGPUs": 4})
    look.until("svc", "Ready", "True")
    with ExternalMetrics(lab.plane, "queue") as metrics:
        metrics.value = 16
        kubectl.apply(autoscaler(look, "plimsoll.dev/v1alpha1", "VLLMService", QUEUE))
        eventually(lambda: count(look, "svc") == 4, within_seconds=60)
        service = look.get("vllmservices", "svc")
        assert service["spec"]["replicas"] == 4
        assert service["status"]["scaling"]["setBy"] == "spec.replicas"
        eventually(lambda: look.get("vllmservices", "svc")["status"]["scaling"].get("recommendedReplicas"))
        metrics.value = 100
        limited = look.until("svc", "ScalingLimited", "True", "MaxGPUs")
        assert "maxGPUs is 4" in limited["message"]
        assert count(look, "svc") == 4
        writers = {
            m["manager"]
            for m in service["metadata"]["managedFields"]
            if "f:replicas" in str(m["fieldsV1"].get("f:spec"))
        }
        assert not {writer for writer in writers if writer.startswith("plimsoll")}
        kubectl("delete", "hpa", "theirs", "-n", look.namespace)


def test_an_hpa_on_our_deployment_is_yielded_to(apply: Apply, look: Look, kubectl: Kubectl) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    kubectl.apply(autoscaler(look, "apps/v1", "Deployment", CPU))
    kubectl("scale", "deployment/svc", "--replicas=3", "-n", look.namespace)
    told = look.until("svc", "Contested", "True", "OtherAutoscaler")
    assert "HorizontalPodAutoscaler theirs targets the Deployment" in told["message"]
    eventually(lambda: look.get("deployments", "svc")["status"].get("readyReplicas") == 3)
    assert look.condition("svc", "Ready")["status"] == "True"
    kubectl("delete", "hpa", "theirs", "-n", look.namespace)
    kubectl("annotate", "deployment/svc", "example.com/look=again", "-n", look.namespace)
    look.until("svc", "Contested", "False")
    assert count(look, "svc") == 3
    eventually(lambda: count(look, "svc") == 1, within_seconds=90)
    assert decided(look, "svc")[:3] == ["Planned", "Yielded", "TakenOver"]


def test_leaving_auto_loses_nothing_and_coming_back_starts_at_what_runs(apply: Apply, look: Look) -> None:
    apply("svc", scaling={"minReplicas": 3})
    look.until("svc", "Ready", "True")
    apply("svc", scaling={"mode": "Fixed"})
    eventually(lambda: "HandedOver" in decided(look, "svc"))
    assert count(look, "svc") == 3
    eventually(lambda: count(look, "svc") == 1, within_seconds=60)
    apply("svc", scaling={"mode": "Fixed"}, replicas=2)
    eventually(lambda: count(look, "svc") == 2)
    apply("svc")
    eventually(lambda: "TakenOver" in decided(look, "svc"))
    assert count(look, "svc") == 2


def test_a_restart_keeps_the_count_and_its_story(lab: Lab, apply: Apply, look: Look) -> None:
    assert lab.operator is not None
    apply("svc", scaling={"minReplicas": 2})
    look.until("svc", "Ready", "True")
    apply("svc", scaling={"minReplicas": 1})
    before = eventually(lambda: look.get("vllmservices", "svc")["status"]["decisions"])
    lab.operator.stop()
    look.kubectl("scale", "deployment/svc", "--replicas=5", "-n", look.namespace)
    lab.operator.start()
    eventually(lambda: count(look, "svc") <= 2)
    after = look.get("vllmservices", "svc")["status"]["decisions"]
    assert after[: len(before)] == before
