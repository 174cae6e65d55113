"""With others at the same objects: field managers, kubectl, and what Flux and Argo CD see at every moment."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.look import Apply, Look, manifest
from e2e.operator_process import Operator
from e2e.watching import Watching
from tests.kstatus import compute
from tests.unit.deploy.argo import health

pytestmark = pytest.mark.controlplane

DEADLINE: Final = ".spec.progressDeadlineSeconds"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    # No sweep during a test: what is repaired is repaired because it was seen.
    options = LabOptions(
        nodes="2*NVIDIA-H100-80GB-HBM3:8", load_seconds=1.0, operator_env={"PLIMSOLL_SWEEP_SECONDS": "600"}
    )
    with Lab(options) as lab:
        yield lab


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@pytest.fixture
def operator(lab: Lab) -> Operator:
    assert lab.operator is not None
    return lab.operator


def _container(look: Look, name: str) -> dict[str, Any]:
    containers = look.get("deployments", "svc")["spec"]["template"]["spec"]["containers"]
    return next(c for c in containers if c["name"] == name)


def test_what_others_add_survives_a_new_template(apply: Apply, look: Look, kubectl: Kubectl) -> None:
    apply("svc")
    look.until("svc", "Ready", "True")
    kubectl("label", "deployment", "svc", "team=search", "-n", look.namespace)
    kubectl("annotate", "service", "svc", "note=ours", "-n", look.namespace)
    kubectl("set", "env", "deployment/svc", "TEAM=search", "-n", look.namespace)
    sidecar = {"spec": {"template": {"spec": {"containers": [{"name": "proxy", "image": "proxy:1"}]}}}}
    kubectl("patch", "deployment", "svc", "-n", look.namespace, "-p", json.dumps(sidecar))
    apply("svc", load={"concurrency": 64, "promptTokens": 100, "outputTokens": 100})
    eventually(lambda: "64" in _container(look, "vllm")["args"])
    assert look.get("deployments", "svc")["metadata"]["labels"]["team"] == "search"
    assert look.get("services", "svc")["metadata"]["annotations"]["note"] == "ours"
    assert {"name": "TEAM", "value": "search"} in _container(look, "vllm")["env"]
    assert _container(look, "proxy")["image"] == "proxy:1"


def test_two_appliers_never_fight(apply: Apply, look: Look, kubectl: Kubectl, operator: Operator) -> None:
    """An applier that forces our field is answered a few times, then named; all else goes on; it may give up."""
    apply("svc")
    look.until("svc", "Ready", "True")
    planned = look.get("deployments", "svc")["spec"]["progressDeadlineSeconds"]
    theirs = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "svc", "namespace": look.namespace},
        "spec": {"progressDeadlineSeconds": 4321},
    }

    def force() -> dict[str, Any]:
        _apply_as(kubectl, "argocd-controller", theirs)
        return look.condition("svc", "Contested")

    before = operator.writes("deployments")
    eventually(lambda: force().get("status") == "True", within_seconds=60)
    for _ in range(20):
        force()
    assert operator.writes("deployments") - before <= 8
    contested = look.condition("svc", "Contested")
    assert contested["reason"] == "FieldContested"
    assert "argocd-controller keeps changing spec.progressDeadlineSeconds" in contested["message"]
    look.until("svc", "Stalled", "True", "FieldContested")

    kubectl("label", "service", "svc", "app.kubernetes.io/part-of=other", "--overwrite", "-n", look.namespace)
    eventually(lambda: look.get("services", "svc")["metadata"]["labels"]["app.kubernetes.io/part-of"] == "plimsoll")
    apply("other")
    look.until("other", "Ready", "True")

    _apply_as(kubectl, "argocd-controller", theirs | {"spec": {}})
    eventually(lambda: look.get("deployments", "svc")["spec"]["progressDeadlineSeconds"] == planned)


def _apply_as(kubectl: Kubectl, manager: str, obj: dict[str, Any]) -> None:
    flags = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
    kubectl("apply", *flags, "-f", "-", stdin=json.dumps(obj))


def test_a_mutating_policy_has_the_last_word(apply: Apply, look: Look, kubectl: Kubectl, operator: Operator) -> None:
    here = {"matchLabels": {"kubernetes.io/metadata.name": look.namespace}}
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    expression = "Object{spec: Object.spec{progressDeadlineSeconds: 77}}"
    api = "admissionregistration.k8s.io/v1"
    policy = {
        "apiVersion": api,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": look.namespace},
        "spec": {
            "matchConstraints": {"namespaceSelector": here, "resourceRules": [rule]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        },
    }
    binding = {
        "apiVersion": api,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": look.namespace},
        "spec": {"policyName": look.namespace},
    }
    kubectl.apply(policy, binding)
    probe = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe", "namespace": look.namespace}}
    labels = {"app": "probe"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "c"}]}}
    body = {**probe, "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}}

    def enforced() -> bool:
        kubectl.apply(body)
        return kubectl("get", "deployment", "probe", "-n", look.namespace, "-o", f"jsonpath={{{DEADLINE}}}") == "77"

    eventually(enforced)
    before = operator.writes("deployments")
    apply("svc")
    look.until("svc", "Ready", "True")
    contested = look.until("svc", "Contested", "True", "ChangedByAdmission")
    assert "gives spec.progressDeadlineSeconds another value" in contested["message"]
    assert look.condition("svc", "Stalled")["status"] == "False"
    assert operator.writes("deployments") - before <= 3
    kubectl("delete", "mutatingadmissionpolicybinding", look.namespace)


def test_git_and_cluster_are_equal_at_rest(apply: Apply, look: Look, kubectl: Kubectl) -> None:
    """`kubectl diff` and Argo CD's server-side dry run find nothing, with replicas left to an autoscaler, too."""
    apply("svc")
    apply("scaled", scaling={"mode": "External"})
    for name in ("svc", "scaled"):
        look.until(name, "Ready", "True")
    kubectl("scale", "vllm/scaled", "--replicas=2", "-n", look.namespace)
    eventually(lambda: look.get("vllmservices", "scaled")["status"].get("readyReplicas") == 2)
    for name, spec in (("svc", {}), ("scaled", {"scaling": {"mode": "External"}})):
        document = json.dumps(manifest(name, look.namespace, **spec))
        kubectl("diff", "--server-side", "-f", "-", stdin=document)
        look.quiet()
        live = look.get("vllmservices", name)
        dry = kubectl(
            "apply", "--server-side", "--dry-run=server", "--field-manager=argocd-controller", "--force-conflicts",
            "-o", "json", "-f", "-", stdin=document,
        )  # fmt: skip
        after = json.loads(dry)
        assert after["spec"] == live["spec"]
        assert after["metadata"]["generation"] == live["metadata"]["generation"]


def test_flux_and_argo_follow_a_life(apply: Apply, look: Look, kubectl: Kubectl) -> None:
    """From its creation on, no moment says finished before the fleet serves, and scaling never says otherwise again."""
    apply("first")
    with Watching(kubectl, "vllm", "-n", look.namespace) as seen:
        apply("svc", scaling={"mode": "External"})
        look.until("svc", "Ready", "True")
        states = eventually(_ready_in(seen))
        verdicts = [compute(state).status for state in states]
        assert verdicts == ["InProgress"] * (len(verdicts) - 1) + ["Current"]
        assert [health(state)["status"] for state in states] == [
            "Healthy" if verdict == "Current" else "Progressing" for verdict in verdicts
        ]

        kubectl("scale", "vllm/svc", "--replicas=3", "-n", look.namespace)
        eventually(lambda: look.get("vllmservices", "svc")["status"].get("readyReplicas") == 3)
        look.until("svc", "Ready", "True")
        later = _of(seen, "svc")[len(states) :]
        told = [state for state in later if state["status"]["observedGeneration"] == state["metadata"]["generation"]]
        assert told
        assert {compute(state).status for state in told} == {"Current"}
        assert {health(state)["status"] for state in told} == {"Healthy"}

        apply("svc", scaling={"mode": "External"}, contextTokens=300_000)
        look.until("svc", "Stalled", "True")
        eventually(lambda: compute(_of(seen, "svc")[-1]).status == "Failed")
        last = _of(seen, "svc")[-1]
        assert "300000" in compute(last).message
        assert health(last)["status"] == "Degraded"


def _of(seen: Watching, name: str) -> list[dict[str, Any]]:
    return [state for state in seen.states() if state["metadata"]["name"] == name]


def _ready_in(seen: Watching) -> Callable[[], list[dict[str, Any]]]:
    def states() -> list[dict[str, Any]]:
        found = _of(seen, "svc")
        return found if found and compute(found[-1]).status == "Current" else []

    return states


def test_kubectl_waits_and_scales(apply: Apply, look: Look, kubectl: Kubectl) -> None:
    apply("svc", scaling={"mode": "Fixed"})
    kubectl("wait", "vllm/svc", "--for=condition=Ready", "--timeout=60s", "-n", look.namespace)
    assert "successfully rolled out" in kubectl(
        "rollout", "status", "deploy/svc", "--timeout=30s", "-n", look.namespace
    )
    kubectl("scale", "vllm/svc", "--replicas=2", "-n", look.namespace)
    kubectl("wait", "vllm/svc", "--for=jsonpath={.status.readyReplicas}=2", "--timeout=60s", "-n", look.namespace)
    kubectl("scale", "deploy/svc", "--replicas=1", "-n", look.namespace)
    eventually(lambda: look.get("deployments", "svc")["spec"]["replicas"] == 2)
    apply("auto")
    with pytest.raises(KubectlError, match="External or Fixed"):
        kubectl("scale", "vllm/auto", "--replicas=2", "-n", look.namespace)
