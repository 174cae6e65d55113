"""A user's template in the pod: merged by key as Kubernetes does, and never over what is ours."""

from typing import Any

import pytest
from hypothesis import given, settings

from plimsoll.api.podtemplate import PodTemplate
from plimsoll.api.schema import structural
from plimsoll.core.manifests.container import OUR_MOUNTS, VOLUMES_PREFIX
from plimsoll.core.manifests.merge import merged
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan
from plimsoll.core.policy import read_policy
from plimsoll.core.rollout import render
from tests.unit.api.strategies import field
from tests.unit.core.manifests.rendering import SPEC, engine, env, planned, pod, request, template

TEMPLATES = field(structural(PodTemplate))


def with_pod(**fields: Any) -> dict[str, Any]:
    return pod(podTemplate={"spec": fields})


def test_variables_merge_by_name_in_either_form() -> None:
    short = [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}, {"name": "HF_HOME", "value": "/data"}]
    spec = with_pod(env=short, containers=[{"name": "vllm", "env": [{"name": "VLLM_LOGGING_LEVEL", "value": "INFO"}]}])
    variables = env(spec["containers"][0])
    assert (variables["VLLM_LOGGING_LEVEL"], variables["HF_HOME"]) == ("INFO", "/data")
    assert variables["VLLM_CACHE_ROOT"] == env(engine())["VLLM_CACHE_ROOT"]
    names = [each["name"] for each in spec["containers"][0]["env"]]
    assert len(names) == len(set(names))


def test_a_sidecar_a_volume_and_its_mount_come_beside_ours() -> None:
    spec = with_pod(
        containers=[{"name": "proxy", "image": "proxy:1"}],
        volumes=[{"name": "data", "configMap": {"name": "data"}}],
        volumeMounts=[{"name": "data", "mountPath": "/data", "readOnly": True}],
    )
    assert [each["name"] for each in spec["containers"]] == ["vllm", "proxy"]
    assert spec["volumes"][: len(pod()["volumes"])] == pod()["volumes"]
    assert spec["volumes"][-1] == {"name": "data", "configMap": {"name": "data"}}
    mounts = spec["containers"][0]["volumeMounts"]
    assert mounts[-1] == {"name": "data", "mountPath": "/data", "readOnly": True}
    assert mounts[:-1] == engine()["volumeMounts"]


def test_further_containers_give_up_their_rights_where_the_engine_does() -> None:
    side = {"containers": [{"name": "proxy", "image": "proxy:1"}], "initContainers": [{"name": "i", "image": "i:1"}]}
    restricted, baseline = with_pod(**side), pod(podTemplate={"spec": side}, engine={"security": "Baseline"})
    for container in (restricted["containers"][1], *restricted["initContainers"]):
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert "securityContext" not in baseline["containers"][1]


def test_requests_of_the_user_replace_the_plans_and_leave_the_gpus() -> None:
    found = with_pod(resources={"requests": {"cpu": 1}, "limits": {"memory": "64Gi"}})["containers"][0]["resources"]
    assert found["requests"] == {**engine()["resources"]["requests"], "cpu": 1}
    assert found["limits"] == {"nvidia.com/gpu": "1", "memory": "64Gi"}


def test_scheduling_is_added_to_ours() -> None:
    spec = with_pod(
        nodeSelector={"pool": "gpu"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
        topologySpreadConstraints=[
            {"topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"},
            {"topologyKey": "rack", "maxSkew": 2},
        ],
        priorityClassName="serving",
        runtimeClassName="nvidia",
    )
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L40S", "pool": "gpu"}
    assert [t["key"] for t in spec["tolerations"]] == ["nvidia.com/gpu", "dedicated"]
    host, zone, rack = spec["topologySpreadConstraints"]
    assert (host["whenUnsatisfiable"], zone["whenUnsatisfiable"]) == ("DoNotSchedule", "ScheduleAnyway")
    assert (rack["maxSkew"], rack["whenUnsatisfiable"]) == (2, "ScheduleAnyway")
    assert rack["labelSelector"] == host["labelSelector"]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("serving", "nvidia")


def test_the_owners_defaults_come_first_and_the_user_may_change_them() -> None:
    defaults = {
        "metadata": {"labels": {"cost-centre": "ml"}},
        "spec": {"runtimeClassName": "nvidia", "imagePullSecrets": [{"name": "mirror"}], "nodeSelector": {"pool": "a"}},
    }
    policy = read_policy({"defaults": defaults})
    found = template(policy=policy, podTemplate={"spec": {"nodeSelector": {"pool": "b"}}})
    assert found["metadata"]["labels"]["cost-centre"] == "ml"
    assert found["spec"]["runtimeClassName"] == "nvidia"
    assert found["spec"]["imagePullSecrets"] == [{"name": "mirror"}]
    assert found["spec"]["nodeSelector"]["pool"] == "b"


def test_labels_reach_the_pods_and_no_selector() -> None:
    found = template(podTemplate={"metadata": {"labels": {"team": "search"}, "annotations": {"note": "x"}}})
    assert found["metadata"]["labels"]["team"] == "search"
    assert found["metadata"]["annotations"]["note"] == "x"


@settings(max_examples=200, deadline=None)
@given(TEMPLATES)
def test_whatever_is_accepted_leaves_ours_as_it_is(written: dict[str, Any]) -> None:
    """Any template of the contract is refused with reasons, or merged without touching what the operator relies on."""
    asked = request(podTemplate=written)
    outcome = plan_service(asked.spec, 1, bundled_config("Qwen/Qwen3-8B"))
    if not isinstance(outcome, Plan):
        assert outcome.reason == "PodTemplateRefused"
        assert "spec.podTemplate" in outcome.message
        return
    plain, found = template(), dict(render(asked, outcome, 1).template)
    assert plain["metadata"]["labels"].items() <= found["metadata"]["labels"].items()
    ours, theirs = plain["spec"]["containers"][0], found["spec"]["containers"][0]
    for key in ("name", "image", "args", "ports", "startupProbe", "readinessProbe", "lifecycle"):
        assert theirs[key] == ours[key]
    assert "livenessProbe" not in theirs
    assert theirs["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert found["spec"]["terminationGracePeriodSeconds"] == plain["spec"]["terminationGracePeriodSeconds"]
    assert {v["name"] for v in plain["spec"]["volumes"]} <= {v["name"] for v in found["spec"]["volumes"]}
    assert [m for m in theirs["volumeMounts"] if m["mountPath"] in OUR_MOUNTS] == ours["volumeMounts"]
    kept = [v for v in found["spec"]["volumes"] if v["name"].startswith(VOLUMES_PREFIX)]
    assert kept == plain["spec"]["volumes"]
    assert not _reaches_out(found["spec"])


def _reaches_out(spec: dict[str, Any]) -> bool:
    flags = any(
        spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC", "nodeName", "automountServiceAccountToken")
    )
    containers = [*spec["containers"], *spec.get("initContainers", ())]
    rights = [c.get("securityContext", {}) for c in containers]
    privileged = any(r.get("privileged") or r.get("allowPrivilegeEscalation") for r in rights)
    return flags or privileged or any("hostPath" in v or "secret" in v for v in spec["volumes"])


@pytest.mark.parametrize(
    ("ours", "theirs", "expect"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}),
        (
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "valueFrom": {}}]},
            {"env": [{"name": "A", "valueFrom": {}}]},
        ),
        (
            {"containers": [{"name": "a", "x": 1}]},
            {"containers": [{"name": "a", "y": 2}]},
            {"containers": [{"name": "a", "x": 1, "y": 2}]},
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        ({"drop": ["ALL"]}, {"drop": ["A"]}, {"drop": ["A"]}),
    ],
)  # fmt: skip
def test_merging(ours: dict[str, Any], theirs: dict[str, Any], expect: dict[str, Any]) -> None:
    assert merged(ours, theirs) == expect
    assert merged(expect, theirs) == expect


def test_variables_that_no_plan_can_count_on_are_said() -> None:
    asked = request(
        podTemplate={
            "spec": {
                "env": [{"name": "VLLM_ALL2ALL_BACKEND", "value": "pplx"}],
                "envFrom": [{"configMapRef": {"name": "e"}}],
            }
        }
    )
    notes = " ".join(planned(asked).assumptions)
    assert "VLLM_ALL2ALL_BACKEND may move memory or speed" in notes
    assert "envFrom" in notes
    assert SPEC["contextTokens"] == asked.spec.context_tokens
