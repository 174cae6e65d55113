"""The VLLMService contract, version v1alpha1, as pydantic models.

Spec is the user's and never written by the operator; status is ours. The CRD in ``crds/`` is generated from these
models (``api/schema.py``), so a field's description here is what ``kubectl explain`` prints.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Duration = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(ms|s|m)$", max_length=16)]


class APIModel(BaseModel):
    """A part of the contract: camelCase outside, snake_case inside; fields of a newer version are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class ConfigRef(APIModel):
    name: str
    key: str = "config.json"


class ModelSpec(APIModel):
    id: str
    text_only: bool = False
    config_ref: ConfigRef | None = None


class HardwareSpec(APIModel):
    gpu: str | None = None
    gpus: tuple[str, ...] | None = None
    max_gpus: int = Field(default=8, alias="maxGPUs", ge=1)


class LoadSpec(APIModel):
    concurrency: int | None = None
    requests_per_second: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    shared_prefix_tokens: int | None = None


class SLOSpec(APIModel):
    ttft: Duration | None = None
    itl: Duration | None = None
    percentile: int = 95


class ScalingSpec(APIModel):
    mode: Literal["Auto", "External", "Fixed"] = "Auto"
    min_replicas: int = 1
    max_replicas: int | None = None


class TuningSpec(APIModel):
    mode: Literal["Off", "Recommend", "Auto"] = "Recommend"
    allow: tuple[str, ...] = ()


class EngineSpec(APIModel):
    version: str | None = None
    image: str | None = None
    extra_args: tuple[str, ...] = ()


class VLLMServiceSpec(APIModel):
    model: ModelSpec
    hardware: HardwareSpec
    context_tokens: int
    load: LoadSpec | None = None
    slo: SLOSpec | None = None
    objective: Literal["Latency", "Throughput", "Balanced"] = "Balanced"
    scaling: ScalingSpec = ScalingSpec()
    tuning: TuningSpec = TuningSpec()
    engine: EngineSpec = EngineSpec()
    replicas: int = 1
    mode: Literal["Act", "Shadow"] = "Act"
