"""What the operator's owner decides about every pod: what a user's template may hold, and figures of the cluster.

A value; `read_policy` makes it from the YAML of the owner. Nothing here is a tenant's to set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.core.lifecycle.drain import ENDPOINT_SECONDS
from plimsoll.core.lifecycle.startup import BYTES_PER_SECOND

DEFAULT_USER: Final = 2000
"""The user ``vllm`` of the vllm-openai image, in group 0 (vLLM's Dockerfile, since between 0.22 and 0.25)."""


@dataclass(frozen=True)
class EngineUser:
    """Who a Restricted engine runs as; all None leaves it to the image or to the platform (OpenShift)."""

    user: int | None = DEFAULT_USER
    group: int | None = 0
    fs_group: int | None = 0


@dataclass(frozen=True)
class PodPolicy:
    """The closed list of what ``spec.podTemplate`` and ``spec.model.source`` may reach, and the cluster's figures."""

    engine_user: EngineUser = field(default_factory=EngineUser)
    mig_strategy: Literal["single", "mixed"] = "single"
    endpoint_seconds: int = ENDPOINT_SECONDS
    bytes_per_second: Mapping[str, int] = field(default_factory=lambda: BYTES_PER_SECOND)
