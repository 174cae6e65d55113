"""Reasons why an engine does not start or does not stay: what its log, its exit and its pod say.

The planner's own refusals (``reasons.py``) are given too when an engine refuses what was planned: the words are the
same. `plimsoll check-log` prints these names in lower case with underscores.
"""

from typing import Final

from plimsoll.api.names import AVAILABLE, READY, RECONCILING, STALLED
from plimsoll.api.reason import Reason, table

_ENGINE: Final = (READY, AVAILABLE, RECONCILING, STALLED)


def _reason(name: str, meaning: str, runbook: str) -> Reason:
    return Reason(name, _ENGINE, meaning, runbook)


GPU_OUT_OF_MEMORY: Final = _reason(
    "GPUOutOfMemory",
    "The engine ran out of GPU memory. Once, Plimsoll plans again with the engine's own figures.",
    "If it stays: lower --gpu-memory-utilization or --max-num-batched-tokens in engine.extraArgs, raise "
    "hardware.maxGPUs for more tensor parallelism, or see who else uses the GPU.",
)
HOST_OUT_OF_MEMORY: Final = _reason(
    "HostOutOfMemory",
    "The kernel killed the engine because the container or its node ran out of host memory (OOMKilled, exit code 137).",
    "Set no lower memory limit than the plan's request, take larger nodes, or turn off CPU offloading in extraArgs.",
)
SHARED_MEMORY_TOO_SMALL: Final = _reason(
    "SharedMemoryTooSmall",
    "The shared memory of the pod (dev/shm) is too small for what the engine's processes exchange.",
    "Raise the size of the volume shm (spec.podTemplate), and remove what keeps the pod from mounting it.",
)
NCCL_FAILED: Final = _reason(
    "NCCLFailed",
    "The GPUs of a replica could not talk to each other (NCCL or torch.distributed).",
    "Read the engine's log around the NCCL lines: a GPU or link that fails, a firewall between nodes, the wrong "
    "NCCL_SOCKET_IFNAME. Drain the node if only its pods fail.",
)
MODEL_ACCESS_DENIED: Final = _reason(
    "ModelAccessDenied",
    "The hub does not hand out the model: it is gated or private, and the token is missing, wrong or not accepted.",
    "Check the spelling of model.id (the hub answers the same for what does not exist), accept the model's terms with "
    "the token's account, and give the token's Secret to the service.",
)
WEIGHTS_MISSING: Final = _reason(
    "WeightsMissing",
    "There are no usable weights where the engine looks: no such folder or repository, or files missing or torn.",
    "Correct model.id (organisation/name, or the absolute path inside the container); check the volume, and download "
    "torn files again.",
)
HUB_UNREACHABLE: Final = _reason(
    "HubUnreachable",
    "The engine wants to fetch the model and cannot reach the hub, or offline mode forbids it.",
    "Open the way to the hub, or bring the weights by a volume or the image and set offline mode.",
)
MODEL_TOO_NEW: Final = _reason(
    "ModelTooNew",
    "The vLLM or transformers in the image does not know this model or its tokenizer.",
    "Set engine.version (or engine.image) to a release that knows the model.",
)
REMOTE_CODE_NEEDED: Final = _reason(
    "RemoteCodeNeeded",
    "The model brings Python code of its own that would have to be executed; Plimsoll never allows that by itself.",
    "Use a model that vLLM supports natively, or, if you trust the code, add --trust-remote-code to engine.extraArgs.",
)
DRIVER_TOO_OLD: Final = _reason(
    "DriverTooOld",
    "The node's NVIDIA driver is older than the CUDA in the image needs.",
    "Update the driver on the nodes, or set engine.version or engine.image to a build for an older CUDA.",
)
GPU_UNSUPPORTED: Final = _reason(
    "GPUUnsupported",
    "The image has no kernels for this GPU's generation.",
    "Use an engine image built for the GPU, or another GPU.",
)
NO_GPU_VISIBLE: Final = _reason(
    "NoGPUVisible",
    "The container sees no GPU, or fewer than its plan has, although the node offered them.",
    "Look at the node: device plugin, container toolkit, runtime class, fabric manager; cordon it until it is well.",
)
GPU_FAULT: Final = _reason(
    "GPUFault",
    "The GPU or its driver reported a fault: an illegal access, an uncorrectable memory error, a lost device.",
    "Look at the node's Xid messages (dmesg, DCGM); drain the node if they repeat there, report a bug to vLLM if not.",
)
NO_ROOM_ON_DISK: Final = _reason(
    "NoRoomOnDisk",
    "The container cannot write: its disk is full, or the place is read-only.",
    "Give weights and caches a volume that is large enough and writable; check the node's ephemeral storage.",
)
ENGINE_DIED: Final = _reason(
    "EngineDied",
    "The engine ended and its log names no cause that Plimsoll knows; the message carries its last words.",
    "`kubectl logs --previous` of the pod shows the whole story; `plimsoll check-log` reads it.",
)

REASONS: Final = table(globals())
"""Every reason of this file by its name."""
