"""Every name the cluster sees: group, labels, annotations, field managers, condition types and reasons."""

from typing import Final

GROUP: Final = "plimsoll.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "VLLMService"
PLURAL: Final = "vllmservices"
SINGULAR: Final = "vllmservice"
SHORT_NAMES: Final = ("vllm", "vllmsvc")
CATEGORIES: Final = ("inference",)

# Field managers: one per kind of intent, so that an omitted field is released by the one who owned it.
MANAGER_CHILDREN: Final = "plimsoll"
MANAGER_SCALE: Final = "plimsoll-scale"
MANAGER_STATUS: Final = "plimsoll-status"

LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_PART_OF: Final = "app.kubernetes.io/part-of"
LABEL_SERVICE: Final = f"{GROUP}/service"
LABEL_TRACK: Final = f"{GROUP}/track"
LABEL_CATALOGUE: Final = f"{GROUP}/model-catalogue"
MANAGED_BY: Final = "plimsoll"
TRACK_MAIN: Final = "main"

ANNOTATION_HASH: Final = f"{GROUP}/desired-hash"
ANNOTATION_HOLD: Final = f"{GROUP}/hold"
ANNOTATION_ACCEPT_PLAN: Final = f"{GROUP}/accept-plan"
ANNOTATION_RESTART: Final = f"{GROUP}/restart"
ANNOTATION_EXPERIMENT: Final = f"{GROUP}/experiment"
ANNOTATION_VERSION: Final = f"{GROUP}/version"

GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
GPU_RESOURCE: Final = "nvidia.com/gpu"

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
