"""The CRD on a real API server: it is accepted, refuses what it should in our words, and reads like a manual."""

import json
import re
from typing import Any, Final

import pytest

from e2e import agreement
from e2e.agreement import refusal
from e2e.controlplane import ControlPlane
from e2e.controlplane.kubectl import Kubectl, KubectlError
from e2e.eventually import eventually
from e2e.labrun import CHECKOUT
from plimsoll.api.schema import CRD_NAME, custom_resource_definition
from plimsoll.api.status import VLLMServiceStatus
from tests.unit.api.manifests import ACCEPTED, EXAMPLES, REFUSED, RULES, service

pytestmark = [pytest.mark.controlplane, pytest.mark.usefixtures("crd")]


@pytest.fixture(scope="module")
def crd(kubectl: Kubectl) -> dict[str, Any]:
    """The CRD as the server keeps it, once it serves."""
    kubectl.apply(custom_resource_definition())
    # `kubectl wait` fails on an object that has no status yet.
    eventually(lambda: "Established" in str(kubectl.get("crd", CRD_NAME).get("status", {}).get("conditions")))
    eventually(lambda: "vllmservices" in kubectl("api-resources", "--api-group=plimsoll.dev", "-o", "name"))
    return kubectl.get("crd", CRD_NAME)


@pytest.fixture
def qwen(kubectl: Kubectl, namespace: str) -> tuple[str, str, str]:
    """A service in mode Auto; its address as kubectl arguments."""
    kubectl.apply(service(metadata__namespace=namespace))
    return ("vllm/qwen-docs", "-n", namespace)


def test_the_server_takes_the_schema_for_structural(crd: dict[str, Any]) -> None:
    conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert conditions["NamesAccepted"] == conditions["Established"] == "True"
    assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize(("manifest", "path", "says"), REFUSED, ids=[f"{p}: {s}" for _, p, s in REFUSED])
def test_the_server_refuses_what_we_refuse(
    control_plane: ControlPlane, manifest: dict[str, Any], path: str, says: str
) -> None:
    error = refusal(control_plane.api, manifest)
    assert error is not None, f"{path} was accepted; we refuse it: {says}"
    assert error.code in {400, 422}


def test_every_rule_refuses_with_its_message(control_plane: ControlPlane) -> None:
    """Each rule is broken by a row of the table, and the server says so in our words; transitions have own tests."""
    answers = " ".join(str(refusal(control_plane.api, manifest)) for manifest, _, _ in REFUSED)
    assert [message for message, cel in RULES.items() if message not in answers and "oldSelf" not in cel] == []


@pytest.mark.parametrize("manifest", [*ACCEPTED, *EXAMPLES.values()], ids=repr)
def test_the_server_accepts_what_we_accept(control_plane: ControlPlane, manifest: dict[str, Any]) -> None:
    assert refusal(control_plane.api, manifest) is None


def test_server_and_models_agree_on_any_service(control_plane: ControlPlane) -> None:
    """A part of `python -m e2e.agreement`, which asks about thousands."""
    asked = agreement.compare(control_plane.api, seed=7, count=600)
    assert [str(each) for each in asked if not each.agreed] == []
    assert sum(each.accepted for each in asked) > 100


def test_a_small_manifest_is_completed_with_the_defaults(kubectl: Kubectl, qwen: tuple[str, ...]) -> None:
    spec = kubectl.get(*qwen)["spec"]
    assert spec == {
        "model": {"id": "Qwen/Qwen3.5-9B", "textOnly": False},
        "hardware": {"gpu": "NVIDIA-H100-80GB-HBM3", "maxGPUs": 8},
        "contextTokens": 131_072,
        "objective": "Balanced",
        "scaling": {"mode": "Auto", "minReplicas": 1},
        "tuning": {"mode": "Recommend", "load": "Learned"},
        "rollout": {"noSpareGPU": "Wait"},
        "replicas": 1,
        "mode": "Act",
    }


def test_explain_is_a_manual(kubectl: Kubectl) -> None:
    spec = " ".join(kubectl("explain", "vllmservice.spec").split())
    assert "The longest request in tokens, prompt and output together" in spec
    assert "For example 131072." in spec
    hardware = " ".join(kubectl("explain", "vllm.spec.hardware.maxGPUs").split())
    assert "including surge" in hardware
    assert "Default: 8. From 1 to 100000." in hardware
    assert "bytes" in kubectl("explain", "vllmservice.status.plan.kv").lower()


def test_scale_can_be_read_before_the_operator_has_written_anything(kubectl: Kubectl, qwen: tuple[str, ...]) -> None:
    """An HPA asks for it at once: without a default for replicas the server would answer 500."""
    scale = kubectl.get(*qwen, "--subresource=scale")
    assert scale["spec"]["replicas"] == 1
    assert scale["status"]["replicas"] == 0


def test_scaling_by_hand_in_auto_is_refused_in_our_words(kubectl: Kubectl, qwen: tuple[str, ...]) -> None:
    with pytest.raises(KubectlError, match=r"Auto: Plimsoll chooses the replicas; set scaling\.mode to"):
        kubectl("scale", *qwen, "--replicas=3")


def test_auto_may_be_left_together_with_a_new_count_and_everything_else_stays_editable(
    kubectl: Kubectl, qwen: tuple[str, ...]
) -> None:
    def patch(spec: dict[str, Any]) -> None:
        kubectl("patch", *qwen, "--type=merge", "-p", json.dumps({"spec": spec}))

    patch({"contextTokens": 65_536})
    patch({"scaling": {"mode": "External"}, "replicas": 2})
    kubectl("scale", *qwen, "--replicas=4")
    assert kubectl.get(*qwen)["spec"]["replicas"] == 4
    patch({"scaling": {"mode": "Auto"}, "replicas": 3})
    with pytest.raises(KubectlError, match=r"scaling\.mode is Auto"):
        patch({"replicas": 2})


STATUS: dict[str, Any] = {
    "servedBy": "plimsoll-system/plimsoll",
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "reason": "Progressing",
            "message": "2 of 3 replicas are ready.",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
            "observedGeneration": 1,
        }
    ],
    "summary": {"replicas": "2/3"},
    "plan": {
        "revision": "qwen-docs-5d8f",
        "choice": {
            "gpu": "NVIDIA-H100-80GB-HBM3",
            "replicas": 3,
            "gpusPerReplica": 2,
            "nodesPerReplica": 1,
            "enginesPerReplica": 1,
            "tensorParallel": 2,
            "pipelineParallel": 1,
            "dataParallel": 1,
            "decodeContextParallel": 1,
            "expertParallel": False,
            "engineVersion": "0.32.0",
            "args": ["--max-model-len", "131072"],
        },
        "kv": {
            "blockSize": 528,
            "bytesPerBlock": 8_650_752,
            "numBlocks": 6_000,
            "tokens": 3_168_000,
            "bytesPerToken": 16_384.5,
            "maxConcurrency": 24.1,
            "blocksPerRequestAtLoad": 14,
            "concurrencyAtLoad": 428.5,
        },
        "memory": [{"item": "weights", "bytes": 18_000_000_000, "basis": "exact", "from": "the configuration"}],
        "availableKVBytes": {"low": 50e9, "mid": 51.5e9, "high": 53e9},
        "latency": {"ttftMs": {"low": 300, "mid": 420.5, "high": 700}, "itlMs": {"low": 9, "mid": 11, "high": 15}},
        "sloMet": "yes",
        "rejected": [{"choice": "TP1 on NVIDIA-L4", "reason": "KVCacheTooSmall", "message": "2.1 GiB short"}],
        "nearest": [{"change": "contextTokens: 262144 -> 180224", "message": "fits with TP 1"}],
        "assumptions": ["text only"],
    },
    "replicas": 3,
    "readyReplicas": 2,
    "selector": "app.kubernetes.io/instance=qwen-docs,plimsoll.dev/track=main",
    "observed": {"kvTokensPerPod": 3_160_000, "demandTokens": 400_000, "bottleneck": "KVBound"},
    "decisions": [
        {
            "time": "2026-01-02T03:04:05.678901Z",
            "kind": "Scale",
            "from": "2",
            "to": "3",
            "reason": "KVBound",
            "message": "demand 9.1 M tokens, supply 6.3 M",
            "inputs": {"kvUse": "97%", "waiting": "12"},
            "alternatives": ["2: 144% of the blocks"],
        }
    ],
}


@pytest.fixture
def planned(kubectl: Kubectl, qwen: tuple[str, ...]) -> tuple[str, ...]:
    """The service with a full status, as the operator would write it."""
    kubectl("patch", *qwen, "--subresource=status", "--type=merge", "-p", json.dumps({"status": STATUS}))
    return qwen


def test_nothing_of_a_full_status_is_dropped(kubectl: Kubectl, planned: tuple[str, ...]) -> None:
    assert kubectl.get(*planned)["status"] == STATUS
    model = VLLMServiceStatus.model_validate(STATUS, by_alias=True, by_name=False)
    assert model.model_dump(mode="json", by_alias=True, exclude_none=True) == STATUS


def test_an_autoscaler_finds_the_selector(kubectl: Kubectl, planned: tuple[str, ...]) -> None:
    scale = kubectl.get(*planned, "--subresource=scale")
    assert scale["status"] == {"replicas": 3, "selector": STATUS["selector"]}


def columns(table: str) -> list[dict[str, str]]:
    """Kubectl's table as rows; columns stand at least three blanks apart."""
    head, *rows = (re.split(r"\s{3,}", line.strip()) for line in table.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_get_shows_what_a_person_wants_to_know(kubectl: Kubectl, planned: tuple[str, ...]) -> None:
    (row,) = columns(kubectl("get", *planned))
    assert row.pop("AGE")
    assert row == {
        "NAME": "qwen-docs",
        "MODEL": "Qwen/Qwen3.5-9B",
        "GPU": "NVIDIA-H100-80GB-HBM3",
        "CONTEXT": "131072",
        "REPLICAS": "2/3",
        "READY": "False",
        "REASON": "Progressing",
    }
    (wide,) = columns(kubectl("get", *planned, "-o", "wide"))
    assert (wide["TP"], wide["KV TOKENS"], wide["PLANNED GPU"]) == ("2", "3168000", "NVIDIA-H100-80GB-HBM3")


def test_get_shows_the_candidates_of_a_service_that_leaves_the_choice(kubectl: Kubectl, namespace: str) -> None:
    gpus = ["NVIDIA-L40S", "NVIDIA-L4"]
    kubectl.apply(service(metadata__namespace=namespace, spec__hardware={"gpus": gpus}))
    table = kubectl("get", "inference", "-n", namespace)
    assert json.dumps(gpus, separators=(",", ":")) in table


TENANT: Final = "tenant"
TENANT_POLICY: Final = CHECKOUT / "deploy" / "kustomize" / "base" / "tenant-policy.yaml"
SIDECAR: Final = {"containers": [{"name": "proxy", "image": "proxy:1"}]}
NAMED = [
    pytest.param({"spec__engine": {"image": "evil.example.com/vllm:1"}}, "images", id="an engine's image"),
    pytest.param({"spec__model__source": {"image": {"reference": "a/b:1"}}}, "images", id="an image with weights"),
    pytest.param({"spec__podTemplate": {"spec": SIDECAR}}, "images", id="a sidecar"),
    pytest.param({"spec__tuning": {"qualityGate": {"podTemplate": {"spec": SIDECAR}}}}, "images", id="a quality gate"),
    pytest.param({"spec__model__configRef": {"name": "theirs"}}, "configMaps", id="a configuration"),
    pytest.param(
        {
            "spec__podTemplate": {
                "spec": {"containers": [{"name": "vllm", "envFrom": [{"configMapRef": {"name": "theirs"}}]}]}
            }
        },
        "configMaps",
        id="variables of a ConfigMap",
    ),
    pytest.param({"spec__model__source": {"pvc": {"claimName": "theirs"}}}, "claims", id="a claim with weights"),
    pytest.param(
        {"spec__podTemplate": {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "theirs"}}]}}},
        "claims",
        id="a volume",
    ),
]


@pytest.fixture(scope="module")
def tenant_policy(kubectl: Kubectl, crd: dict[str, Any]) -> None:
    """The chart's policy in force, and somebody who may write VLLMServices and nothing else."""
    assert crd
    kubectl("apply", "--server-side", "-f", str(TENANT_POLICY))
    verbs = "--verb=get,create,patch,update"
    kubectl.make("clusterrole", "services-alone", verbs, "--resource=vllmservices.plimsoll.dev")
    kubectl.make("clusterrolebinding", "services-alone", "--clusterrole=services-alone", f"--user={TENANT}")
    kubectl.make("clusterrole", "deployer", "--verb=create", "--resource=deployments.apps")
    asked = service(spec__engine={"image": "evil:1"})
    eventually(lambda: "allow.images" in _said(kubectl, {**asked, "metadata": {"name": "a", "namespace": "default"}}))


def _said(kubectl: Kubectl, manifest: dict[str, Any]) -> str:
    """What the tenant is told; empty: he may."""
    arguments = ("apply", "--server-side", "--dry-run=server", f"--as={TENANT}", "-f", "-")
    try:
        kubectl(*arguments, stdin=json.dumps(manifest))
    except KubectlError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("tenant_policy")
@pytest.mark.parametrize(("change", "key"), NAMED)
def test_who_may_only_write_services_names_nothing_that_his_rights_do_not_reach(
    kubectl: Kubectl, namespace: str, change: dict[str, Any], key: str
) -> None:
    wanted = service(metadata__namespace=namespace, **change)
    assert f"key allow.{key}" in _said(kubectl, wanted)
    kubectl.make("rolebinding", "deployer", "--clusterrole=deployer", f"--user={TENANT}", "-n", namespace)
    eventually(lambda: not _said(kubectl, wanted))


@pytest.mark.usefixtures("tenant_policy")
def test_the_rest_of_a_service_is_a_tenants_own(kubectl: Kubectl, namespace: str) -> None:
    plain = service(metadata__namespace=namespace)
    assert not _said(kubectl, plain)
    shared = service(metadata__namespace=namespace, spec__podTemplate={"spec": SIDECAR})
    kubectl.apply(shared)
    edit = ("patch", "vllm/qwen-docs", "-n", namespace, "--type=merge", f"--as={TENANT}", "-p")
    kubectl(*edit, json.dumps({"spec": {"contextTokens": 65536}}))
    other = {"spec": {"podTemplate": {"spec": {"containers": [{"name": "proxy", "image": "other:1"}]}}}}
    with pytest.raises(KubectlError, match=r"allow\.images"):
        kubectl(*edit, json.dumps(other))
