"""``spec.podTemplate``: what a user may add to the pods, in the shape of Kubernetes' own pod template.

Closed: what is not here is no part of the contract. Some fields are here to be refused with a reason that says who
decides, since the API server drops an unknown field without a word for all who do not ask it to be strict
(`core/podtemplate.py` refuses; docs/pods.md has the table).
"""

from typing import Annotated, Literal

from pydantic import Field

from plimsoll.api.containers import (
    AS_READ,
    AnyFields,
    Container,
    EnvSource,
    EnvVariable,
    LabelValue,
    Mount,
    Name,
    ObjectId,
    Quantity,
    Resources,
    SeccompProfile,
    Text,
    Word,
)
from plimsoll.api.model import APIModel
from plimsoll.api.weights import ImageReference, ObjectName


class PodTemplateMetadata(APIModel):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, LabelValue], Field(max_length=64), AS_READ] = Field(
        default={}, description="Further labels; ours and those of Kubernetes' controllers stay."
    )
    annotations: Annotated[dict[str, Text], Field(max_length=64), AS_READ] = Field(
        default={}, description="Further annotations."
    )


class PullSecret(APIModel):
    """A Secret with credentials of a registry."""

    name: ObjectName = Field(description="Its name; on the list of the operator's owner.")


class EmptyDir(APIModel):
    """A folder that lives as long as the pod."""

    medium: Literal["", "Memory"] | None = Field(default=None, description="Memory, or the node's disk.")
    size_limit: Quantity | None = Field(default=None, description="Its size at most.")


class HostPath(APIModel):
    """A folder or file of the node."""

    path: Word = Field(description="Its path, below one that the operator's owner allows.")
    type: Word | None = Field(default=None, description="What must be there.")


class Claim(APIModel):
    """A PersistentVolumeClaim of the namespace."""

    claim_name: ObjectName = Field(description="Its name.")
    read_only: bool | None = Field(default=None, description="Whether it may not be written.")


class ImageVolume(APIModel):
    """An image whose files are mounted."""

    reference: ImageReference = Field(description="The image.")
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(default=None, description="When to pull it.")


class Volume(APIModel):
    """A volume of the pod: of these kinds, and of no other."""

    name: Name = Field(description="Its name; those that begin with plimsoll- are ours.")
    empty_dir: EmptyDir | None = Field(default=None, description="A folder that lives as long as the pod.")
    persistent_volume_claim: Claim | None = Field(default=None, description="A PersistentVolumeClaim.")
    config_map: AnyFields | None = Field(default=None, description="A ConfigMap.")
    secret: AnyFields | None = Field(
        default=None, description="A Secret: the service's token Secret, or one the operator's owner listed."
    )
    downward_api: AnyFields | None = Field(default=None, alias="downwardAPI", description="Fields of the pod.")
    projected: AnyFields | None = Field(
        default=None, description="Several of the above in one folder; no service account token."
    )
    image: ImageVolume | None = Field(default=None, description="An image.")
    ephemeral: AnyFields | None = Field(default=None, description="A claim that lives as long as the pod.")
    host_path: HostPath | None = Field(default=None, description="A folder of the node, where the owner allows it.")
    csi: AnyFields | None = Field(default=None, description="A driver's own, where the owner allows the driver.")
    nfs: AnyFields | None = Field(default=None, description="Not allowed: use a PersistentVolumeClaim.")


class Toleration(APIModel):
    """A taint that does not keep the pods away."""

    key: Word | None = Field(default=None, description="The taint's key.")
    operator: Literal["Exists", "Equal", "Lt", "Gt"] | None = Field(default=None, description="How to compare.")
    value: Word | None = Field(default=None, description="The taint's value.")
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        default=None, description="The taint's effect."
    )
    toleration_seconds: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = Field(
        default=None, description="For how long."
    )


class TopologySpread(APIModel):
    """How pods spread; one of a key of ours replaces it."""

    topology_key: Word = Field(description="Node label that says what is one place.")
    max_skew: Annotated[int, Field(ge=1, le=1000)] | None = Field(default=None, description="How uneven it may be.")
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] | None = Field(
        default=None, description="Whether pods wait rather than spread badly."
    )
    label_selector: AnyFields | None = Field(default=None, description="Which pods count. Left out: the service's.")
    min_domains: Annotated[int, Field(ge=1, le=1000)] | None = Field(default=None, description="Places at least.")


class PodRights(APIModel):
    """The pod's security context."""

    run_as_user: ObjectId | None = Field(default=None, description="User id.")
    run_as_group: ObjectId | None = Field(default=None, description="Group id.")
    run_as_non_root: bool | None = Field(default=None, description="Whether root is refused.")
    fs_group: ObjectId | None = Field(default=None, description="Group of volumes.")
    fs_group_change_policy: Literal["Always", "OnRootMismatch"] | None = Field(
        default=None, description="When volumes are given to the group."
    )
    supplemental_groups: Annotated[tuple[ObjectId, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Further groups."
    )
    seccomp_profile: SeccompProfile | None = Field(default=None, description="Which system calls may be made.")


class PodTemplateSpec(APIModel):
    """What is merged into the pod, list entries by their key as Kubernetes does."""

    containers: Annotated[tuple[Container, ...], Field(max_length=8, strict=False)] = Field(
        default=(), description="`vllm` is merged into the engine's container; others run beside it."
    )
    init_containers: Annotated[tuple[Container, ...], Field(max_length=8, strict=False)] = Field(
        default=(), description="Run before the engine; with restartPolicy Always beside it, started first."
    )
    env: Annotated[tuple[EnvVariable, ...], Field(max_length=128, strict=False)] = Field(
        default=(), description="Short for env of the container `vllm`."
    )
    env_from: Annotated[tuple[EnvSource, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Short for envFrom of the container `vllm`."
    )
    volume_mounts: Annotated[tuple[Mount, ...], Field(max_length=64, strict=False)] = Field(
        default=(), description="Short for volumeMounts of the container `vllm`."
    )
    resources: Resources | None = Field(default=None, description="Short for resources of the container `vllm`.")
    volumes: Annotated[tuple[Volume, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Further volumes."
    )
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32), AS_READ] = Field(
        default={}, description="Labels of nodes; the GPU product is hardware's."
    )
    affinity: AnyFields | None = Field(default=None, description="As in Kubernetes.")
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Further taints that do not keep the pods away."
    )
    topology_spread_constraints: Annotated[tuple[TopologySpread, ...], Field(max_length=8, strict=False)] = Field(
        default=(), description="How pods spread, beside or in place of ours over nodes and zones."
    )
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass by name.")
    runtime_class_name: ObjectName | None = Field(default=None, description="RuntimeClass by name.")
    scheduler_name: ObjectName | None = Field(default=None, description="Scheduler by name.")
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Field(max_length=16, strict=False)] = Field(
        default=(), description="Credentials of registries: Secrets that the operator's owner listed."
    )
    security_context: PodRights | None = Field(default=None, description="Rights of the whole pod.")
    dns_policy: Literal["ClusterFirst", "Default", "None"] | None = Field(default=None, description="As in Kubernetes.")
    dns_config: AnyFields | None = Field(default=None, description="As in Kubernetes.")
    service_account_name: ObjectName | None = Field(
        default=None, description="Refused unless the operator's owner listed it."
    )
    automount_service_account_token: bool | None = Field(
        default=None, description="Refused unless the operator's owner allows tokens."
    )
    host_network: bool | None = Field(default=None, description="Refused unless the operator's owner allows it.")
    host_pid: bool | None = Field(
        default=None, alias="hostPID", description="Refused unless the operator's owner allows it."
    )
    host_ipc: bool | None = Field(
        default=None, alias="hostIPC", description="Refused unless the operator's owner allows it."
    )
    node_name: ObjectName | None = Field(default=None, description="Refused unless the operator's owner allows it.")
    termination_grace_period_seconds: ObjectId | None = Field(default=None, description="Refused: spec.drain decides.")


class PodTemplate(APIModel):
    """A user's part of the pods."""

    metadata: PodTemplateMetadata | None = Field(default=None, description="Labels and annotations of the pods.")
    spec: PodTemplateSpec | None = Field(default=None, description="What is merged into the pods.")
