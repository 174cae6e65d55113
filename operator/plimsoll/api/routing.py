"""``spec.routing``: how requests find the engines beside the Service, in the contract's words."""

from typing import Literal

from pydantic import Field

from plimsoll.api.model import APIModel


class EndpointPicker(APIModel):
    """The endpoint picker that a gateway asks which engine takes a request. You run it; Plimsoll only names it."""

    service: str = Field(
        description="Name of its Service, in the namespace of this object.",
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        max_length=63,
        examples=["docs-epp"],
    )
    port: int = Field(default=9002, description="Port of that Service.", ge=1, le=65535)
    failure_mode: Literal["FailOpen", "FailClose"] = Field(
        default="FailClose",
        description="Whether requests still reach some engine while the picker does not answer, or are refused.",
    )


class RoutingSpec(APIModel):
    """Ways to the engines beside the Service, which is always there."""

    endpoint_picker: EndpointPicker | None = Field(
        default=None,
        description=(
            "Make the engines an InferencePool of this object's name, for a Gateway API route. It needs the "
            "InferencePool CRD (inference.networking.k8s.io/v1); the condition Integrated says whether it is used."
        ),
    )
