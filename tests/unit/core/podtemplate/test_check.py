"""What a user's pod template may hold: a closed list; for all else a sentence that says who can change it."""

from typing import Any

import pytest

from plimsoll.core.podtemplate.check import source_refusals, template_refusals
from plimsoll.core.policy import PodPolicy, read_policy
from tests.unit.core.podtemplate.asking import TOKEN, on_engine, refusals, sidecar, spec_of, volume

SECRET = {"secretKeyRef": {"name": "db", "key": "password"}}
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


def affinity(**expression: Any) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": CONTROL_PLANE, **expression}]}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


OWNERS = [
    # what is asked, the setting of the policy that decides, a policy that allows it
    pytest.param({"hostNetwork": True}, "hostNetwork", {"hostNetwork": True}, id="the host's network"),
    pytest.param({"hostPID": True}, "hostPID", {"hostPID": True}, id="the host's processes"),
    pytest.param({"hostIPC": True}, "hostIPC", {"hostIPC": True}, id="the host's IPC"),
    pytest.param(
        sidecar(ports=[{"containerPort": 9000, "hostPort": 9000}]),
        "hostNetwork",
        {"hostNetwork": True},
        id="a host port",
    ),
    pytest.param(
        sidecar(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        "hostNetwork",
        {"hostNetwork": True},
        id="a probe of another host",
    ),
    pytest.param(volume(hostPath={"path": "/"}), "hostPaths", {"hostPaths": ["/"]}, id="the node's root"),
    pytest.param(
        volume(hostPath={"path": "/mnt/models-other"}),
        "hostPaths",
        {"hostPaths": ["/mnt/models-other"]},
        id="a host path",
    ),
    pytest.param({"nodeName": "cp-1"}, "nodeNames", {"nodeNames": True}, id="past the scheduler"),
    pytest.param({"serviceAccountName": "admin"}, "serviceAccounts", {"serviceAccounts": ["adm*"]}, id="an account"),
    pytest.param(
        {"automountServiceAccountToken": True}, "serviceAccountTokens", {"serviceAccountTokens": True}, id="its token"
    ),
    pytest.param(
        volume(projected={"sources": [{"serviceAccountToken": {"path": "t"}}]}),
        "serviceAccountTokens",
        {"serviceAccountTokens": True},
        id="a projected token",
    ),
    pytest.param(sidecar(securityContext={"privileged": True}), "privileged", {"privileged": True}, id="privilege"),
    pytest.param(
        on_engine(securityContext={"allowPrivilegeEscalation": True}),
        "privileged",
        {"privileged": True},
        id="escalation",
    ),
    pytest.param(
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "privileged",
        {"privileged": True},
        id="seccomp",
    ),
    pytest.param(sidecar(securityContext={"procMount": "Unmasked"}), "privileged", {"privileged": True}, id="/proc"),
    pytest.param(
        sidecar(volumeMounts=[{"name": "d", "mountPath": "/d", "mountPropagation": "Bidirectional"}]),
        "privileged",
        {"privileged": True},
        id="mounts that leave the pod",
    ),
    pytest.param(
        on_engine(securityContext={"capabilities": {"add": ["IPC_LOCK"]}}),
        "capabilities",
        {"capabilities": ["IPC_LOCK"]},
        id="a capability",
    ),
    pytest.param(
        {"nodeSelector": {CONTROL_PLANE: ""}}, "controlPlaneNodes", {"controlPlaneNodes": True}, id="control plane"
    ),
    pytest.param(
        {"tolerations": [{"key": "node-role.kubernetes.io/master", "operator": "Exists"}]},
        "controlPlaneNodes",
        {"controlPlaneNodes": True},
        id="its taint tolerated",
    ),
    pytest.param(
        {"tolerations": [{"operator": "Exists"}]}, "controlPlaneNodes", {"controlPlaneNodes": True}, id="every taint"
    ),
    pytest.param(affinity(operator="Exists"), "controlPlaneNodes", {"controlPlaneNodes": True}, id="by affinity"),
    pytest.param({"env": [{"name": "A", "valueFrom": SECRET}]}, "secrets", {"secrets": ["db"]}, id="a Secret's key"),
    pytest.param(sidecar(env=[{"name": "A", "valueFrom": SECRET}]), "secrets", {"secrets": ["d*"]}, id="a sidecar's"),
    pytest.param({"envFrom": [{"secretRef": {"name": "db"}}]}, "secrets", {"secrets": ["*"]}, id="a whole Secret"),
    pytest.param(
        {"initContainers": [{"name": "i", "image": "i:1", "envFrom": [{"secretRef": {"name": "db"}}]}]},
        "secrets",
        {"secrets": ["db"]},
        id="an init container's",
    ),
    pytest.param(volume(secret={"secretName": "db"}), "secrets", {"secrets": ["db"]}, id="a Secret mounted"),
    pytest.param(
        volume(projected={"sources": [{"secret": {"name": "db"}}]}), "secrets", {"secrets": ["db"]}, id="and projected"
    ),
    pytest.param({"imagePullSecrets": [{"name": "db"}]}, "secrets", {"secrets": ["db"]}, id="a registry's"),
    pytest.param(
        volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "db"}}),
        "secrets",
        {"secrets": ["db"], "csiDrivers": ["d"]},
        id="a driver's",
    ),
    pytest.param(volume(csi={"driver": "vault"}), "csiDrivers", {"csiDrivers": ["vault"]}, id="a driver"),
    pytest.param(
        {"priorityClassName": "system-node-critical"},
        "priorityClasses",
        {"priorityClasses": ["system-node-critical"]},
        id="Kubernetes' own priority",
    ),
    pytest.param(
        {"env": [{"name": "VLLM_MLA_DISABLE", "value": "1"}]}, "env", {"env": ["VLLM_MLA_DISABLE"]}, id="a variable"
    ),
    pytest.param(
        sidecar(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        "env",
        {"env": ["NVIDIA_VISIBLE_DEVICES"]},
        id="every GPU of the node",
    ),
]


@pytest.mark.parametrize(("pod", "setting", "allow"), OWNERS)
def test_what_only_the_owner_can_allow(pod: dict[str, Any], setting: str, allow: dict[str, Any]) -> None:
    said = refusals(pod)
    assert any(f"pod policy, key allow.{setting}" in each for each in said), said
    assert all(each.startswith("spec.podTemplate.") and "(allowed: " in each for each in said)
    assert refusals(pod, allow) == []


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        pytest.param({"terminationGracePeriodSeconds": 5}, "decided by spec.drain", id="the grace period"),
        pytest.param(on_engine(image="other:1"), "decided by spec.engine.image", id="the image"),
        pytest.param(on_engine(args=["--port=1"]), "decided by spec.engine.extraArgs", id="arguments"),
        pytest.param(on_engine(command=["sh"]), "decided by spec.engine.image", id="the command"),
        pytest.param(on_engine(ports=[{"containerPort": 9}]), "the Service and the probes use 8000", id="ports"),
        pytest.param(on_engine(livenessProbe={"exec": {}}), "a busy engine must not be killed", id="liveness"),
        pytest.param(on_engine(readinessProbe={}), "cannot be set here", id="readiness"),
        pytest.param(on_engine(startupProbe={}), "decided by spec.startup", id="start-up"),
        pytest.param(on_engine(lifecycle={}), "decided by spec.drain", id="hooks"),
        pytest.param({"resources": {"limits": {"nvidia.com/gpu": 8}}}, "decided by spec.hardware", id="GPUs"),
        pytest.param(
            sidecar(resources={"limits": {"nvidia.com/mig-1g.5gb": 1}}),
            "decided by spec.hardware",
            id="a sidecar's GPU",
        ),
        pytest.param(
            {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}, "decided by spec.hardware", id="another product"
        ),
        pytest.param({"volumeMounts": [{"name": "x", "mountPath": "/dev/shm/"}]}, "belongs to Plimsoll", id="shm"),
        pytest.param({"volumes": [{"name": "plimsoll-shm", "emptyDir": {}}]}, "belongs to Plimsoll", id="our volume"),
        pytest.param(sidecar(ports=[{"containerPort": 8000}]), "the engine listens there", id="the engine's port"),
        pytest.param(sidecar(ports=[{"containerPort": 9, "name": "http"}]), "means the engine", id="its name"),
        pytest.param({"initContainers": [{"name": "vllm", "image": "x"}]}, "any other name", id="the engine's name"),
        pytest.param({"containers": [{"name": "side"}]}, "image: is required", id="a sidecar without an image"),
        pytest.param(volume(nfs={"server": "s", "path": "/"}), "decided by nobody", id="a kind that nobody can allow"),
        pytest.param({"volumes": [{"name": "none"}]}, "names 0 kinds of volume", id="no kind"),
        pytest.param(volume(emptyDir={}, configMap={"name": "x"}), "names 2 kinds of volume", id="two kinds"),
        pytest.param(
            volume(projected={"sources": [{"podCertificate": {}}]}), "decided by nobody", id="a certificate of the pod"
        ),
    ],
)
def test_what_belongs_to_plimsoll_nobody_can_give_away(pod: dict[str, Any], says: str) -> None:
    everything = {
        "hostPaths": ["/"], "secrets": ["*"], "env": ["*"], "privileged": True, "hostNetwork": True,
        "csiDrivers": ["*"], "serviceAccounts": ["*"], "serviceAccountTokens": True, "controlPlaneNodes": True,
    }  # fmt: skip
    (said,) = refusals(pod, everything)
    assert says in said


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("labels", "app.kubernetes.io/instance"),
        ("labels", "plimsoll.dev/track"),
        ("labels", "pod-template-hash"),
        ("annotations", "plimsoll.dev/restart"),
    ],
)
def test_labels_of_selectors_stay_ours(kind: str, key: str) -> None:
    spec = spec_of({"metadata": {kind: {key: "x", "team": "y"}}})
    (said,) = template_refusals(spec, PodPolicy().allow)
    assert f"spec.podTemplate.metadata.{kind}[{key}]" in said


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(sidecar(ports=[{"containerPort": 9000, "name": "admin"}]), id="a sidecar"),
        pytest.param({"initContainers": [{"name": "mesh", "image": "m:1", "restartPolicy": "Always"}]}, id="a mesh's"),
        pytest.param(volume(emptyDir={}) | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}, id="a volume"),
        pytest.param(volume(persistentVolumeClaim={"claimName": "data"}), id="a claim"),
        pytest.param(
            volume(projected={"sources": [{"configMap": {"name": "a"}}, {"downwardAPI": {}}]}), id="projected"
        ),
        pytest.param({"env": [{"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"}]}, id="a variable"),
        pytest.param({"envFrom": [{"configMapRef": {"name": "env"}}]}, id="variables of a ConfigMap"),
        pytest.param({"tolerations": [{"key": "dedicated", "operator": "Exists"}]}, id="a toleration"),
        pytest.param({"priorityClassName": "serving", "runtimeClassName": "nvidia"}, id="classes by name"),
        pytest.param({"schedulerName": "kai-scheduler"}, id="another scheduler"),
        pytest.param({"serviceAccountName": "default", "hostNetwork": False}, id="what a pod has anyway"),
        pytest.param(affinity(operator="DoesNotExist"), id="away from the control plane"),
        pytest.param({"resources": {"requests": {"memory": "64Gi"}, "limits": {"memory": "64Gi"}}}, id="memory"),
        pytest.param(on_engine(securityContext={"readOnlyRootFilesystem": False}), id="a writable root"),
    ],
)
def test_what_stays_within_the_pod_is_allowed(pod: dict[str, Any]) -> None:
    assert refusals(pod) == []


def test_the_services_own_token_may_be_used_in_every_place() -> None:
    own = {"secretKeyRef": {"name": "hf-token", "key": "token"}}
    pod = sidecar(env=[{"name": "T", "valueFrom": own}]) | volume(secret={"secretName": "hf-token"})
    assert refusals(pod, model=TOKEN) == []
    assert len(refusals(pod)) == 2


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert len(refusals({"hostNetwork": True, "hostPID": True, **sidecar(securityContext={"privileged": True})})) == 3


def test_a_template_that_is_too_large_is_refused() -> None:
    (said,) = refusals({"env": [{"name": "A", "value": "x" * 20_000}, {"name": "B", "value": "x" * 20_000}]})
    assert "at most 32768" in said


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/mnt/models", True),
        ("/mnt/models/qwen", True),
        ("/mnt/models-other", False),
        ("/mnt", False),
    ],
)
def test_a_folder_of_the_node_only_where_the_owner_allows(path: str, allowed: bool) -> None:
    spec = spec_of({}, model={"source": {"hostPath": {"path": path}}})
    policy = read_policy({"allow": {"hostPaths": ["/mnt/models/"]}})
    assert (list(source_refusals(spec.model.source, policy.allow)) == []) is allowed
    assert list(source_refusals(spec.model.source, PodPolicy().allow))


def test_the_owner_may_say_which_secrets_hold_tokens() -> None:
    spec = spec_of({}, model=TOKEN)
    policy = read_policy({"allow": {"tokenSecrets": ["team-*"]}})
    (said,) = source_refusals(spec.model.source, policy.allow)
    assert "hf-token is not allowed (allowed: team-*)" in said
    assert list(source_refusals(spec.model.source, PodPolicy().allow)) == []
