"""How long a pod takes from its container's start to the first request it can serve.

An estimate on the slow side, stated in the plan part by part: the start-up probe allows twice as much, so what counts
is the order of magnitude, and that a person sees which part makes it long (``field-cases.md`` D06, D18).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from plimsoll.api.weights import WeightsSource
from plimsoll.core.lifecycle.figures import Startup

SourceKind = Literal["hub", "pvc", "hostPath", "image"]

BYTES_PER_SECOND: Final[Mapping[str, float]] = {
    # One gigabit line; the hub itself gives several times that, proxies and mirrors often do not.
    "hub": 125_000_000,
    # A shared file system of the cloud's ordinary class, read by one client.
    "pvc": 200_000_000,
    # safetensors from NVMe or the page cache into the GPU: public start-up logs show 280 to 550 MB/s with one reader.
    "hostPath": 400_000_000,
    "image": 400_000_000,
    # A registry's layers, downloaded and unpacked.
    "registry": 100_000_000,
}
"""What each source gives to one pod, cautiously. The operator's owner may set the own cluster's figures."""

ENGINE_IMAGE_BYTES: Final = 30_000_000_000
"""What is pulled and unpacked of a vLLM image on a node that has none: CUDA, torch and kernels."""
PROCESS_SECONDS: Final = 60
"""Imports, CUDA contexts, tokenizer, memory profiling."""
RANK_SECONDS: Final = 5
"""Each further rank of a node: process start and communicators."""
COMPILE_SECONDS: Final = 30
COMPILE_SECONDS_PER_LAYER: Final = 1.0
"""torch.compile with a cold cache: 46 s were seen for 32 layers; a warm cache takes a fifth."""
CAPTURE_SECONDS_PER_SIZE: Final = 0.6
"""CUDA graphs: 17 and 37 s were seen for 67 batch sizes."""
EXPERT_KERNEL_SECONDS: Final = 120
"""Kernels of experts are built and tuned at the first start (DeepGEMM, FlashInfer)."""
PROBE_FACTOR: Final = 2
LEAST_PROBE_SECONDS: Final = 300
"""A pod that fails is seen by its exit; a short budget only kills a slow one."""
SCHEDULING_SECONDS: Final = 120
_STEP_SECONDS: Final = 10


@dataclass(frozen=True)
class Load:
    """What one pod loads. ``fetched_bytes`` come from the hub; ``read_bytes`` are read by the ranks of the pod."""

    source: SourceKind
    read_bytes: int
    ranks: int
    layers: int
    captured_sizes: int
    experts: bool = False
    eager: bool = False
    fetched_bytes: int = 0
    pulled_bytes: int = 0
    bytes_per_second: Mapping[str, float] = field(default_factory=lambda: BYTES_PER_SECOND)


def source_kind(source: WeightsSource | None, model_id: str) -> SourceKind:
    """Where the weights are read from, as far as speed goes."""
    if source is None:
        return "image" if model_id.startswith("/") else "hub"
    if source.pvc:
        return "pvc"
    if source.host_path:
        return "hostPath"
    return "image" if source.image else "hub"


def fetches(source: WeightsSource | None, model_id: str) -> bool:
    """Whether a pod may have to fetch something from the hub."""
    if source is None:
        return not model_id.startswith("/")
    return source.image is None and (source.pvc is None or source.pvc.path is None)


def startup(load: Load, timeout_seconds: float | None = None) -> Startup:
    """The estimate, and the times that follow from it; ``timeout_seconds`` replaces the start-up probe's budget."""
    parts = dict(_parts(load))
    seconds = sum(parts.values())
    probe = max(LEAST_PROBE_SECONDS, PROBE_FACTOR * seconds)
    probe = _whole(probe) if timeout_seconds is None else math.ceil(timeout_seconds)
    pull = _whole((ENGINE_IMAGE_BYTES + load.pulled_bytes) / load.bytes_per_second["registry"])
    return Startup(
        seconds=seconds,
        fetch_seconds=parts["fetch"],
        read_seconds=parts["read"],
        process_seconds=parts["process"],
        compile_seconds=parts["compile"],
        capture_seconds=parts["capture"],
        probe_seconds=probe,
        deadline_seconds=SCHEDULING_SECONDS + pull + probe,
        basis=_basis(load),
    )


def _parts(load: Load) -> Iterator[tuple[str, int]]:
    speed = load.bytes_per_second
    # What the hub gave is read again from the node's disk, or from the volume that keeps it.
    reading = "hostPath" if load.source == "hub" else load.source
    yield "fetch", _whole(load.fetched_bytes / speed["hub"])
    yield "read", _whole(load.read_bytes / speed[reading])
    yield "process", _whole(PROCESS_SECONDS + RANK_SECONDS * (load.ranks - 1))
    kernels = EXPERT_KERNEL_SECONDS if load.experts else 0
    compiled = 0 if load.eager else COMPILE_SECONDS + COMPILE_SECONDS_PER_LAYER * load.layers
    yield "compile", _whole(kernels + compiled)
    yield "capture", _whole(CAPTURE_SECONDS_PER_SIZE * load.captured_sizes)


def _whole(seconds: float) -> int:
    """Rounded up, so that a byte more is not another template."""
    return math.ceil(seconds / _STEP_SECONDS) * _STEP_SECONDS


def _basis(load: Load) -> str:
    speed = load.bytes_per_second
    fetched = f"{_gigabytes(load.fetched_bytes)} from the hub at {_rate(speed['hub'])}, " if load.fetched_bytes else ""
    reading = "hostPath" if load.source == "hub" else load.source
    where = {"hub": "the pod's own disk", "pvc": "the claim", "hostPath": "the node", "image": "the image"}[load.source]
    return f"{fetched}{_gigabytes(load.read_bytes)} from {where} at {_rate(speed[reading])}"


def _gigabytes(value: int) -> str:
    return f"{value / 1e9:.1f} GB"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.0f} MB/s"
