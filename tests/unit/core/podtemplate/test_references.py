"""What a service names of its namespace: the owner may narrow it; what leads beyond it is refused from the start."""

from typing import Any

import pytest

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.pod import PodRequest, pod_template
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.podtemplate.check import refusals
from plimsoll.core.policy import Allowed, read_policy
from tests.unit.core.manifests.rendering import SPEC
from tests.unit.core.podtemplate.asking import on_engine, sidecar, spec_of, volume

FROM_A_CLAIM = {"volumeClaimTemplate": {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "theirs"}}}}


def said(spec: VLLMServiceSpec, allow: dict[str, Any] | None = None) -> dict[str, list[str]]:
    allowed = read_policy({"allow": allow}).allow if allow else Allowed()
    return {reason.name: found for reason, found in refusals(spec, allowed) if found}


NARROWED = [
    # what is asked, the key that decides, the reason
    pytest.param(spec_of({}, engine={"image": "evil.example.com/vllm:1"}), "images", "ImageRefused", id="the engine"),
    pytest.param(spec_of({}), "images", "ImageRefused", id="the release's own image"),
    pytest.param(spec_of({"spec": sidecar()}), "images", "PodTemplateRefused", id="a sidecar's image"),
    pytest.param(
        spec_of({"spec": volume(image={"reference": "a:1"})}), "images", "PodTemplateRefused", id="an image's files"
    ),
    pytest.param(
        spec_of({}, model={"source": {"image": {"reference": "a:1"}}}), "images", "SourceRefused", id="weights' image"
    ),
    pytest.param(
        spec_of({}, model={"configRef": {"name": "theirs"}}), "configMaps", "SourceRefused", id="a configuration"
    ),
    pytest.param(
        spec_of({"spec": {"envFrom": [{"configMapRef": {"name": "theirs"}}]}}),
        "configMaps",
        "PodTemplateRefused",
        id="variables of a ConfigMap",
    ),
    pytest.param(
        spec_of(
            {"spec": on_engine(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "theirs", "key": "k"}}}])}
        ),
        "configMaps",
        "PodTemplateRefused",
        id="a key of a ConfigMap",
    ),
    pytest.param(
        spec_of({"spec": volume(configMap={"name": "theirs"})}), "configMaps", "PodTemplateRefused", id="mounted"
    ),
    pytest.param(
        spec_of({"spec": volume(projected={"sources": [{"configMap": {"name": "theirs"}}]})}),
        "configMaps",
        "PodTemplateRefused",
        id="projected",
    ),
    pytest.param(
        spec_of({}, model={"source": {"pvc": {"claimName": "theirs"}}}), "claims", "SourceRefused", id="weights' claim"
    ),
    pytest.param(
        spec_of({"spec": volume(persistentVolumeClaim={"claimName": "theirs"})}),
        "claims",
        "PodTemplateRefused",
        id="a volume's claim",
    ),
    pytest.param(
        spec_of({"spec": volume(ephemeral=FROM_A_CLAIM)}), "claims", "PodTemplateRefused", id="a copy of a claim"
    ),
]


@pytest.mark.parametrize(("spec", "key", "reason"), NARROWED)
def test_the_owner_may_narrow_what_is_named(spec: VLLMServiceSpec, key: str, reason: str) -> None:
    assert said(spec) == {}
    found = said(spec, {key: ["ours-*"]})
    assert any(f"allowed: ours-*); the operator's owner can change that in the pod policy, key allow.{key}" in each
               for each in found[reason])  # fmt: skip
    assert said(spec, {key: ["*"]}) == {}


def test_a_mirror_alone_is_one_line_of_policy() -> None:
    mirror = {"images": ["registry.example.com/*"]}
    spec = spec_of(
        {"spec": sidecar(image="registry.example.com/proxy:1")}, engine={"image": "registry.example.com/v:1"}
    )
    assert said(spec, mirror) == {}
    refused = plan_service(
        VLLMServiceSpec.model_validate(SPEC), 1, None, Inventory(policy=read_policy({"allow": mirror}))
    )
    assert isinstance(refused, Refusal)
    assert refused.reason == "ImageRefused"
    assert "spec.engine.image: vllm/vllm-openai is not allowed" in refused.message


@pytest.mark.parametrize(
    ("name", "is_a_token"),
    [
        ("hf", True), ("hf-token", True), ("team-a-hf", True), ("huggingface-token", True), ("x-hf-token", True),
        ("deployer-token-x7k2p", False), ("default-token-abcde", False), ("db-password", False), ("shelf", False),
        ("registry-credentials", False), ("tls", False),
    ],
)  # fmt: skip
def test_only_what_is_called_a_hub_token_is_one(name: str, is_a_token: bool) -> None:
    """The token is the tenant's to read, and a Secret of another purpose must not become one by being named."""
    found = said(spec_of({}, model={"source": {"hub": {"tokenSecret": {"name": name, "key": "token"}}}}))
    assert ("SourceRefused" not in found) is is_a_token


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("annotations", "cdi.k8s.io/gpu"),
        ("annotations", "k8s.v1.cni.cncf.io/networks"),
        ("annotations", "iam.amazonaws.com/role"),
        ("annotations", "io.kubernetes.cri-o.userns-mode"),
        ("annotations", "devices.nri.io/container.vllm"),
        ("labels", "aadpodidbinding"),
    ],
)
def test_keys_by_which_a_node_or_a_cloud_gives_more(kind: str, key: str) -> None:
    spec = spec_of({"metadata": {kind: {key: "x", "team": "y"}}})
    (found,) = said(spec)["PodTemplateRefused"]
    assert f"spec.podTemplate.metadata.{kind}[{key}]" in found
    assert said(spec, {"annotations": [key]}) == {}


def test_further_containers_see_no_gpu() -> None:
    """An image made for CUDA asks NVIDIA's runtime for all of them."""
    config = bundled_config(SPEC["model"]["id"])
    spec = spec_of(
        {"spec": {**sidecar(env=[{"name": "A", "value": "b"}]), "initContainers": [{"name": "i", "image": "i"}]}}
    )
    plan = plan_service(spec, 1, config)
    assert isinstance(plan, Plan)
    pod = pod_template(plan, PodRequest("svc", spec))["spec"]
    engine, side = pod["containers"]
    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert side["env"] == [{"name": "A", "value": "b"}, void]
    assert pod["initContainers"][0]["env"] == [void]
    assert void not in engine["env"]


def test_a_further_container_may_see_gpus_where_the_owner_allows_it() -> None:
    """Monitoring of GPUs, say."""
    spec = spec_of({"spec": sidecar(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])})
    policy = read_policy({"allow": {"env": ["NVIDIA_VISIBLE_DEVICES"]}})
    plan = plan_service(spec, 1, bundled_config(SPEC["model"]["id"]), Inventory(policy=policy))
    assert isinstance(plan, Plan)
    side = pod_template(plan, PodRequest("svc", spec, policy=policy))["spec"]["containers"][1]
    assert side["env"] == [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]


@pytest.mark.parametrize(("args", "told"), [(["--api-key", "s3cr3t"], True), (["--enforce-eager"], False)])
def test_a_key_in_the_open_is_told(args: list[str], told: bool) -> None:
    plan = plan_service(spec_of({}, engine={"extraArgs": args}), 1, bundled_config(SPEC["model"]["id"]))
    assert isinstance(plan, Plan)
    said = [each for each in plan.assumptions if "--api-key can be read by all" in each]
    assert bool(said) is told
    assert "s3cr3t" not in str(said)
