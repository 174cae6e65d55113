"""Whatever a tenant asks for under the default policy: the plan is refused, or its pod reaches nothing beyond itself.

The pod is judged here by rules of its own, written after Kubernetes' Pod Security level Baseline and docs/security.md,
not by the checks that refused.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.manifests.gate import GateRequest, gate_job
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.pod import PodRequest, pod_template
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.podtemplate.gate import gate_refusals
from plimsoll.core.policy import Allowed
from tests.property.amount import examples

MODEL: Final = "Qwen/Qwen3-8B"
SECRET: Final = {"name": "db", "key": "password"}
SIDE: Final = {"name": "side", "image": "side:1"}
# Parts of a pod template: each alone harmless or not, by what surrounds it.
PARTS: Final[tuple[dict[str, Any], ...]] = (
    {"hostNetwork": True}, {"hostNetwork": False}, {"hostPID": True}, {"hostIPC": True}, {"nodeName": "cp-1"},
    {"serviceAccountName": "admin"}, {"serviceAccountName": "default"}, {"automountServiceAccountToken": True},
    {"priorityClassName": "system-node-critical"}, {"priorityClassName": "serving"},
    {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}}, {"nodeSelector": {"pool": "gpu"}},
    {"tolerations": [{"operator": "Exists"}]}, {"tolerations": [{"key": "", "operator": "Exists"}]},
    {"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]}, {"tolerations": [{"key": "dedicated"}]},
    {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, {"volumes": [{"name": "v", "hostPath": {"path": ""}}]},
    {"volumes": [{"name": "v", "secret": {"secretName": "db"}}]}, {"volumes": [{"name": "v", "secret": {}}]},
    {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "db"}}]}}]},
    {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
    {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]},
    {"volumes": [{"name": "v", "csi": {"driver": "secrets-store.csi.k8s.io"}}]},
    {"volumes": [{"name": "v", "emptyDir": {}, "secret": {"secretName": "db"}}]},
    {"volumes": [{"name": "v", "emptyDir": {}}]}, {"volumes": [{"name": "v", "nfs": {"server": "s", "path": "/"}}]},
    {"imagePullSecrets": [{"name": "db"}]},
    {"env": [{"name": "A", "valueFrom": {"secretKeyRef": SECRET}}]}, {"env": [{"name": "A", "value": "$(HF_TOKEN)"}]},
    {"envFrom": [{"secretRef": {"name": "db"}}]}, {"envFrom": [{"configMapRef": {"name": "c"}}]},
    {"containers": [SIDE]}, {"containers": [{**SIDE, "securityContext": {"privileged": True}}]},
    {"containers": [{**SIDE, "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
    {"containers": [{**SIDE, "securityContext": {"procMount": "Unmasked"}}]},
    {"containers": [{**SIDE, "securityContext": {"seccompProfile": {"type": "Unconfined"}}}]},
    {"containers": [{**SIDE, "ports": [{"containerPort": 9, "hostPort": 9}]}]},
    {"containers": [{**SIDE, "livenessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}]},
    {"containers": [{**SIDE, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]},
    {"containers": [{**SIDE, "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
    {"containers": [{"name": "vllm", "securityContext": {"privileged": True, "runAsUser": 0}}]},
    {"containers": [{"name": "vllm", "env": [{"name": "A", "valueFrom": {"secretKeyRef": SECRET}}]}]},
    {"initContainers": [{**SIDE, "securityContext": {"allowPrivilegeEscalation": True}}]},
    {"initContainers": [{**SIDE, "envFrom": [{"secretRef": {"name": "db"}}]}]},
    {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, {"securityContext": {"runAsUser": 1000}},
)  # fmt: skip
ANNOTATIONS: Final[tuple[dict[str, str], ...]] = (
    {}, {"team": "a"}, {"cdi.k8s.io/gpu": "nvidia.com/gpu=all"}, {"k8s.v1.cni.cncf.io/networks": "admin"},
    {"container.apparmor.security.beta.kubernetes.io/vllm": "unconfined"},
)  # fmt: skip
SOURCES: Final[tuple[dict[str, Any] | None, ...]] = (
    None, {"hub": {}}, {"hub": {"tokenSecret": {"name": "hf-token"}}}, {"hub": {"tokenSecret": {"name": "db"}}},
    {"hostPath": {"path": "/etc"}}, {"pvc": {"claimName": "models"}}, {"image": {"reference": "weights:1"}},
)  # fmt: skip
OWN_TOKEN: Final = "hf-token"
HOST_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC", "nodeName", "automountServiceAccountToken")
CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"


def _reaches(pod: dict[str, Any]) -> Iterator[str]:
    """What of a pod template reaches beyond the pod."""
    spec = pod["spec"]
    yield from (key for key in HOST_FIELDS if spec.get(key))
    if spec.get("serviceAccountName", "default") != "default" or spec.get("priorityClassName", "").startswith("system"):
        yield "another identity or rank"
    if CONTROL_PLANE in str([spec.get("nodeSelector"), spec.get("tolerations"), spec.get("affinity")]):
        yield "control-plane nodes"
    if any(not each.get("key") for each in spec.get("tolerations", ())):
        yield "every taint"
    if spec.get("imagePullSecrets"):
        yield "a Secret"
    for volume in spec["volumes"]:
        if {"hostPath", "csi", "nfs"} & volume.keys() or "serviceAccountToken" in str(volume):
            yield f"volume {volume}"
        if "secret" in str(volume) and OWN_TOKEN not in str(volume):
            yield f"a Secret: {volume}"
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        yield from _container_reaches(container)
    if "Unconfined" in str(spec) or set(pod["metadata"].get("annotations", {})) - {"team"}:
        yield "the node's protection"


def _container_reaches(container: dict[str, Any]) -> Iterator[str]:
    rights = container.get("securityContext", {})
    if rights.get("privileged") or rights.get("allowPrivilegeEscalation") or rights.get("capabilities", {}).get("add"):
        yield "privilege"
    if rights.get("procMount", "Default") != "Default" or "hostPort" in str(container) or "169.254" in str(container):
        yield "the node"
    secrets = [
        each["valueFrom"]["secretKeyRef"]["name"] for each in container.get("env", ()) if "secretKeyRef" in str(each)
    ]
    if set(secrets) - {OWN_TOKEN} or "secretRef" in str(container):
        yield "a Secret"
    if container["name"] != "vllm":
        seen = [each.get("value") for each in container["env"] if each["name"] == "NVIDIA_VISIBLE_DEVICES"]
        if seen != ["void"] or "nvidia.com/" in str(container.get("resources")):
            yield "GPUs"


def _together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts in one template; lists of two are one list where the names in it differ."""
    spec: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            known = spec.get(key) if isinstance(value, list) else None
            names = {each.get("name") for each in known or ()}
            spec[key] = [*known, *(each for each in value if each.get("name") not in names)] if known else value
    return spec


@settings(max_examples=examples(250), deadline=None)
@given(
    parts=st.lists(st.sampled_from(PARTS), max_size=3),
    annotations=st.sampled_from(ANNOTATIONS),
    source=st.sampled_from(SOURCES),
    seed=st.integers(0, 2**16),
)
def test_a_tenant_gains_nothing(
    parts: list[dict[str, Any]], annotations: dict[str, str], source: dict[str, Any] | None, seed: int
) -> None:
    Random(seed).shuffle(parts)
    spec = VLLMServiceSpec.model_validate(
        {
            "model": {"id": MODEL, "source": source},
            "hardware": {"gpu": "NVIDIA-L40S"},
            "contextTokens": 8192,
            "podTemplate": {"metadata": {"annotations": annotations}, "spec": _together(parts)},
        }
    )
    plan = plan_service(spec, 1, bundled_config(MODEL))
    if isinstance(plan, Refusal):
        assert plan.reason in {"PodTemplateRefused", "SourceRefused"}, plan.message
        return
    assert list(_reaches(pod_template(plan, PodRequest("svc", spec)))) == []


@settings(max_examples=examples(150), deadline=None)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=3), annotations=st.sampled_from(ANNOTATIONS))
def test_a_tenant_gains_nothing_by_a_quality_gate_either(
    parts: list[dict[str, Any]], annotations: dict[str, str]
) -> None:
    gate = {"podTemplate": {"metadata": {"annotations": annotations}, "spec": _together(parts)}}
    base = {"model": {"id": MODEL}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}
    spec = VLLMServiceSpec.model_validate({**base, "tuning": {"qualityGate": gate}})
    asked = spec.tuning.quality_gate
    assert asked is not None
    if gate_refusals(spec, Allowed()):
        return
    pod = gate_job(GateRequest(Owner("ns", "svc", "u"), asked, "1", "own:1"))["spec"]["template"]
    assert list(_reaches({**pod, "spec": {"volumes": [], **pod["spec"]}})) == []


def test_every_part_that_reaches_further_is_refused_alone() -> None:
    """The rules of this file see what they should: nothing that was refused is missing among them."""
    passed = [part for part in PARTS if isinstance(_planned(part), Plan)]
    assert len(passed) == len(HARMLESS), [part for part in passed if part not in HARMLESS]


HARMLESS: Final = (
    {"hostNetwork": False}, {"serviceAccountName": "default"}, {"priorityClassName": "serving"},
    {"nodeSelector": {"pool": "gpu"}}, {"tolerations": [{"key": "dedicated"}]},
    {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}]}}]},
    {"volumes": [{"name": "v", "emptyDir": {}}]}, {"env": [{"name": "A", "value": "$(HF_TOKEN)"}]},
    {"envFrom": [{"configMapRef": {"name": "c"}}]}, {"containers": [SIDE]}, {"securityContext": {"runAsUser": 1000}},
)  # fmt: skip


def _planned(part: dict[str, Any]) -> Plan | Refusal:
    spec = {"model": {"id": MODEL}, "hardware": {"gpu": "NVIDIA-L40S"}, "contextTokens": 8192}
    made = VLLMServiceSpec.model_validate({**spec, "podTemplate": {"spec": part}})
    return plan_service(made, 1, bundled_config(MODEL))
