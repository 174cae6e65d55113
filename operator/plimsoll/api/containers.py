"""Containers of ``spec.podTemplate``: variables, mounts, resources, rights. The shape is Kubernetes' own."""

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from plimsoll.api.model import APIModel, as_the_server_reads
from plimsoll.api.weights import ImageReference, ObjectName

PRESERVED: Final[JsonDict] = {"x-kubernetes-preserve-unknown-fields": True}
_LARGEST: Final = 2**53
_LONGEST: Final = 32
_QUANTITY: Final = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
_INT_OR_STRING: Final[JsonDict] = {
    "x-kubernetes-int-or-string": True,
    "minimum": 0,
    "maximum": _LARGEST,
    "pattern": _QUANTITY,
    "maxLength": _LONGEST,
}
ObjectId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Port = Annotated[int, Field(ge=1, le=65535)]


def _quantity(value: Any) -> int | str:  # noqa: ANN401 - whatever the manifest holds
    """An amount as Kubernetes writes it: a whole number, or text with a unit."""
    if isinstance(value, str) and len(value) <= _LONGEST and re.fullmatch(_QUANTITY[1:-1], value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return value
    raise PydanticCustomError("quantity", "must be an amount such as 4, 500m or 16Gi")


Text = Annotated[str, Field(max_length=32_768)]
Word = Annotated[str, Field(max_length=512)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Variable = Annotated[str, Field(pattern=r"^[^=\x00-\x1f\x7f]+$", min_length=1, max_length=512)]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", max_length=63)]
Quantity = Annotated[int | str, PlainValidator(_quantity), WithJsonSchema(_INT_OR_STRING)]
AS_READ: Final = BeforeValidator(as_the_server_reads)
AnyFields = Annotated[dict[str, Any], Field(json_schema_extra=PRESERVED)]
"""Fields of Kubernetes that are passed on as they are; the API server judges them when the pods are made."""

Amounts = Annotated[dict[str, Quantity], Field(max_length=16), AS_READ]


class NamedReference(APIModel):
    """A ConfigMap, Secret or the like of the service's namespace."""

    name: ObjectName = Field(description="Its name.")
    optional: bool | None = Field(default=None, description="Whether the pod starts without it.")


class KeyReference(NamedReference):
    """One key of a ConfigMap or Secret."""

    key: Word = Field(description="The key.")


class FieldReference(APIModel):
    """A field of the pod itself."""

    field_path: Word = Field(description="Its path.", examples=["status.podIP"])
    api_version: Word | None = Field(default=None, description="Version of the pod's schema.")


class ResourceReference(APIModel):
    """A resource of a container."""

    resource: Word = Field(description="The resource.", examples=["limits.cpu"])
    container_name: Name | None = Field(default=None, description="The container.")
    divisor: Quantity | None = Field(default=None, description="The unit.")


class VariableSource(APIModel):
    """Where a variable's value comes from."""

    config_map_key_ref: KeyReference | None = Field(default=None, description="A key of a ConfigMap.")
    secret_key_ref: KeyReference | None = Field(
        default=None, description="A key of a Secret: the service's token Secret, or one the operator's owner listed."
    )
    field_ref: FieldReference | None = Field(default=None, description="A field of the pod.")
    resource_field_ref: ResourceReference | None = Field(default=None, description="A resource of a container.")


class EnvVariable(APIModel):
    """An environment variable."""

    name: Variable = Field(description="Its name.")
    value: Text | None = Field(default=None, description="Its value.")
    value_from: VariableSource | None = Field(default=None, description="Where its value comes from.")


class EnvSource(APIModel):
    """A ConfigMap or Secret whose keys become variables."""

    prefix: Word | None = Field(default=None, description="Put before each key.")
    config_map_ref: NamedReference | None = Field(default=None, description="The ConfigMap.")
    secret_ref: NamedReference | None = Field(
        default=None, description="The Secret: the service's token Secret, or one the operator's owner listed."
    )


class Mount(APIModel):
    """A volume in a container's file system."""

    name: Name = Field(description="The volume.")
    mount_path: Word = Field(description="Where it appears.")
    sub_path: Word | None = Field(default=None, description="A folder of the volume.")
    sub_path_expr: Word | None = Field(default=None, description="The same with variables in it.")
    read_only: bool | None = Field(default=None, description="Whether it may not be written.")
    mount_propagation: Word | None = Field(default=None, description="None or HostToContainer.")


class Resources(APIModel):
    """Requests and limits. Those of GPUs are the plan's."""

    requests: Amounts = Field(default={}, description="Requests by name.")
    limits: Amounts = Field(default={}, description="Limits by name.")


class SeccompProfile(APIModel):
    """Which system calls may be made."""

    type: Literal["RuntimeDefault", "Localhost", "Unconfined"] = Field(description="Which profile.")
    localhost_profile: Word | None = Field(default=None, description="A profile of the node.")


class Capabilities(APIModel):
    """Linux capabilities."""

    add: Annotated[tuple[Word, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Given; only those the operator's owner allows."
    )
    drop: Annotated[tuple[Word, ...], Field(max_length=32, strict=False)] = Field(default=(), description="Taken.")


class ContainerRights(APIModel):
    """A container's security context."""

    run_as_user: ObjectId | None = Field(default=None, description="User id.")
    run_as_group: ObjectId | None = Field(default=None, description="Group id.")
    run_as_non_root: bool | None = Field(default=None, description="Whether root is refused.")
    read_only_root_filesystem: bool | None = Field(default=None, description="Whether the root is read-only.")
    allow_privilege_escalation: bool | None = Field(default=None, description="Refused unless the owner allows it.")
    privileged: bool | None = Field(default=None, description="Refused unless the owner allows it.")
    capabilities: Capabilities | None = Field(default=None, description="Linux capabilities.")
    seccomp_profile: SeccompProfile | None = Field(default=None, description="Which system calls may be made.")
    proc_mount: Word | None = Field(default=None, description="Default; anything else needs privilege.")


class ContainerPort(APIModel):
    """A port that a container listens on."""

    container_port: Port = Field(description="The port; 8000 is the engine's.")
    name: Name | None = Field(default=None, description="Its name; http is the engine's.")
    protocol: Literal["TCP", "UDP", "SCTP"] | None = Field(default=None, description="TCP when left out.")
    host_port: Port | None = Field(default=None, description="Refused unless the owner allows the host's network.")


class Container(APIModel):
    """A container: `vllm` is the engine's, whose fields are merged with ours; any other name is a further one."""

    name: Name = Field(description="`vllm` for the engine's.")
    image: ImageReference | None = Field(default=None, description="Its image. The engine's is spec.engine.image.")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        default=None, description="When to pull it."
    )
    command: Annotated[tuple[Text, ...], Field(max_length=64, strict=False)] = Field(
        default=(), description="What runs. The engine's is its image's."
    )
    args: Annotated[tuple[Text, ...], Field(max_length=256, strict=False)] = Field(
        default=(), description="Its arguments. The engine's are spec.engine.extraArgs."
    )
    working_dir: Word | None = Field(default=None, description="Working directory.")
    env: Annotated[tuple[EnvVariable, ...], Field(max_length=128, strict=False)] = Field(
        default=(), description="Variables."
    )
    env_from: Annotated[tuple[EnvSource, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Sources of variables."
    )
    ports: Annotated[tuple[ContainerPort, ...], Field(max_length=32, strict=False)] = Field(
        default=(), description="Ports. The engine's is ours."
    )
    resources: Resources | None = Field(default=None, description="Requests and limits.")
    volume_mounts: Annotated[tuple[Mount, ...], Field(max_length=64, strict=False)] = Field(
        default=(), description="Volumes in its file system."
    )
    liveness_probe: AnyFields | None = Field(default=None, description="As in Kubernetes. The engine's is ours.")
    readiness_probe: AnyFields | None = Field(default=None, description="As in Kubernetes. The engine's is ours.")
    startup_probe: AnyFields | None = Field(default=None, description="As in Kubernetes. The engine's is ours.")
    lifecycle: AnyFields | None = Field(default=None, description="As in Kubernetes. The engine's is ours.")
    restart_policy: Literal["Always", "OnFailure", "Never"] | None = Field(
        default=None, description="Always makes an init container a sidecar."
    )
    security_context: ContainerRights | None = Field(default=None, description="What it may do.")
