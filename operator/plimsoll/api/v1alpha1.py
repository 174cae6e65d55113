"""The VLLMService contract, version v1alpha1, as pydantic models: what a user may write.

Spec is the user's and never written by the operator; status (``status.py``) is ours. The CRD in ``crds/`` is generated
from these models (``schema.py``), so a field's description here is what ``kubectl explain`` prints; defaults, limits
and examples are added to it from the field itself. A default stands here only if it will never change.
"""

import re
from typing import Annotated, ClassVar, Final, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

from plimsoll.api import names
from plimsoll.api.engine_features import KVOffloadSpec, LoRASpec, SpeculativeSpec
from plimsoll.api.freeze import FreezeWindow
from plimsoll.api.model import APIModel, Rule, unique
from plimsoll.api.podtemplate import PodTemplate
from plimsoll.api.quality_gate import QualityGateSpec
from plimsoll.api.routing import RoutingSpec
from plimsoll.api.units import ByteQuantity, Duration
from plimsoll.api.weights import ImageReference, ObjectName, WeightsSource

MAX_TOKENS = 16_777_216
"""No model serves longer requests; a bound keeps sums of tokens far from overflow."""
MAX_REPLICAS = 10_000
MAX_GPUS = 100_000

_SET: Final[JsonDict] = {"x-kubernetes-list-type": "set"}
_NAME_PATTERN = "[a-z]([-a-z0-9]*[a-z0-9])?"
_NAME_MAX_LENGTH = 50  # a Service name has 63; suffixes for canary and revision need the rest


Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]
# What a node label may hold, since the value becomes a node selector.
GPUProduct = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)]
GPUProducts = Annotated[
    tuple[GPUProduct, ...],
    Field(min_length=1, max_length=16, strict=False, json_schema_extra=_SET),
    AfterValidator(unique),
]
EngineArgument = Annotated[str, Field(min_length=1, max_length=4096)]
Tunable = Literal[
    "MaxNumSeqs",
    "MaxNumBatchedTokens",
    "GPUMemoryUtilization",
    "KVCacheMemoryBytes",
    "KVCacheDtype",
    "PrefixCaching",
    "TensorParallel",
]
Tunables = Annotated[
    tuple[Tunable, ...], Field(max_length=16, strict=False, json_schema_extra=_SET), AfterValidator(unique)
]


def _at_most(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value <= limit


def _longer(typical: int | None, long: int | None) -> bool:
    return long is None or (typical is not None and typical <= long)


def _longest_part_tokens(load: "LoadSpec | None") -> int:
    return max(load.prompt_tokens_p95 or 0, load.output_tokens_p95 or 0) if load else 0


def _typical_request_tokens(load: "LoadSpec | None") -> int:
    return (load.prompt_tokens or 0) + (load.output_tokens or 0) if load else 0


class ConfigRef(APIModel):
    """A ConfigMap in the service's namespace that holds the model's config.json."""

    name: ObjectName = Field(description="Name of the ConfigMap.", examples=["my-model-config"])
    key: str = Field(
        default="config.json",
        description="Key in the ConfigMap's data.",
        pattern=r"^[-._a-zA-Z0-9]+$",
        max_length=253,
    )


class ModelSpec(APIModel):
    """The model to serve."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.source) || !self.id.startsWith('/')",
            message=(
                "id is a path in the engine's image: leave source out, or name the model in id and the folder of its "
                "weights in source"
            ),
            holds=lambda model: model.source is None or not model.id.startswith("/"),
            field="source",
        ),
    )

    id: str = Field(
        description=(
            "The model: a Hugging Face repository (organisation/name), or the absolute path of a folder with its "
            "weights inside the engine's container. Sizes come from the model's config.json: that of configRef, else "
            f"of a ConfigMap labelled {names.LABEL_CATALOGUE} in the operator's namespace, else of the bundled "
            "catalogue."
        ),
        pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)?|(/[A-Za-z0-9._@:+-]+)+/?)$",
        max_length=256,
        examples=["Qwen/Qwen3.5-9B", "/models/my-model"],
    )
    text_only: bool = Field(
        default=False,
        description=(
            "Serve text only: image, video and audio encoders of a multimodal model are left out, and their memory "
            "goes to the KV cache."
        ),
    )
    rope_scaling: Literal["None", "YaRN"] | None = Field(
        default=None,
        description=(
            "YaRN: contexts may go beyond what the model was trained for, its positions being stretched as far as "
            "needed. All requests feel it: answers to short texts may be worse. Only where the model's positions allow "
            "it. None, or left out: contextTokens above the model's limit is refused."
        ),
    )
    config_ref: ConfigRef | None = Field(
        default=None,
        description="Where the model's config.json is, for a model no catalogue knows. It wins over every catalogue.",
    )
    source: WeightsSource | None = Field(
        default=None,
        description=(
            "Where the weights come from. Left out: the hub, or the engine's image when id is an absolute path. A "
            "change restarts the pods, a few at a time."
        ),
    )


class HardwareSpec(APIModel):
    """The GPUs that may be used."""

    rules: ClassVar = (
        Rule(
            cel="has(self.gpu) != has(self.gpus)",
            message="name one GPU product in gpu, or several in gpus to let Plimsoll choose: exactly one of the two",
            holds=lambda hardware: (hardware.gpu is None) != (hardware.gpus is None),
        ),
    )

    gpu: GPUProduct | None = Field(
        default=None,
        description=f"The GPU product, as nodes carry it in the label {names.GPU_PRODUCT_LABEL}. Either this or gpus.",
        examples=["NVIDIA-H100-80GB-HBM3", "NVIDIA-L40S"],
    )
    gpus: GPUProducts | None = Field(
        default=None,
        description=(
            "GPU products to choose from, in any order; the cheapest that meets the SLO wins, and one service never "
            "mixes them. Either this or gpu."
        ),
    )
    max_gpus: int = Field(
        default=8,
        alias="maxGPUs",
        description=(
            "The most GPUs this service may hold at any time, over all replicas, including surge during a roll-out "
            "and a canary during an experiment."
        ),
        ge=1,
        le=MAX_GPUS,
    )


class LoadSpec(APIModel):
    """Typical traffic of the whole service. Each figure is optional; what is missing is learned from metrics."""

    rules: ClassVar = (
        Rule(
            cel=(
                "!has(self.sharedPrefixTokens) || !has(self.promptTokens)"
                " || self.sharedPrefixTokens <= self.promptTokens"
            ),
            message="sharedPrefixTokens is a part of the prompt: it must not exceed promptTokens",
            holds=lambda load: _at_most(load.shared_prefix_tokens, load.prompt_tokens),
            field="sharedPrefixTokens",
        ),
        Rule(
            cel="!has(self.promptTokensP95) || (has(self.promptTokens) && self.promptTokens <= self.promptTokensP95)",
            message="promptTokensP95 needs promptTokens beside it, and must not be less",
            holds=lambda load: _longer(load.prompt_tokens, load.prompt_tokens_p95),
            field="promptTokensP95",
        ),
        Rule(
            cel="!has(self.outputTokensP95) || (has(self.outputTokens) && self.outputTokens <= self.outputTokensP95)",
            message="outputTokensP95 needs outputTokens beside it, and must not be less",
            holds=lambda load: _longer(load.output_tokens, load.output_tokens_p95),
            field="outputTokensP95",
        ),
    )

    concurrency: int | None = Field(
        default=None,
        description="Requests in flight at once over the whole service at a busy time.",
        ge=1,
        le=1_000_000,
        examples=[24],
    )
    requests_per_second: float | None = Field(
        default=None,
        description=(
            "Requests arriving per second over the whole service at a busy time. May be given together with "
            "concurrency; the larger need counts."
        ),
        gt=0,
        le=1_000_000,
        examples=[3.5],
    )
    prompt_tokens: Tokens | None = Field(
        default=None, description="Tokens of a typical prompt, shared prefix included.", examples=[6000]
    )
    output_tokens: Tokens | None = Field(
        default=None, description="Tokens a typical request generates, reasoning included.", examples=[500]
    )
    prompt_tokens_p95: Tokens | None = Field(
        default=None,
        alias="promptTokensP95",
        description=(
            "Tokens that 95 % of prompts do not exceed. Left out: the head-room of every plan stands for longer ones."
        ),
        examples=[16000],
    )
    output_tokens_p95: Tokens | None = Field(
        default=None,
        alias="outputTokensP95",
        description="Tokens that 95 % of requests generate at most.",
        examples=[1500],
    )
    shared_prefix_tokens: int | None = Field(
        default=None,
        description=(
            "Tokens at the start of a typical prompt that most requests share, such as a system prompt; with prefix "
            "caching they are stored once per engine."
        ),
        ge=0,
        le=MAX_TOKENS,
        examples=[2000],
    )


class SLOSpec(APIModel):
    """Latency targets. A plan that cannot meet them is still made, and says so in the condition SLOMet."""

    ttft: Duration | None = Field(
        default=None,
        description="Time to first token, queueing included. A number and a unit: ms, s or m.",
        examples=["2s", "800ms"],
    )
    itl: Duration | None = Field(
        default=None,
        description="Inter-token latency: time between two tokens of a request. A number and a unit: ms, s or m.",
        examples=["50ms"],
    )
    percentile: int = Field(
        default=95, description="The share of requests, in percent, that must meet the targets.", ge=50, le=99
    )


class ActivationSpec(APIModel):
    """How a service that has no replicas learns of requests."""

    query: str = Field(
        description=(
            "Name of a query that the operator's owner has set up (docs/scaling.md): it says how many requests wait "
            "for the service, also while it has no replicas."
        ),
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        max_length=63,
        examples=["gateway-requests"],
    )
    idle_after: Duration | None = Field(
        default=None,
        description="The last replica goes after so long without any request. Left out: 10m.",
        examples=["30m"],
    )


class ScalingSpec(APIModel):
    """Who chooses the number of replicas, and within which bounds."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.minReplicas) || self.minReplicas > 0 || has(self.activation)",
            message=(
                "minReplicas 0 needs activation.query: without replicas only a query at the gateway can tell that "
                "somebody asks"
            ),
            holds=lambda scaling: scaling.min_replicas > 0 or scaling.activation is not None,
            field="minReplicas",
        ),
        Rule(
            cel="!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
            message="minReplicas must not exceed maxReplicas",
            holds=lambda scaling: _at_most(scaling.min_replicas, scaling.max_replicas),
            field="minReplicas",
        ),
    )

    mode: Literal["Auto", "External", "Fixed"] = Field(
        default="Auto",
        description=(
            "Auto: Plimsoll chooses the replicas from KV-cache demand, between minReplicas and maxReplicas. "
            "External: an HPA, KEDA or a person sets spec.replicas through the scale subresource. "
            "Fixed: spec.replicas as it is written."
        ),
    )
    min_replicas: int = Field(
        default=1,
        description=(
            "The fewest replicas in mode Auto, kept whatever the load. With 2 or more a PodDisruptionBudget protects "
            "them. 0: none while nobody asks, which needs activation."
        ),
        ge=0,
        le=MAX_REPLICAS,
    )
    max_replicas: int | None = Field(
        default=None,
        description="The most replicas in mode Auto. Left out: as many as hardware.maxGPUs allows.",
        ge=1,
        le=MAX_REPLICAS,
        examples=[8],
    )
    activation: ActivationSpec | None = Field(
        default=None, description="What wakes the service in mode Auto with minReplicas 0. Left out: it never sleeps."
    )


class TuningSpec(APIModel):
    """Experiments with engine flags while the service runs, one at a time and on one replica."""

    mode: Literal["Off", "Recommend", "Auto"] = Field(
        default="Recommend",
        description=(
            "Off: none. Recommend: a better setting is reported and waits for approval. Auto: settings named in allow "
            "are tried on a canary, judged, and kept or rolled back (docs/tuning.md); KVCacheDtype only behind a "
            "qualityGate."
        ),
    )
    allow: Tunables = Field(
        default=(),
        description=(
            "Settings that mode Auto may change by itself; all others are only recommended. With KVCacheDtype and no "
            "qualityGate, plans may use fp8 KV from the start where that makes them possible or cheaper: a decision "
            "about quality that you have taken. Left out: none."
        ),
    )
    quality_gate: QualityGateSpec | None = Field(
        default=None,
        description=(
            "Who judges fp8 KV before any user's request reaches it: a Job that compares a candidate with a baseline "
            "(docs/tuning.md). With it, plans take no fp8 KV from the start. `{}`: the built-in comparison. Left out: "
            "none, and fp8 KV is never tried."
        ),
    )
    freeze: tuple[FreezeWindow, ...] = Field(
        default=(),
        description=(
            "Times of the week in which no experiment begins, whoever asks for it, and one that has not been judged "
            "yet ends (docs/tuning.md). Left out: none."
        ),
        max_length=16,
        strict=False,
        examples=[[{"days": ["Monday", "Friday"], "from": "08:00", "to": "18:00", "timeZone": "Europe/Berlin"}]],
    )
    load: Literal["Learned", "Declared"] = Field(
        default="Learned",
        description=(
            "Which load the next plan and the autoscaler count with. Learned: spec.load is a floor until the traffic "
            "of days says otherwise (docs/learning.md), status.load shows both. Declared: spec.load alone."
        ),
    )


class RolloutSpec(APIModel):
    """How pods are replaced when their template changes."""

    no_spare_gpu: Literal["Wait", "Recreate"] = Field(
        default="Wait",
        alias="noSpareGPU",
        description=(
            "What to do when a change needs new pods, the service has a single replica, and no GPU is free for a "
            "second one beside it (none in the cluster, or maxGPUs does not allow it). Wait: keep serving with the old "
            "pod until a GPU is free. Recreate: end the old pod first, which interrupts the service for as long as the "
            "new one loads. Several replicas are replaced one at a time and need no spare GPU."
        ),
    )


class EngineSpec(APIModel):
    """The vLLM engine."""

    version: str | None = Field(
        default=None,
        description=(
            "vLLM version, without a leading v. Left out: the newest one this operator has a table for, as reported in "
            "status.plan.choice.engineVersion."
        ),
        pattern=r"^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(rc[0-9]{1,4}|\.(post|dev)[0-9]{1,6})?$",
        max_length=32,
        examples=["0.32.0"],
    )
    image: ImageReference | None = Field(
        default=None,
        description=(
            "Container image of the engine, for a mirror or an own build; it must hold the vLLM of engine.version. "
            "Left out: vllm/vllm-openai with the version as its tag."
        ),
        examples=["registry.example.com/vllm/vllm-openai:v0.32.0"],
    )
    extra_args: tuple[EngineArgument, ...] = Field(
        default=(),
        description=(
            "Further arguments of `vllm serve`, one list element each. They win over what Plimsoll would set, are "
            "checked against the engine's version, and enter the plan's arithmetic."
        ),
        max_length=64,
        strict=False,
        examples=[["--kv-cache-dtype=fp8", "--enable-auto-tool-choice"]],
    )
    lora: LoRASpec | None = Field(default=None, description="LoRA adapters. Left out: none.")
    speculative: SpeculativeSpec | None = Field(default=None, description="Speculative decoding. Left out: none.")
    kv_offload: KVOffloadSpec | None = Field(
        default=None, description="A second tier of the KV cache in host memory. Left out: none."
    )
    security: Literal["Restricted", "Baseline"] | None = Field(
        default=None,
        description=(
            "Restricted: not root, read-only root file system, no capabilities, as the Pod Security level of that "
            "name asks. Baseline: the image's own user and a writable root. Left out: Restricted where the image is "
            "known to run so (vllm-openai from 0.25 on), else Baseline."
        ),
    )
    shared_memory: ByteQuantity | None = Field(
        default=None,
        description="Size of /dev/shm, which is counted as memory of the pod. Left out: 2Gi for each of its GPUs.",
        examples=["16Gi"],
    )


class StartupSpec(APIModel):
    """How long a pod may take to start."""

    timeout: Duration | None = Field(
        default=None,
        description=(
            "A container that has not served by then is restarted. Left out: twice the estimate in "
            "status.plan.startup, and 5 minutes at least."
        ),
        examples=["45m"],
    )


class DrainSpec(APIModel):
    """How a pod ends without losing requests."""

    timeout: Duration | None = Field(
        default=None,
        description=(
            "How long requests in flight may go on after a pod was told to end. Left out: the longest generation "
            "expected, between 1 and 9 minutes (status.plan.drain)."
        ),
        examples=["5m"],
    )
    endpoint_delay: Duration | None = Field(
        default=None,
        description=(
            "How long an ending pod goes on to take requests, until every router has forgotten it. Left out: what the "
            "operator's owner set, 10s."
        ),
        examples=["15s"],
    )


class VLLMServiceSpec(APIModel):
    """What should be served, on what, and how well. model, hardware and contextTokens are enough."""

    rules: ClassVar = (
        Rule(
            cel="!has(self.scaling.maxReplicas) || self.scaling.maxReplicas <= self.hardware.maxGPUs",
            message="scaling.maxReplicas must not exceed hardware.maxGPUs: every replica needs at least one GPU",
            holds=lambda spec: _at_most(spec.scaling.max_replicas, spec.hardware.max_gpus),
            field="scaling.maxReplicas",
        ),
        Rule(
            cel="self.scaling.minReplicas <= self.hardware.maxGPUs",
            message="scaling.minReplicas must not exceed hardware.maxGPUs: every replica needs at least one GPU",
            holds=lambda spec: spec.scaling.min_replicas <= spec.hardware.max_gpus,
            field="scaling.minReplicas",
        ),
        Rule(
            cel=(
                "!has(self.load) || (has(self.load.promptTokens) ? self.load.promptTokens : 0)"
                " + (has(self.load.outputTokens) ? self.load.outputTokens : 0) <= self.contextTokens"
            ),
            message=(
                "load.promptTokens + load.outputTokens must not exceed contextTokens: "
                "a typical request must be servable"
            ),
            holds=lambda spec: _typical_request_tokens(spec.load) <= spec.context_tokens,
            field="load",
        ),
        Rule(
            cel=(
                "!has(self.load) || "
                "((!has(self.load.promptTokensP95) || self.load.promptTokensP95 < self.contextTokens) && "
                "(!has(self.load.outputTokensP95) || self.load.outputTokensP95 < self.contextTokens))"
            ),
            message="load.promptTokensP95 and load.outputTokensP95 must be less than contextTokens",
            holds=lambda spec: _longest_part_tokens(spec.load) < spec.context_tokens,
            field="load",
        ),
        Rule(
            cel="oldSelf.scaling.mode != 'Auto' || self.scaling.mode != 'Auto' || self.replicas == oldSelf.replicas",
            message=(
                "scaling.mode is Auto: Plimsoll chooses the replicas; "
                "set scaling.mode to External or Fixed to scale by hand"
            ),
            holds=None,
            field="replicas",
        ),
    )

    model: ModelSpec = Field(description="The model to serve.")
    hardware: HardwareSpec = Field(description="The GPUs that may be used, and how many.")
    context_tokens: Tokens = Field(
        description=(
            "The longest request in tokens, prompt and output together, that must be servable at any time. It becomes "
            "the engine's --max-model-len; the KV cache of every engine holds at least one such request. Ask for what "
            "you need: the model's own maximum is often far more than a GPU can hold."
        ),
        examples=[131072],
    )
    load: LoadSpec | None = Field(
        default=None, description="Typical traffic of the whole service. Optional: it is learned from metrics later."
    )
    slo: SLOSpec | None = Field(default=None, description="Latency targets. Optional: without them throughput decides.")
    objective: Literal["Latency", "Throughput", "Balanced"] = Field(
        default="Balanced",
        description=(
            "What to favour among plans that meet the SLO. Latency: the fastest. Throughput: the most tokens per GPU. "
            "Balanced: the cheapest."
        ),
    )
    scaling: ScalingSpec = Field(
        default=ScalingSpec(), description="Who chooses the number of replicas, and within which bounds."
    )
    tuning: TuningSpec = Field(
        default=TuningSpec(), description="Experiments with engine flags while the service runs."
    )
    rollout: RolloutSpec = Field(default=RolloutSpec(), description="How pods are replaced when they must change.")
    engine: EngineSpec = Field(default=EngineSpec(), description="The vLLM engine: version, image, further arguments.")
    startup: StartupSpec | None = Field(default=None, description="How long a pod may take to start.")
    drain: DrainSpec | None = Field(default=None, description="How a pod ends without losing requests.")
    pod_template: PodTemplate | None = Field(
        default=None,
        description=(
            "Further labels, variables, volumes, sidecars and scheduling of the pods, merged into ours as Kubernetes "
            "merges, within what the operator's owner allows (docs/pods.md). A change restarts the pods, a few at a "
            "time."
        ),
    )
    replicas: int = Field(
        default=1,
        description=(
            "Replicas in the scaling modes External and Fixed; unused in Auto, where it cannot be changed. An HPA, "
            "KEDA or `kubectl scale` write it through the scale subresource. Never more run than hardware.maxGPUs "
            "allows. 0 parks the service: no pods, no GPUs, until it is raised again."
        ),
        ge=0,
        le=MAX_REPLICAS,
    )
    routing: RoutingSpec | None = Field(
        default=None, description="Ways to the engines beside the Service. Changing it restarts no pod."
    )
    class_name: str | None = Field(
        default=None,
        description=(
            "The operator class: only a Plimsoll install of this class serves the service. Left out: the install "
            "without a class. It may change at any time; the pods stay."
        ),
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        max_length=40,
        examples=["team-a"],
    )
    mode: Literal["Act", "Shadow"] = Field(
        default="Act",
        description=(
            "Act: do what is planned. Shadow: plan, observe, decide and record in status, but write nothing to pods; "
            f"as the annotation {names.ANNOTATION_HOLD}, but kept in Git."
        ),
    )


class Metadata(APIModel):
    """What the operator reads of an object's metadata."""

    name: str
    namespace: str = "default"
    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str] = Field(default={})
    annotations: dict[str, str] = Field(default={})


class VLLMService(APIModel):
    """One model served by a fleet of vLLM engines, sized so that every request of contextTokens fits the KV cache."""

    rules: ClassVar = (
        Rule(
            cel=f"self.metadata.name.matches('^{_NAME_PATTERN}$') && size(self.metadata.name) <= {_NAME_MAX_LENGTH}",
            message=(
                f"metadata.name must be a DNS-1035 label of at most {_NAME_MAX_LENGTH} characters (a-z, 0-9 and -, "
                "first a letter, last no -), because it also names a Service: qwen3.5-9b is not valid, qwen35-9b is"
            ),
            holds=lambda service: is_service_name(service.metadata.name),
            field="metadata.name",
        ),
    )

    api_version: Literal["plimsoll.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["VLLMService"] = names.KIND
    metadata: Metadata
    spec: VLLMServiceSpec


def is_service_name(name: str) -> bool:
    """Whether a VLLMService may be called so: its children include a Service of that name."""
    return len(name) <= _NAME_MAX_LENGTH and re.fullmatch(_NAME_PATTERN, name) is not None
