"""Condition reasons: one constant each, with its meaning and what to do about it.

A new reason is one more constant; ``docs/reference.md`` lists it after ``tools/generate.py``. Reasons never change
their name, since alerts and scripts match on them. The planner's refusals carry the names of `plimsoll predict`
(``camel_reason``). What becomes of writes stands in ``write_reasons.py``, why a roll-out waits in
``rollout_reasons.py``, why an engine failed in ``engine_reasons.py``, what limits the count in ``scaling_reasons.py``,
what is known of a fleet in ``metrics_reasons.py``.
"""

from typing import Final

from plimsoll.api import (
    engine_reasons,
    experiment_reasons,
    metrics_reasons,
    pool_reasons,
    rollout_reasons,
    scaling_reasons,
    write_reasons,
)
from plimsoll.api.names import (
    AVAILABLE,
    EXPERIMENTING,
    INTEGRATED,
    KV_PREDICTION_ACCURATE,
    METRICS_AVAILABLE,
    PLAN_UPDATE_AVAILABLE,
    PLANNED,
    READY,
    RECONCILING,
    SCALING_LIMITED,
    SLO_MET,
    STALLED,
)
from plimsoll.api.reason import Reason, camel_reason, table

__all__ = ["REASONS", "Reason", "camel_reason"]

_REFUSED: Final = (PLANNED, READY, STALLED)
_NOTHING: Final = "Nothing to do."

FLEET_READY: Final = Reason("FleetReady", (READY,), "Every wanted replica is ready.", _NOTHING)
NOT_PLANNED: Final = Reason(
    "NotPlanned", (READY, RECONCILING, AVAILABLE), "No plan is in force.", "Read the condition Planned: it says why."
)
PROGRESSING: Final = Reason(
    "Progressing",
    (READY,),
    "Replicas are being created, loaded or replaced.",
    "Wait; loading large weights takes minutes. `kubectl get pods` shows who is not ready.",
)
REPLICAS_UNAVAILABLE: Final = Reason(
    "ReplicasUnavailable",
    (READY,),
    "Fewer replicas are ready than wanted, and no roll-out explains it.",
    "Look at the pods that are not ready: Pending means no free GPU, restarts mean the engine fails; read its log with "
    "`plimsoll check-log`.",
)

FEASIBLE: Final = Reason("Feasible", (PLANNED,), "A plan is in force.", _NOTHING)
ENGINE_NOT_RECORDED: Final = Reason(
    "EngineNotRecorded",
    (PLANNED,),
    "A plan is in force, by the rules of another vLLM release: nothing was recorded of the one that runs.",
    "Nothing to do while KVPredictionAccurate is True: the pods agree. Else use a release that is known, or "
    "an operator that knows this one (docs/engine-updates.md).",
)
KV_CACHE_TOO_SMALL: Final = Reason(
    "KVCacheTooSmall",
    _REFUSED,
    "One request of contextTokens does not fit the KV cache that is left beside the weights.",
    "Apply one of status.plan.nearest: fewer contextTokens, more GPUs per replica (maxGPUs), a larger GPU, or fp8 KV.",
)
NO_MEMORY_FOR_KV: Final = Reason(
    "NoMemoryForKV",
    _REFUSED,
    "Weights and activations leave no memory for any KV cache.",
    "Raise hardware.maxGPUs, take a larger GPU or a quantised model.",
)
WEIGHTS_DO_NOT_FIT: Final = Reason(
    "WeightsDoNotFit",
    _REFUSED,
    "The weights are larger than the memory of the GPUs allowed.",
    "Raise hardware.maxGPUs, take a larger GPU or a quantised model.",
)
NOT_ENOUGH_FREE_MEMORY: Final = Reason(
    "NotEnoughFreeMemory",
    _REFUSED,
    "Less GPU memory is free at start than the engine is told to use.",
    "Find what else holds the GPU's memory; lower --gpu-memory-utilization if it must stay.",
)
OOM_RISK: Final = Reason(
    "OOMRisk",
    _REFUSED,
    "The engine would start, but may run out of GPU memory under load.",
    "Lower --max-num-batched-tokens, --max-num-seqs or --gpu-memory-utilization in engine.extraArgs.",
)
MAX_NUM_SEQS_ABOVE_STATE_BLOCKS: Final = Reason(
    "MaxNumSeqsAboveStateBlocks",
    _REFUSED,
    "--max-num-seqs asks for more sequences than a hybrid model has state blocks.",
    "Remove --max-num-seqs from engine.extraArgs, or lower it to the figure in the message.",
)
HEADS_NOT_DIVISIBLE: Final = Reason(
    "HeadsNotDivisible",
    _REFUSED,
    "The model's attention heads cannot be split over that many GPUs.",
    "Use a tensor-parallel size that divides the number of heads, or leave it to Plimsoll.",
)
KV_DTYPE_UNSUPPORTED: Final = Reason(
    "KVDtypeUnsupported",
    _REFUSED,
    "The KV-cache data type does not work with this model, GPU and engine version.",
    "Remove --kv-cache-dtype from engine.extraArgs, or choose another.",
)
QUANTIZATION_UNSUPPORTED: Final = Reason(
    "QuantizationUnsupported",
    _REFUSED,
    "The GPU, or the engine in the image, cannot run the checkpoint's quantisation.",
    "Take a newer GPU or a checkpoint in another format.",
)
DTYPE_UNSUPPORTED: Final = Reason(
    "DtypeUnsupported",
    _REFUSED,
    "The GPU cannot compute in the dtype asked for.",
    "Leave --dtype out or set it to float16, or take a GPU of compute capability 8.0 or newer.",
)
NO_ATTENTION_BACKEND: Final = Reason(
    "NoAttentionBackend",
    _REFUSED,
    "No attention backend of this engine version runs this model with these settings on this GPU.",
    "Choose another GPU or engine version, or drop the setting that the message names.",
)
MAX_MODEL_LEN_ABOVE_MODEL: Final = Reason(
    "MaxModelLenAboveModel",
    _REFUSED,
    "contextTokens is more than the model was made for.",
    "Lower spec.contextTokens to the figure in the message.",
)
MAX_GPUS_EXCEEDED: Final = Reason(
    "MaxGPUsExceeded",
    _REFUSED,
    "The fewest replicas asked for need more GPUs than hardware.maxGPUs.",
    "Raise hardware.maxGPUs, or lower scaling.minReplicas.",
)
SEVERAL_NODES: Final = Reason(
    "SeveralNodes",
    _REFUSED,
    "One replica spans several nodes, and that cannot be rolled out or managed here now.",
    "Read the message: install LeaderWorkerSet, grant the operator its rules, or take a newer engine; else a larger "
    "GPU in hardware.gpus or a quantised checkpoint. A fleet that runs already is left as it is meanwhile.",
)
BAD_FLAG: Final = Reason(
    "BadFlag",
    _REFUSED,
    "An argument in engine.extraArgs is unknown to this engine version, or its value is not allowed.",
    "Correct engine.extraArgs as the message says.",
)
UNKNOWN_MODEL: Final = Reason(
    "UnknownModel",
    _REFUSED,
    "No configuration is known for model.id.",
    "Put the model's config.json into a ConfigMap and name it in model.configRef.",
)
UNKNOWN_GPU: Final = Reason(
    "UnknownGPU",
    _REFUSED,
    "Nothing is known about this GPU product.",
    "Spell it as nodes do: `kubectl get nodes -L nvidia.com/gpu.product`.",
)
MIXED_NODES: Final = Reason(
    "MixedNodes",
    _REFUSED,
    "Nodes of this GPU product also hold other GPUs, so that their label says too little to plan on.",
    "Name another product, or let the operator's owner separate the nodes and drop mixedNodes from the inventory.",
)
SHARED_GPU: Final = Reason(
    "SharedGPU",
    _REFUSED,
    "GPUs of this product are shared by time slicing, which parts no memory: what others hold is not known.",
    "Name whole GPUs or MIG slices, or let the operator's owner say in the inventory what others hold (reserveGiB).",
)
UNKNOWN_ARCHITECTURE: Final = Reason(
    "UnknownArchitecture",
    _REFUSED,
    "The model's architecture is not one whose KV cache can be calculated.",
    "Use a newer Plimsoll, or ask for the architecture in an issue.",
)
INVALID_MODEL_CONFIG: Final = Reason(
    "InvalidModelConfig",
    _REFUSED,
    "The model's config.json cannot be used.",
    "Correct the field that the message names in the ConfigMap of model.configRef or in the catalogue.",
)
INVALID_SPEC: Final = Reason(
    "InvalidSpec",
    _REFUSED,
    "The spec breaks the contract; the CRD in the cluster is probably older than the operator.",
    "Correct the field that the message names; update the CRD with `plimsoll crd | kubectl apply --server-side -f -`.",
)
POD_TEMPLATE_REFUSED: Final = Reason(
    "PodTemplateRefused",
    _REFUSED,
    "spec.podTemplate holds something that belongs to Plimsoll or that the operator's owner has not allowed.",
    "Take out what the message names, or use the field of the spec it points to; the owner's pod policy "
    "(docs/pods.md) can allow the rest.",
)
IMAGE_REFUSED: Final = Reason(
    "ImageRefused",
    _REFUSED,
    "The engine's image is none of those that the operator's owner allows.",
    "Set spec.engine.image to one that the message names, or ask the owner to add it to the pod policy (docs/pods.md).",
)
SOURCE_REFUSED: Final = Reason(
    "SourceRefused",
    _REFUSED,
    "spec.model names a folder of the node, a Secret, a ConfigMap, a claim or an image that the operator's owner has "
    "not allowed.",
    "Use another source, or ask the owner to add it to the pod policy (docs/pods.md).",
)
VOLUME_NOT_SHAREABLE: Final = Reason(
    "VolumeNotShareable",
    _REFUSED,
    "A volume that only one node (or pod) may mount at a time would be needed by several replicas.",
    "Use a ReadWriteMany or ReadOnlyMany claim, or let one replica be all: scaling.maxReplicas 1, or spec.replicas 1.",
)
VOLUME_CLAIM_MISSING: Final = Reason(
    "VolumeClaimMissing",
    _REFUSED,
    "A PersistentVolumeClaim that the service names does not exist.",
    "Create the claim in the service's namespace; it is looked for again every 15 seconds.",
)
CATALOGUE_UNREADABLE: Final = Reason(
    "CatalogueUnreadable",
    _REFUSED,
    "The ConfigMap or key with the model's configuration is missing or is no JSON.",
    "Create or correct the ConfigMap that the message names.",
)
NAME_CONFLICT: Final = Reason(
    "NameConflict",
    (STALLED, INTEGRATED),
    "An object of a name the service needs exists and belongs to somebody else; it is left untouched.",
    "Delete or rename that object, or the service.",
)
FORBIDDEN: Final = Reason(
    "Forbidden",
    (STALLED, INTEGRATED),
    "The operator lacks a right that it needs for this service.",
    "Add the verb and resource that the message names to the operator's role; the chart's role has them all.",
)
REFUSED: Final = Reason(
    "Refused",
    (STALLED, INTEGRATED),
    "The API server will not accept an object as it is.",
    "Read the message: it names the field; then correct the spec.",
)
NOT_STALLED: Final = Reason("NotStalled", (STALLED,), "Nothing is in the way.", _NOTHING)

APPLYING: Final = Reason("Applying", (RECONCILING,), "Objects are being created or changed.", "Wait.")
WAITING_FOR_PODS: Final = Reason(
    "WaitingForPods",
    (RECONCILING,),
    "Pods exist and are not ready yet.",
    "Wait; if a pod stays Pending, `kubectl describe` it: often no GPU of the kind is free.",
)
ROLLING_OUT: Final = Reason("RollingOut", (RECONCILING,), "Pods are being replaced by ones of the new plan.", "Wait.")
UP_TO_DATE: Final = Reason("UpToDate", (RECONCILING, PLAN_UPDATE_AVAILABLE), "Everything is as it should be.", _NOTHING)
ON_HOLD: Final = Reason(
    "OnHold",
    (RECONCILING, READY),
    "The hold annotation or mode Shadow is set: nothing about the pods is changed.",
    "Remove the annotation or set mode to Act when you are done.",
)

MINIMUM_REPLICAS_AVAILABLE: Final = Reason("MinimumReplicasAvailable", (AVAILABLE,), "Enough replicas serve.", _NOTHING)
NO_REPLICA_READY: Final = Reason(
    "NoReplicaReady",
    (AVAILABLE,),
    "No replica can serve.",
    "Look at the pods and at the log of the engine: `plimsoll check-log`.",
)
LOADING: Final = Reason(
    "Loading", (AVAILABLE,), "The first replicas load the model.", "Wait; large weights take minutes."
)
PENDING: Final = Reason(
    "Pending",
    (AVAILABLE,),
    "Pods wait for a node with a free GPU of the product, or for their image.",
    "`kubectl describe` a pending pod; free GPUs, add nodes, or lower the replicas.",
)
PARKED: Final = Reason(
    "Parked",
    (READY, AVAILABLE),
    "No pods are wanted: spec.replicas is 0, or in mode Auto with minReplicas 0 nobody asks.",
    "Raise spec.replicas; a service that sleeps wakes with the next request.",
)

NEWER_PLAN: Final = Reason(
    "NewerPlan",
    (PLAN_UPDATE_AVAILABLE,),
    "Planning again would give another plan than the one that runs; nothing restarts by itself.",
    "Apply it with the annotation plimsoll.dev/accept-plan that the message names, or with the next spec change.",
)
PLAN_NOW_INFEASIBLE: Final = Reason(
    "PlanNowInfeasible",
    (PLAN_UPDATE_AVAILABLE,),
    "Planning again would refuse what runs; it keeps running.",
    "Read the message before the next spec change: that change would be refused for the same reason.",
)
CANNOT_PLAN: Final = Reason(
    "CannotPlan",
    (PLAN_UPDATE_AVAILABLE,),
    "The model's configuration cannot be read now, so it is unknown whether a newer plan exists.",
    "Correct the ConfigMap that the message names; what runs keeps running.",
)
WITHIN_LIMITS: Final = Reason("WithinLimits", (SCALING_LIMITED,), "The wanted replicas run.", _NOTHING)
MAX_GPUS: Final = Reason(
    "MaxGPUs",
    (SCALING_LIMITED,),
    "More replicas are asked for than hardware.maxGPUs allows.",
    "Raise spec.hardware.maxGPUs, or ask for fewer replicas.",
)
NO_EXPERIMENT: Final = Reason("NoExperiment", (EXPERIMENTING,), "Nothing is being tried out.", _NOTHING)

IN_USE: Final = Reason(
    "InUse", (INTEGRATED,), "What the service wants of optional kinds is in place, if it wants any.", _NOTHING
)
KIND_MISSING: Final = Reason(
    "KindMissing",
    (INTEGRATED,),
    "The service wants an object of a kind that the cluster does not serve, or that is turned off in the operator's "
    "settings.",
    "Install the CRD that the message names (no restart is needed), or take the wish out of the spec.",
)
KIND_UNUSABLE: Final = Reason(
    "KindUnusable",
    (INTEGRATED,),
    "A kind is served, but the operator may not or cannot use it now. The fleet is not affected.",
    "Read the message: grant the rules for the kind (chart value settings.optionalKinds, docs/optional-kinds.md), or "
    "take it out of the operator's settings.",
)

NO_OBSERVATION: Final = Reason(
    "NoObservation",
    (METRICS_AVAILABLE, SLO_MET, SCALING_LIMITED, KV_PREDICTION_ACCURATE, INTEGRATED),
    "Nothing has been observed from which it could be told.",
    "Wait for the first pods to serve; if it stays, check that Prometheus scrapes them.",
)
DISABLED: Final = Reason(
    "Disabled",
    (METRICS_AVAILABLE, SLO_MET, SCALING_LIMITED, KV_PREDICTION_ACCURATE, EXPERIMENTING),
    "It is turned off, in the spec or in the operator's settings.",
    "Nothing to do, unless you want it: the message names the setting.",
)

REASONS: Final = {
    **table(globals()),
    **write_reasons.REASONS,
    **rollout_reasons.REASONS,
    **engine_reasons.REASONS,
    **scaling_reasons.REASONS,
    **metrics_reasons.REASONS,
    **pool_reasons.REASONS,
    **experiment_reasons.REASONS,
}
"""Every reason by its name: those of this file, then of writes, roll-outs, engines, scaling, metrics, pools, trials."""
