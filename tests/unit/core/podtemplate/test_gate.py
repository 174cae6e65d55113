"""A quality gate's Job: what its template may not, what it becomes, and which GPUs it sees: none."""

from typing import Any

import pytest

from plimsoll.api.quality_gate import QualityGateSpec
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.gate import GateRequest, gate_job, job_name, side_service
from plimsoll.core.manifests.identity import Owner, pod_labels, traffic_selector
from plimsoll.core.podtemplate.gate import GATE, gate_refusals
from plimsoll.core.policy import read_policy
from tests.unit.core.manifests.rendering import SPEC

OWNER = Owner("llm", "chat", "uid")
OWN = {"name": "gate", "image": "evals:7", "command": ["compare"]}


def refusals(pod: dict[str, Any], allow: dict[str, Any] | None = None) -> list[str]:
    tuning = {"qualityGate": {"podTemplate": {"spec": pod}}}
    spec = VLLMServiceSpec.model_validate({**SPEC, "tuning": tuning})
    return gate_refusals(spec, read_policy({"allow": allow or {}}).allow)


def job(args: tuple[str, ...] = (), **gate: Any) -> dict[str, Any]:
    request = GateRequest(OWNER, QualityGateSpec.model_validate(gate), "1 chat-a fp8", "own:1", args)
    return gate_job(request)


def container(made: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = made["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("pod", "where"),
    [
        pytest.param({"serviceAccountName": "admin"}, "serviceAccountName", id="another identity"),
        pytest.param(
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[v].hostPath.path", id="the node"
        ),
        pytest.param({"volumes": [{"name": "v", "secret": {"secretName": "db"}}]}, "secretName", id="a Secret"),
        pytest.param({"containers": [{**OWN, "securityContext": {"privileged": True}}]}, "privileged", id="privilege"),
        pytest.param(
            {"containers": [{**OWN, "resources": {"limits": {"nvidia.com/gpu": 1}}}]}, "nvidia.com/gpu", id="a GPU"
        ),
        pytest.param({"containers": [{"name": "vllm"}]}, "containers[vllm].name", id="an engine"),
        pytest.param({"containers": [{"name": "side"}]}, "containers[side].image", id="nothing to run"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, "tolerations", id="every taint"),
        pytest.param({"imagePullSecrets": [{"name": "db"}]}, "imagePullSecrets", id="a pull secret"),
    ],
)
def test_it_may_what_pods_of_the_service_may_and_no_more(pod: dict[str, Any], where: str) -> None:
    (found,) = refusals(pod)
    assert found.startswith(f"{GATE}.spec.")
    assert where in found


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"containers": [OWN]},
        {"containers": [{"name": "gate", "env": [{"name": "PLIMSOLL_PROMPTS", "value": "/p"}]}]},
        {"volumes": [{"name": "p", "configMap": {"name": "prompts"}}], "nodeSelector": {"pool": "cpu"}},
    ],
)
def test_what_a_comparison_needs_is_let_pass(pod: dict[str, Any]) -> None:
    assert refusals(pod) == []


def test_the_owner_narrows_images_and_config_maps_here_too() -> None:
    lists = {"images": ["mirror/*"], "configMaps": ["chat-*"], "secrets": ["pull"]}
    wrong = refusals({"containers": [OWN], "volumes": [{"name": "p", "configMap": {"name": "theirs"}}]}, lists)
    assert [each.split(":")[0].rpartition(".")[2] for each in wrong] == ["name", "image"]
    assert refusals({"containers": [{**OWN, "image": "mirror/evals:7"}]}, lists) == []
    assert refusals({"imagePullSecrets": [{"name": "pull"}]}, lists) == []
    assert refusals({"containers": [{"name": "gate"}]}, lists) == []


def test_an_empty_gate_is_the_operators_own_image() -> None:
    found = container(job())
    assert found["image"] == "own:1"
    assert found["command"][-1] == "plimsoll.gate"
    named = {each["name"]: each["value"] for each in found["env"]}
    assert named["PLIMSOLL_CANDIDATE_URL"] == "http://chat-candidate.llm.svc:8000"
    assert named["PLIMSOLL_BASELINE_URL"] == "http://chat-baseline.llm.svc:8000"
    assert "PLIMSOLL_THRESHOLD" not in named


def test_a_users_own_takes_its_place_and_gets_the_same() -> None:
    made = job(("--ssl-certfile=/c",), threshold=0.97, timeout="90s", podTemplate={"spec": {"containers": [OWN]}})
    found = container(made)
    assert (found["image"], found["command"]) == ("evals:7", ["compare"])
    named = {each["name"]: each["value"] for each in found["env"]}
    assert named["PLIMSOLL_CANDIDATE_URL"].startswith("https://")
    assert named["PLIMSOLL_THRESHOLD"] == "0.97"
    assert made["spec"]["activeDeadlineSeconds"] == 90
    assert made["spec"]["backoffLimit"] == 0


def test_it_is_restricted_sees_no_gpu_and_gets_no_traffic() -> None:
    side = {"name": "side", "image": "s:1"}
    spec = job(podTemplate={"spec": {"containers": [OWN, side]}})["spec"]["template"]["spec"]
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for each in spec["containers"]:
        assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in each["env"]
        assert each["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    labels = job()["spec"]["template"]["metadata"]["labels"]
    assert not traffic_selector("chat").items() <= labels.items()


def test_a_side_leads_to_its_track_alone_ready_or_not() -> None:
    spec = side_service(OWNER, "candidate")["spec"]
    assert spec["publishNotReadyAddresses"] is True
    assert spec["selector"].items() <= pod_labels("chat", "canary").items()
    for track in ("main", "control"):
        assert not spec["selector"].items() <= pod_labels("chat", track).items()


def test_names_fit_and_no_two_experiments_share_one() -> None:
    longest = "a" * 50
    assert len(job_name(longest, "1")) <= 63
    assert job_name(longest, "1") != job_name(longest, "2")
