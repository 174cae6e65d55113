"""``spec.tuning.qualityGate``: who judges whether answers stay what they were, before users see any."""

from typing import Annotated, Final

from pydantic import Field

from plimsoll.api.containers import AS_READ, Container, LabelValue
from plimsoll.api.model import APIModel
from plimsoll.api.podtemplate import PodRights, PodTemplateMetadata, PullSecret, Toleration, Volume
from plimsoll.api.units import Duration, duration_seconds
from plimsoll.api.weights import ObjectName

USUAL_SECONDS: Final = 1800.0
Score = Annotated[float, Field(ge=0, le=1)]


class GatePodSpec(APIModel):
    """What a Job's pod may say of itself: of ``spec.podTemplate`` what a comparison needs, under the same policy."""

    containers: Annotated[tuple[Container, ...], Field(max_length=4, strict=False)] = Field(
        default=(), description="`gate` is the one whose result is read; others run beside it."
    )
    volumes: Annotated[tuple[Volume, ...], Field(max_length=16, strict=False)] = Field(
        default=(), description="Volumes: prompts in a ConfigMap, for instance."
    )
    node_selector: Annotated[dict[str, LabelValue], Field(max_length=16), AS_READ] = Field(
        default={}, description="Labels of nodes."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16, strict=False)] = Field(
        default=(), description="Taints that do not keep the pod away."
    )
    image_pull_secrets: Annotated[tuple[PullSecret, ...], Field(max_length=8, strict=False)] = Field(
        default=(), description="Credentials of registries: Secrets that the operator's owner listed."
    )
    security_context: PodRights | None = Field(default=None, description="Rights of the whole pod.")
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass by name.")
    runtime_class_name: ObjectName | None = Field(default=None, description="RuntimeClass by name.")
    service_account_name: ObjectName | None = Field(
        default=None, description="Refused unless the operator's owner listed it."
    )


class GateTemplate(APIModel):
    """The Job's pod."""

    metadata: PodTemplateMetadata | None = Field(default=None, description="Labels and annotations of the pod.")
    spec: GatePodSpec | None = Field(default=None, description="What is merged into the pod.")


class QualityGateSpec(APIModel):
    """A Job that compares a candidate with a baseline. An empty one is the comparison that Plimsoll brings."""

    threshold: Score | None = Field(
        default=None,
        description=(
            "The score that the Job must reach, between 0 and 1; given to it as PLIMSOLL_THRESHOLD. Left out: what the "
            "Job itself calls its threshold, which for the built-in comparison is 0.95."
        ),
    )
    timeout: Duration | None = Field(
        default=None,
        description=(
            "How long the Job may take, its start included; then the candidate has not passed. Left out: 30 minutes."
        ),
        examples=["45m"],
    )
    pod_template: GateTemplate | None = Field(
        default=None,
        description=(
            "The Job's pod, within what the operator's owner allows (docs/pods.md). Its container `gate` is the one "
            "that is read; without an image that is the built-in comparison, to which variables, volumes and resources "
            "may be added. Left out: the built-in comparison as it is."
        ),
    )

    @property
    def seconds(self) -> float:
        """How long the Job may take."""
        return duration_seconds(self.timeout) if self.timeout else USUAL_SECONDS
