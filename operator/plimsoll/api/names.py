"""Every name the cluster sees: group, labels, annotations, field managers, condition types. Reasons: ``reasons.py``.

The tables ``LABELS``, ``ANNOTATIONS``, ``MANAGERS`` and ``CONDITIONS`` say what each means; ``docs/reference.md`` is
generated from them.
"""

from collections.abc import Mapping
from typing import Final

GROUP: Final = "plimsoll.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "plimsoll.dev/v1alpha1"
KIND: Final = "VLLMService"
PLURAL: Final = "vllmservices"
SINGULAR: Final = "vllmservice"
SHORT_NAMES: Final = ("vllm", "vllmsvc")
CATEGORIES: Final = ("inference",)

# Field managers: one per kind of intent, so that an omitted field is released by the one who owned it.
MANAGER_CHILDREN: Final = "plimsoll"
MANAGER_SCALE: Final = "plimsoll-scale"
MANAGER_STATUS: Final = "plimsoll-status"
MANAGER_CLI: Final = "plimsoll-cli"

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_SERVICE: Final = f"{GROUP}/service"
LABEL_TRACK: Final = f"{GROUP}/track"
LABEL_CATALOGUE: Final = f"{GROUP}/model-catalogue"
MANAGED_BY: Final = "plimsoll"
TRACK_MAIN: Final = "main"
TRACK_CANARY: Final = "canary"
TRACK_CONTROL: Final = "control"
TRACK_WORKER: Final = "worker"
TRACK_GATE: Final = "gate"

ANNOTATION_HASH: Final = f"{GROUP}/desired-hash"
ANNOTATION_HOLD: Final = f"{GROUP}/hold"
ANNOTATION_ACCEPT_PLAN: Final = f"{GROUP}/accept-plan"
ANNOTATION_RESTART: Final = f"{GROUP}/restart"
ANNOTATION_EXPERIMENT: Final = f"{GROUP}/experiment"
ANNOTATION_TEMPLATE: Final = f"{GROUP}/template"
ANNOTATION_WAY: Final = f"{GROUP}/rollout"
ANNOTATION_VERSION: Final = f"{GROUP}/version"

GATE_PASSED: Final = f"{GROUP}/gate-passed"
"""The readiness gate of pods that may take no request until a quality gate has passed."""

GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
GPU_RESOURCE: Final = "nvidia.com/gpu"
MIG_RESOURCE_PREFIX: Final = "nvidia.com/mig-"

# Condition types.
READY: Final = "Ready"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
PLANNED: Final = "Planned"
AVAILABLE: Final = "Available"
PLAN_UPDATE_AVAILABLE: Final = "PlanUpdateAvailable"
METRICS_AVAILABLE: Final = "MetricsAvailable"
SLO_MET: Final = "SLOMet"
SCALING_LIMITED: Final = "ScalingLimited"
KV_PREDICTION_ACCURATE: Final = "KVPredictionAccurate"
EXPERIMENTING: Final = "Experimenting"
CONTESTED: Final = "Contested"
INTEGRATED: Final = "Integrated"

MANAGERS: Final[Mapping[str, str]] = {
    MANAGER_CHILDREN: "What a service owns: Deployment or LeaderWorkerSet, Service, revisions, what stands beside.",
    MANAGER_SCALE: "The replica count of a Deployment or LeaderWorkerSet, and nothing else.",
    MANAGER_STATUS: "The status of VLLMServices.",
    MANAGER_CLI: "Annotations that a person sets with `plimsoll hold|accept|restart|approve|reject|revert`.",
}

LABELS: Final[Mapping[str, str]] = {
    LABEL_NAME: (
        "What an object is: `vllm` on what serves, `vllm-worker` on a replica's further nodes, `vllm-gate` on a "
        "quality gate's Job, `plimsoll` on Plimsoll's own."
    ),
    LABEL_INSTANCE: "The VLLMService's name. In every selector; never changes.",
    LABEL_MANAGED_BY: f"`{MANAGED_BY}` on every object the operator owns; it watches only those.",
    LABEL_PART_OF: "`plimsoll` on every object the operator owns.",
    LABEL_SERVICE: "The VLLMService's name, on pods and on everything it owns.",
    LABEL_TRACK: (
        f"`{TRACK_MAIN}`: the fleet. `{TRACK_CANARY}`: the one replica an experiment runs on. `{TRACK_CONTROL}`: the "
        f"replica it is compared with. `{TRACK_WORKER}`: a further node of a replica that spans several, which serves "
        f"nothing itself. `{TRACK_GATE}`: the pod of a quality gate. The Service sends traffic to the first three; "
        f"/scale sees `{TRACK_MAIN}` only, the PodDisruptionBudget `{TRACK_MAIN}` and `{TRACK_WORKER}`."
    ),
    LABEL_CATALOGUE: (
        '`"true"` on a ConfigMap in the operator\'s namespace makes its keys `<org>--<name>.json` model configurations '
        "for every service."
    ),
}

ANNOTATIONS_OF_USERS: Final[Mapping[str, str]] = {
    ANNOTATION_HOLD: '`"true"`: observe and report only; nothing about the pods is changed until it is removed.',
    ANNOTATION_ACCEPT_PLAN: "A plan's revision, from the condition PlanUpdateAvailable: roll it out.",
    ANNOTATION_RESTART: "Any new value: restart the pods, a few at a time.",
    ANNOTATION_EXPERIMENT: (
        "`approve` a proposed experiment, `reject` it, or `revert` what one has changed. Each value is acted on once; "
        "to say the same again, put anything behind the word, a time for instance."
    ),
}

ANNOTATIONS_OF_OPERATOR: Final[Mapping[str, str]] = {
    ANNOTATION_HASH: "On what a service owns: the hash of what was intended, to tell whether the intent has changed.",
    ANNOTATION_TEMPLATE: "On pods and their template: the hash of the template, to tell old pods from new ones.",
    ANNOTATION_WAY: (
        "On the Deployment: how its pods are replaced. `Surge`: a new pod first. `OneAtATime`: an old pod gives way to "
        "a new one. `Recreate`: all old pods end first. Chosen when a roll-out begins."
    ),
    ANNOTATION_VERSION: "On the CRD: the Plimsoll version it was generated by.",
}

CONDITIONS: Final[Mapping[str, str]] = {
    READY: "The service serves as planned: a plan is in force and every wanted replica is ready.",
    RECONCILING: "The operator is still working towards the spec. Scaling with the load does not set it.",
    STALLED: "The operator cannot go on until somebody changes something; the reason says what.",
    PLANNED: "There is a configuration whose KV cache holds contextTokens on the hardware given.",
    AVAILABLE: "At least one replica can serve requests, or as many as scaling.minReplicas demands.",
    PLAN_UPDATE_AVAILABLE: "A newer planner, catalogue or engine table would plan differently; the message says how.",
    METRICS_AVAILABLE: "The figures that decisions need are there, fresh and complete.",
    SLO_MET: "The latency targets are met.",
    SCALING_LIMITED: "More replicas are needed than may run.",
    CONTESTED: (
        "Somebody else keeps changing what the operator sets on a child; the message names who, the object and the "
        "field."
    ),
    KV_PREDICTION_ACCURATE: "The KV cache that the engines report is the one that was planned.",
    INTEGRATED: "What the service wants of optional kinds (PodMonitor, InferencePool) is in place. Not part of Ready.",
    EXPERIMENTING: "An experiment with an engine flag is running or waits for approval.",
}
