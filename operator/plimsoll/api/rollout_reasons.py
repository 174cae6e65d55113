"""Reasons why a roll-out waits, is slow or cannot go on: GPUs, nodes, quotas, images, objects that are not there."""

from typing import Final

from plimsoll.api.names import AVAILABLE, INTEGRATED, READY, RECONCILING, STALLED
from plimsoll.api.reason import Reason, table

_ROLLOUT: Final = (READY, AVAILABLE, RECONCILING, STALLED)


def _reason(name: str, meaning: str, runbook: str) -> Reason:
    return Reason(name, _ROLLOUT, meaning, runbook)


NO_SPARE_GPU: Final = _reason(
    "NoSpareGPU",
    "What must be replaced has no room for its successor beside it: the old pod keeps serving.",
    "Free or add a GPU of the product, raise hardware.maxGPUs, or allow the interruption: spec.rollout.noSpareGPU: "
    "Recreate. Where the operator may not list nodes and pods, no GPU counts as free.",
)
NO_NODE_OF_PRODUCT: Final = _reason(
    "NoNodeOfProduct",
    "No node carries the GPU product's label (and what else the pod selects).",
    "Compare hardware.gpu with `kubectl get nodes -L nvidia.com/gpu.product`; add nodes, or see why the GPU operator "
    "does not label them.",
)
NO_FREE_GPU: Final = _reason(
    "NoFreeGPU",
    "All GPUs of the product are taken.",
    "Free GPUs, add nodes, or ask for fewer replicas; the pods start by themselves when there is room.",
)
NODES_TAINTED: Final = _reason(
    "NodesTainted",
    "Nodes with free GPUs have a taint that the pods do not tolerate.",
    "Add the toleration in spec.podTemplate, or remove the taint that the message names.",
)
NODES_UNAVAILABLE: Final = _reason(
    "NodesUnavailable",
    "The nodes of the product are cordoned or not Ready.",
    "Uncordon or repair the nodes that the message names.",
)
NODE_WITHOUT_GPU: Final = _reason(
    "NodeWithoutGPU",
    "Nodes carry the product's label but have no GPU to give: the driver or the device plugin is missing there.",
    "Look at the device plugin and driver pods of the nodes that the message names; replace the nodes if they stay so.",
)
UNSCHEDULABLE: Final = _reason(
    "Unschedulable",
    "The scheduler finds no place for a pod, for another reason than GPUs.",
    "Read the message: CPU or memory of the nodes, affinity, topology spread or a volume's zone.",
)
QUOTA_EXCEEDED: Final = Reason(
    "QuotaExceeded",
    (*_ROLLOUT, INTEGRATED),
    "A ResourceQuota of the namespace does not allow another pod, or another object of the service.",
    "Raise the quota that the message names, or ask for fewer replicas; the operator tries again by itself.",
)
PODS_REFUSED: Final = _reason(
    "PodsRefused",
    "The API server or an admission policy refuses the service's pods.",
    "Read the message: it names the policy, limit range or webhook; correct spec.podTemplate or the policy.",
)
IMAGE_PULL_FAILED: Final = _reason(
    "ImagePullFailed",
    "The engine's image cannot be pulled.",
    "Check engine.image and engine.version, the registry, and the pull secret in spec.podTemplate.",
)
OBJECT_MISSING: Final = _reason(
    "ObjectMissing",
    "A Secret, ConfigMap or volume claim that the pods use does not exist.",
    "Create the object that the message names; the pods start by themselves.",
)
VOLUME_NOT_BOUND: Final = _reason(
    "VolumeNotBound",
    "A volume claim that the pods use is not bound: no such StorageClass, no provisioner, or no space.",
    "`kubectl describe pvc` says why; the pods start by themselves when it is bound.",
)
VOLUME_NOT_MOUNTED: Final = _reason(
    "VolumeNotMounted",
    "A volume of a pod cannot be attached to its node or mounted there.",
    "Read the message: another node still holds the volume (ReadWriteOnce), the storage driver is missing on the node, "
    "or its server does not answer. The pod starts by itself when it is mounted.",
)
PULLING_IMAGE: Final = _reason(
    "PullingImage",
    "A node pulls the engine's image, which has several gigabytes.",
    "Wait; to make starts shorter, pull the image onto the nodes beforehand or use a registry nearby.",
)
CONTAINER_NOT_STARTED: Final = _reason(
    "ContainerNotStarted",
    "The node cannot create or start the container.",
    "Read the message; `kubectl describe` the pod. If it says so on one node only, look at that node's runtime.",
)
SIDECAR_FAILED: Final = _reason(
    "SidecarFailed",
    "A container beside the engine's, a sidecar or an init container, ends again and again: the pod does not serve.",
    "`kubectl logs POD -c NAME --previous` of the container that the message names; correct spec.podTemplate.",
)
STUCK_CREATING: Final = _reason(
    "StuckCreating",
    "A pod has a node, its container is not created, and no event of the pod that the operator may read says why.",
    "`kubectl describe` the pod. Without the right to list events in the namespace the operator cannot say more.",
)
POD_ENDED: Final = _reason(
    "PodEnded",
    "A node ended a pod: eviction, pre-emption, shutdown. Another one takes its place.",
    "Look at the node that the message names if it repeats: disk or memory pressure.",
)
LOADS_SLOWLY: Final = _reason(
    "LoadsSlowly",
    "Pods load for longer than planned.",
    "Look at the engine's log: download, compilation or warm-up. A volume that caches weights and compiled kernels "
    "makes starts short; the plan's estimate is in its assumptions.",
)
UNREADY: Final = _reason(
    "Unready",
    "A pod served and does not answer its health check any more.",
    "Look at the engine's log and its metrics; delete the pod if it does not recover.",
)
DEADLINE_EXCEEDED: Final = _reason(
    "DeadlineExceeded",
    "The roll-out has made no progress for twice the planned load time.",
    "Look at the pods that are not ready; the roll-out goes on by itself when they get there.",
)

REASONS: Final = table(globals())
"""Every reason of this file by its name."""
