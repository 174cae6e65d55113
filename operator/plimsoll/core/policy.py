"""What the operator's owner decides about every pod: what a user's template may hold, and figures of the cluster.

A value, read from the owner's YAML (docs/pods.md has the format). Nothing here is a tenant's to set. The defaults
allow what cannot reach beyond the service's own pods.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import ConfigDict, Field, ValidationError

from plimsoll.api.model import APIModel
from plimsoll.api.podtemplate import PodTemplate
from plimsoll.api.units import Duration, duration_seconds
from plimsoll.core.lifecycle.drain import ENDPOINT_SECONDS
from plimsoll.core.lifecycle.startup import BYTES_PER_SECOND

DEFAULT_USER: Final = 2000
"""The user ``vllm`` of the vllm-openai image, in group 0 (vLLM's Dockerfile, since between 0.22 and 0.25)."""
TOKEN_SECRETS: Final = (
    "hf", "hf-*", "*-hf", "*-hf-*", "huggingface", "huggingface-*", "*-huggingface", "*-huggingface-*", "hub-token",
)  # fmt: skip
"""Names that Secrets with a hub token have, and others have not. Whoever may name a Secret as the token can read it in
the pod, and ``NAME-token-…`` is what Secrets of service accounts are called.
"""
_SYSTEM: Final = "system-"

Names = Annotated[tuple[str, ...], Field(strict=False)]


class PolicyError(ValueError):
    """A policy that cannot be used; the message names field, value and what is allowed."""


class _Part(APIModel):
    """A part of the policy: an unknown key is an error, since the owner would believe it holds."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class Allowed(_Part):
    """What ``spec.podTemplate`` and ``spec.model.source`` may reach beyond the pod. Names may hold ``*``."""

    host_paths: Names = ()
    host_network: bool = False
    host_pid: bool = Field(default=False, alias="hostPID")
    host_ipc: bool = Field(default=False, alias="hostIPC")
    privileged: bool = False
    capabilities: Names = ()
    service_accounts: Names = ()
    service_account_tokens: bool = False
    control_plane_nodes: bool = False
    node_names: bool = False
    secrets: Names = ()
    token_secrets: Names = TOKEN_SECRETS
    csi_drivers: Names = Field(default=(), alias="csiDrivers")
    priority_classes: Names = ("*",)
    runtime_classes: Names = ("*",)
    schedulers: Names = ("*",)
    env: Names = ()
    annotations: Names = ()
    images: Names = ("*",)
    config_maps: Names = ("*",)
    claims: Names = ("*",)


class EngineUser(_Part):
    """Who a Restricted engine runs as; ``fixedUser: false`` leaves it to the image or the platform (OpenShift)."""

    fixed_user: bool = True
    run_as_user: Annotated[int, Field(ge=1)] = DEFAULT_USER
    run_as_group: Annotated[int, Field(ge=0)] = 0
    fs_group: Annotated[int, Field(ge=0)] = 0


class GPUs(_Part):
    """How the cluster shows its GPUs."""

    mig_strategy: Literal["single", "mixed"] = "single"


class DrainPolicy(_Part):
    """What the cluster's routers need."""

    endpoint_delay: Duration = f"{ENDPOINT_SECONDS}s"


class StartupPolicy(_Part):
    """What the cluster's sources give to one pod."""

    megabytes_per_second: dict[
        Literal["hub", "pvc", "hostPath", "image", "registry"], Annotated[float, Field(gt=0)]
    ] = Field(default={})


class PodPolicy(_Part):
    """The owner's policy."""

    allow: Allowed = Allowed()
    defaults: PodTemplate = PodTemplate()
    engine: EngineUser = EngineUser()
    gpus: GPUs = GPUs()
    drain: DrainPolicy = DrainPolicy()
    startup: StartupPolicy = StartupPolicy()

    @property
    def endpoint_seconds(self) -> float:
        """How long an ending pod goes on to take requests."""
        return duration_seconds(self.drain.endpoint_delay)

    @property
    def bytes_per_second(self) -> Mapping[str, float]:
        """Speed of each source, the owner's figures before ours."""
        own: dict[str, float] = {s: rate * 1e6 for s, rate in self.startup.megabytes_per_second.items()}
        return {**BYTES_PER_SECOND, **own}


def listed(name: str, names: Names) -> bool:
    """Whether a name is on a list of names and patterns; ``*`` alone never means Kubernetes' own ``system-`` ones."""
    if name.startswith(_SYSTEM):
        return any(fnmatchcase(name, pattern) for pattern in names if pattern.startswith(_SYSTEM))
    return any(fnmatchcase(name, pattern) for pattern in names)


def below(path: str, roots: Names) -> bool:
    """Whether a path is one of the roots or lies below it."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or ".." in parts:
        return False
    clean = "/".join(("", *parts))
    return any(clean == root.rstrip("/") or clean.startswith(f"{root.rstrip('/')}/") for root in roots)


def read_policy(document: Any) -> PodPolicy:  # noqa: ANN401 - parsed YAML
    """The policy in an owner's document; an empty one is the default.

    Raises:
        PolicyError: a key that is not known, or a value that is not allowed.
    """
    if document is None:
        return PodPolicy()
    if not isinstance(document, Mapping):
        raise PolicyError(f"a {type(document).__name__}, not the keys of a pod policy")
    try:
        return PodPolicy.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise PolicyError(
            "; ".join(_said(detail["loc"], detail["msg"], detail["input"]) for detail in error.errors())
        ) from None


def _said(path: tuple[str | int, ...], message: str, value: Any) -> str:  # noqa: ANN401 - YAML
    shown = f" {value!r}:" if isinstance(value, str | int | float) else ""
    return f"{'.'.join(map(str, path))}:{shown} {message}"
