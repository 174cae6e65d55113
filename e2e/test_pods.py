"""Pods on a real API server: restricted namespaces take them, and refusals of templates reach the user."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.controlplane.api import ApiError
from e2e.controlplane.kubectl import Kubectl
from e2e.eventually import eventually
from e2e.labrun import Lab, LabOptions
from plimsoll.api import names

pytestmark = pytest.mark.controlplane

H100: Final = "NVIDIA-H100-80GB-HBM3"
POLICY: Final = {
    "allow": {"hostPaths": ["/mnt/models"], "secrets": ["mirror"]},
    "defaults": {"metadata": {"labels": {"cost-centre": "ml"}}},
}
SOURCES: Final[dict[str, Any]] = {
    "hub": {"hub": {"tokenSecret": {"name": "hf-token"}, "revision": "v1"}},
    "claim": {"pvc": {"claimName": "shared", "path": "qwen"}},
    "image": {"image": {"reference": "registry.example.com/qwen:1"}},
}
TEMPLATE: Final[dict[str, Any]] = {
    "metadata": {"labels": {"team": "search"}},
    "spec": {
        "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}],
        "containers": [{"name": "proxy", "image": "proxy:1", "livenessProbe": {"tcpSocket": {"port": 9000}}}],
        "volumes": [
            {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "settings", "projected": {"sources": [{"configMap": {"name": "a", "optional": True}}]}},
        ],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "resources": {"limits": {"memory": "64Gi"}, "requests": {"cpu": 1}},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 2}],
        "securityContext": {"supplementalGroups": [3000]},
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "imagePullSecrets": [{"name": "mirror"}],
    },
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    policy: Path = tmp_path_factory.mktemp("policy") / "pods.yaml"
    policy.write_text(yaml.safe_dump(POLICY), encoding="utf-8")
    env = {"PLIMSOLL_SWEEP_SECONDS": "5", "PLIMSOLL_POD_POLICY": str(policy)}
    with Lab(LabOptions(nodes=f"2*{H100}:8", load_seconds=0.5, operator_env=env)) as lab:
        yield lab


@pytest.fixture
def kubectl(lab: Lab) -> Kubectl:
    return lab.plane.kubectl


@pytest.fixture
def restricted(lab: Lab, namespace: str) -> str:
    """A namespace that enforces the level restricted, with the claims that the tests mount."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    lab.plane.kubectl("label", "namespace", namespace, label)
    for name, mode in (("shared", "ReadWriteMany"), ("single", "ReadWriteOnce")):
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": name, "namespace": namespace}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
        lab.plane.kubectl.apply(claim)
    return namespace


Apply = Callable[..., None]


@pytest.fixture
def apply(lab: Lab, restricted: str) -> Apply:
    def make(name: str, source: dict[str, Any] | None = None, **spec: Any) -> None:
        model = {"id": "Qwen/Qwen3.5-9B", "textOnly": True, **({"source": source} if source else {})}
        base = {"model": model, "hardware": {"gpu": H100}, "contextTokens": 32_768}
        meta = {"name": name, "namespace": restricted}
        manifest = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": meta, "spec": base | spec}
        lab.plane.kubectl.apply(manifest)

    return make


def condition(lab: Lab, namespace: str, name: str, kind: str) -> dict[str, Any]:
    service = lab.plane.api.get(f"/apis/plimsoll.dev/v1alpha1/namespaces/{namespace}/vllmservices/{name}")
    found = service.get("status", {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), {})


def until(lab: Lab, namespace: str, name: str, kind: str, status: str) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        found = condition(lab, namespace, name, kind)
        return found if found.get("status") == status else None

    found = eventually(there, within_seconds=60)
    assert found is not None
    return found


def pods(lab: Lab, namespace: str, name: str) -> list[dict[str, Any]]:
    found = lab.plane.api.get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={names.LABEL_SERVICE}%3D{name}")
    return list(found["items"])


def test_every_source_and_a_full_template_pass_where_restricted_is_enforced(
    lab: Lab, restricted: str, apply: Apply
) -> None:
    """The API server's own admission judges each pod: a refused one would never exist."""
    for name, source in SOURCES.items():
        apply(name, source, podTemplate=TEMPLATE)
    apply("plain")
    for name in (*SOURCES, "plain"):
        (pod,) = eventually(partial(pods, lab, restricted, name), within_seconds=60)
        assert pod["metadata"]["labels"]["cost-centre"] == "ml"
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    (pod,) = pods(lab, restricted, "hub")
    assert pod["metadata"]["labels"]["team"] == "search"
    engine, proxy = pod["spec"]["containers"]
    assert {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"} in engine["env"]
    assert engine["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": "1"}
    assert proxy["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    until(lab, restricted, "plain", "Ready", "True")


def test_an_engine_that_is_not_restricted_is_refused_there_and_the_reason_is_the_servers(
    lab: Lab, restricted: str, apply: Apply
) -> None:
    apply("svc", engine={"security": "Baseline"})
    sets = f"/apis/apps/v1/namespaces/{restricted}/replicasets"

    def refused() -> str:
        conditions = [c for rs in lab.plane.api.get(sets)["items"] for c in rs.get("status", {}).get("conditions", [])]
        return " ".join(c["message"] for c in conditions if c["type"] == "ReplicaFailure")

    assert "runAsNonRoot" in (eventually(refused, within_seconds=60) or "")
    assert pods(lab, restricted, "svc") == []


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        pytest.param(
            {"podTemplate": {"spec": {"hostNetwork": True}}},
            "PodTemplateRefused",
            "spec.podTemplate.spec.hostNetwork: true is not allowed",
            id="the host's network",
        ),
        pytest.param(
            {"podTemplate": {"spec": {"envFrom": [{"secretRef": {"name": "db"}}]}}},
            "PodTemplateRefused",
            "db is not allowed (allowed: mirror); the operator's owner can change that",
            id="a Secret that is not listed",
        ),
        pytest.param(
            {"source": {"hostPath": {"path": "/var/lib/kubelet"}}},
            "SourceRefused",
            "/var/lib/kubelet is not allowed (allowed: /mnt/models)",
            id="a folder of the node",
        ),
        pytest.param(
            {"source": {"pvc": {"claimName": "single"}}},
            "VolumeNotShareable",
            "single is ReadWriteOnce",
            id="a volume of one node under several replicas",
        ),
    ],
)
def test_what_is_not_allowed_is_refused_with_field_value_and_who_can_change_it(
    lab: Lab, restricted: str, apply: Apply, spec: dict[str, Any], reason: str, says: str
) -> None:
    apply("svc", **spec)
    planned = until(lab, restricted, "svc", "Planned", "False")
    assert planned["reason"] == reason
    assert says in planned["message"]
    assert pods(lab, restricted, "svc") == []


def test_a_claim_is_waited_for_and_then_used(lab: Lab, restricted: str, apply: Apply) -> None:
    apply("svc", {"pvc": {"claimName": "late"}}, scaling={"maxReplicas": 1})
    assert until(lab, restricted, "svc", "Planned", "False")["reason"] == "VolumeClaimMissing"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "late", "namespace": restricted}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}
    lab.plane.kubectl.apply(claim)
    until(lab, restricted, "svc", "Planned", "True")
    fleet = eventually(lambda: _fleet(lab, restricted, "svc"), within_seconds=30)
    assert fleet is not None
    # No second pod may mount it meanwhile: no surge.
    assert fleet["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_a_new_source_is_a_new_template_and_a_restart_one_by_one(lab: Lab, restricted: str, apply: Apply) -> None:
    apply("svc")
    until(lab, restricted, "svc", "Ready", "True")
    before = _fleet(lab, restricted, "svc")
    apply("svc", SOURCES["hub"])
    eventually(lambda: "HF_TOKEN" in str(_fleet(lab, restricted, "svc")["spec"]["template"]), within_seconds=30)
    after = _fleet(lab, restricted, "svc")["spec"]["template"]["spec"]["containers"][0]
    assert after["args"][:3] == ["Qwen/Qwen3.5-9B", "--revision", "v1"]
    assert after["args"][3:] == before["spec"]["template"]["spec"]["containers"][0]["args"][1:]


def _fleet(lab: Lab, namespace: str, name: str) -> dict[str, Any]:
    try:
        return lab.plane.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    except ApiError as error:
        if error.code != 404:
            raise
        return {}
