"""What a cluster refuses, or lacks: said with object, reason and a way out; others serve on; it ends by itself.

All cases stand side by side, each in a namespace of its own, so that the file takes as long as the slowest of them.
"""

import json
import os
import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import pytest

from e2e.controlplane.audit import VARIABLE
from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from e2e.look import H100, Look, manifest
from plimsoll.api import names

pytestmark = [pytest.mark.controlplane, pytest.mark.timeout(300)]

LONGEST: Final = "a" * 50
RECOVERS_WITHIN_SECONDS: Final = 120.0
"""A ReplicaSet's own back-off has grown to half a minute by then."""
REFUSED: Final = 400
CONFLICT: Final = 409
HERE: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "NAMESPACE"}}}
Objects = Sequence[dict[str, Any]]


def _object(api: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}


def _quota(**hard: str) -> Objects:
    named = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    return [_object("v1", "ResourceQuota", "small", spec={"hard": named})]


def _policy(resource: str, group: str) -> Objects:
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    said = {"expression": "false", "message": f"no {resource} on Fridays"}
    api, name = "admissionregistration.k8s.io/v1", f"no-{resource}"
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [said]}
    bound = {"policyName": name, "validationActions": ["Deny"], "matchResources": HERE}
    return [
        _object(api, "ValidatingAdmissionPolicy", name, spec=spec),
        _object(api, "ValidatingAdmissionPolicyBinding", name, spec=bound),
    ]


def _webhook_away() -> Objects:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}
    hook = {
        "name": "gate.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        **HERE,
    }
    return [_object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "gate", webhooks=[hook])]


def _workload(selector: dict[str, str], **metadata: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "pause"}
    template = {"metadata": {"labels": selector}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": selector}, "template": template}
    made = _object("apps/v1", "Deployment", "svc", spec=spec)
    return {**made, "metadata": {"name": "svc", **metadata}}


def _claim(name: str, storage_class: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": storage_class,
    }
    return _object("v1", "PersistentVolumeClaim", name, spec=spec)


def _volume(storage_class: str) -> Objects:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": storage_class,
        "hostPath": {"path": "/nowhere"},
    }
    return [
        _object("storage.k8s.io/v1", "StorageClass", storage_class, provisioner="kubernetes.io/no-provisioner"),
        _object("v1", "PersistentVolume", f"{storage_class}-1", spec=spec),
    ]


@dataclass(frozen=True)
class Case:
    """What is wrong, what is said, and what mends it."""

    reason: str
    says: tuple[str, ...]
    before: Objects = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    mended_by: Objects = ()
    """Applied in the end; without any, what was there before is deleted."""
    condition: str = "Stalled"
    selector: bool = False
    """The service has a Deployment of another selector, made by hand."""


ONE: Final = {"scaling": {"maxReplicas": 1}}
FOREIGN: Final = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}
BUDGET: Final = _object(
    "policy/v1", "PodDisruptionBudget", "svc", spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
)
CASES: Final[Mapping[str, Case]] = {
    "object-quota": Case(
        "QuotaExceeded",
        ("Deployment object-quota/svc: ResourceQuota small is used up", "count/deployments.apps", "raise or free it"),
        before=_quota(count__deployments_apps="0"),
        mended_by=_quota(count__deployments_apps="1"),
    ),
    "gpu-quota": Case(
        "QuotaExceeded",
        ("the pods: ResourceQuota small is used up", "requests.nvidia.com/gpu=1", "raise or free it"),
        before=[_object("v1", "ResourceQuota", "small", spec={"hard": {"requests.nvidia.com/gpu": "0"}})],
        mended_by=[_object("v1", "ResourceQuota", "small", spec={"hard": {"requests.nvidia.com/gpu": "1"}})],
    ),
    "no-secret": Case(
        "ObjectMissing",
        ('secret "hf" not found', "create it in namespace no-secret"),
        spec={"model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True, "source": {"hub": {"tokenSecret": {"name": "hf"}}}}},
        mended_by=[_object("v1", "Secret", "hf", stringData={"token": "t"})],
    ),
    "no-config-map": Case(
        "ObjectMissing",
        ("ConfigMap no-config-map/settings (volume conf) does not exist; create it",),
        spec={
            "podTemplate": {
                "spec": {
                    "volumes": [{"name": "conf", "configMap": {"name": "settings"}}],
                    "volumeMounts": [{"name": "conf", "mountPath": "/conf"}],
                }
            }
        },
        mended_by=[_object("v1", "ConfigMap", "settings", data={"a": "b"})],
    ),
    "no-claim": Case(
        "VolumeClaimMissing",
        ("weights", "does not exist"),
        spec={"model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True, "source": {"pvc": {"claimName": "weights"}}}, **ONE},
        mended_by=[_claim("weights", "plain"), *_volume("plain")],
    ),
    "no-storage-class": Case(
        "VolumeNotBound",
        ("PersistentVolumeClaim weights is not bound", "create StorageClass fast"),
        before=[_claim("weights", "fast")],
        spec={"model": {"id": "Qwen/Qwen3.5-9B", "textOnly": True, "source": {"pvc": {"claimName": "weights"}}}, **ONE},
        mended_by=_volume("fast"),
    ),
    "fleet-denied": Case(
        "DeniedByPolicy",
        ("Deployment fleet-denied/svc", "ValidatingAdmissionPolicy no-deployments", "no deployments on Fridays"),
        before=_policy("deployments", "apps"),
    ),
    "pods-denied": Case(
        "PodsRefused",
        ("the pods: ValidatingAdmissionPolicy no-pods", "no pods on Fridays"),
        before=_policy("pods", ""),
    ),
    "limits": Case(
        "PodsRefused",
        ("must be less than or equal to memory limit of 1Gi", "a LimitRange of the namespace does", "Raise its max"),
        before=[
            _object("v1", "LimitRange", "tiny", spec={"limits": [{"type": "Container", "max": {"memory": "1Gi"}}]})
        ],
    ),
    "webhook-away": Case(
        "Applying",
        ("Deployment webhook-away/svc: admission webhook gate.example.com does not answer",),
        before=_webhook_away(),
        condition="Reconciling",
    ),
    "name-taken": Case(
        "NameConflict",
        ("Deployment name-taken/svc exists and is not ours (managed by Helm)", "another name"),
        before=[_workload({"app": "web"}, **FOREIGN)],
    ),
    "budget-taken": Case(
        "NameConflict",
        ("PodDisruptionBudget budget-taken/svc exists and is not ours", "another name"),
        before=[BUDGET],
        spec={"scaling": {"minReplicas": 2}},
    ),
    "typo": Case(
        "Refused",
        ("Deployment typo/svc: spec.podTemplate.spec.affinity.nodeAffinty is no part of a pod",),
        spec={"podTemplate": {"spec": {"affinity": {"nodeAffinty": {}}}}},
        mended_by=[manifest("svc", "typo")],
    ),
    "selector": Case(
        "ImmutableField",
        ("Deployment selector/svc selects app=by-hand, which cannot be changed", "kubectl delete deployment svc"),
        selector=True,
    ),
}
SERVES_ALL_THE_SAME: Final = ("budget-taken",)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """With the API server's audit log, by which the tries are counted."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get(VARIABLE):
            patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("verbs")))
        options = LabOptions(nodes=f"3*{H100}:8", load_seconds=0.5, operator_env={"PLIMSOLL_SWEEP_SECONDS": "5"})
        with Lab(options) as lab:
            yield lab


@pytest.fixture(scope="module")
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@pytest.fixture(scope="module")
def broken(lab: Lab, kubectl: Kubectl) -> Lab:
    """Every case with its service, and one service that nothing is wrong with."""
    for name in (*CASES, "bystander"):
        kubectl.make("namespace", name)
    for name, case in CASES.items():
        if case.before:
            kubectl.apply(*_in(name, case.before))
    for name, resource in (("fleet-denied", "deployment"), ("pods-denied", "pod")):
        eventually(lambda name=name, resource=resource: _denied(kubectl, name, resource))  # type: ignore[misc]
    for name, case in CASES.items():
        hold = {names.ANNOTATION_HOLD: "true"} if case.selector else {}
        kubectl.apply(manifest("svc", name, hold, **case.spec))
        if case.selector:
            uid = lab.plane.api.get(f"/apis/plimsoll.dev/v1alpha1/namespaces/{name}/vllmservices/svc")["metadata"][
                "uid"
            ]
            owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "svc", "uid": uid, "controller": True}
            made = _workload({"app": "by-hand"}, ownerReferences=[owner], labels={names.LABEL_SERVICE: "svc"})
            kubectl.apply(*_in(name, [made]))
            kubectl.apply(manifest("svc", name, **case.spec))
    kubectl.apply(manifest("svc", "bystander"))
    return lab


def _in(namespace: str, objects: Objects) -> Iterator[dict[str, Any]]:
    for obj in objects:
        made = json.loads(json.dumps(obj).replace("NAMESPACE", namespace))
        yield {**made, "metadata": {**made["metadata"], "namespace": namespace}} if _namespaced(obj) else made


def _namespaced(obj: Mapping[str, Any]) -> bool:
    return obj["kind"] not in ("StorageClass", "PersistentVolume") and "admission" not in obj["apiVersion"]


def _denied(kubectl: Kubectl, namespace: str, resource: str) -> bool:
    """Policies act a moment after they were made."""
    command = ("run", "x", "--image=x") if resource == "pod" else ("create", "deployment", "x", "--image=x")
    try:
        kubectl(*command, "-n", namespace, "--dry-run=server")
    except KubectlError as error:
        return "on Fridays" in str(error)
    return False


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_said_with_object_reason_and_way_out(broken: Lab, name: str) -> None:
    case, look = CASES[name], Look(broken, name)
    found = look.until("svc", case.condition, "True", case.reason)
    assert all(text in found["message"] for text in case.says), found["message"]
    ready = look.condition("svc", "Ready")
    if name in SERVES_ALL_THE_SAME:
        look.until("svc", "Ready", "True")
    else:
        assert ready["status"] == "False"
        assert ready["reason"] in (case.reason, "Progressing")


def test_others_serve_on(broken: Lab) -> None:
    Look(broken, "bystander").until("svc", "Ready", "True", "FleetReady")


def test_no_object_is_tried_more_than_once_a_second(broken: Lab) -> None:
    """By the API server's own log, over the whole time in which everything was refused."""
    tries: dict[str, list[float]] = defaultdict(list)
    for line in (broken.plane.workdir / "audit.jsonl").read_text().splitlines():
        event = json.loads(line)
        where, code = event.get("objectRef", {}), event.get("responseStatus", {}).get("code", 0)
        if "name" in where and code >= REFUSED and code != CONFLICT and event["verb"] in ("patch", "create", "delete"):
            at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
            tries["/".join([where.get("namespace", ""), where["resource"], where["name"]])].append(at)
    assert "object-quota/deployments/svc" in tries
    for what, times in tries.items():
        for later, earlier in zip(times[3:], times, strict=False):
            assert later - earlier >= 3, f"{what} was tried four times in {later - earlier:.1f} s"


@pytest.fixture(scope="module")
def mended(broken: Lab, kubectl: Kubectl) -> Lab:
    """What was wrong is put right everywhere, and nobody tells the operator."""
    for name, case in CASES.items():
        if case.mended_by:
            kubectl.apply(*_in(name, case.mended_by))
        else:
            wrong = [_workload({"app": "by-hand"})] if case.selector else case.before
            for obj in reversed(list(_in(name, wrong))):
                kubectl("delete", obj["kind"], obj["metadata"]["name"], "-n", name)
    return broken


@pytest.mark.parametrize("name", CASES)
def test_it_ends_by_itself_when_the_cause_is_gone(mended: Lab, name: str) -> None:
    look = Look(mended, name)

    def well() -> bool:
        return (look.condition("svc", "Ready").get("status"), look.condition("svc", "Stalled").get("status")) == (
            "True",
            "False",
        )

    eventually(well, within_seconds=RECOVERS_WITHIN_SECONDS)
    assert mended.operator is not None
    assert mended.operator.process.restarts == 0


def test_a_name_at_the_limit_serves_and_a_longer_one_is_refused(lab: Lab, kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply(manifest(LONGEST, namespace, scaling={"minReplicas": 2}))
    with pytest.raises(KubectlError, match="50 characters"):
        kubectl.apply(manifest(LONGEST + "a", namespace))
    look = Look(lab, namespace)
    look.until(LONGEST, "Ready", "True", "FleetReady")
    made = [obj for kind in ("pods", "replicasets", "controllerrevisions", "services") for obj in look.all(kind)]
    assert max(len(obj["metadata"]["name"]) for obj in made) <= 63
    # The same name with another end is another service, although pods' names are cut.
    kubectl.apply(manifest(f"{LONGEST[:-1]}b", namespace))
    look.until(f"{LONGEST[:-1]}b", "Ready", "True", "FleetReady")


def test_a_namespace_goes_with_all_that_is_in_it(lab: Lab, kubectl: Kubectl) -> None:
    """No finalizer holds it up, and nothing is made anew in it while it goes.

    Without pods, since Kubernetes looks at a namespace again only after half their grace period.
    """
    parked: dict[str, Any] = {"scaling": {"mode": "Fixed"}, "replicas": 0}
    leaving = f"leaving-{secrets.token_hex(4)}"
    kubectl("create", "namespace", leaving)
    kubectl.apply(manifest("svc", leaving, **parked), manifest("wrong", leaving, contextTokens=300_000))
    look = Look(lab, leaving)
    look.until("svc", "Ready", "True", "Parked")
    look.until("wrong", "Stalled", "True")
    assert not look.all("pods")  # not even for a moment: one that drains would still be there
    kubectl("delete", "namespace", leaving, "--wait=false")
    kubectl.apply(manifest("bystander", "default"))
    eventually(
        lambda: not kubectl("get", "namespace", leaving, "--ignore-not-found"),
        within_seconds=90,
        otherwise=lambda: kubectl("get", "namespace", leaving, "--ignore-not-found", "-o", "yaml"),
    )
    Look(lab, "default").until("bystander", "Ready", "True")
    kubectl("create", "namespace", leaving)
    kubectl.apply(manifest("svc", leaving, **parked))
    look.until("svc", "Ready", "True", "Parked")
    assert lab.operator is not None
    assert "Traceback" not in lab.operator.process.log.read_text()
