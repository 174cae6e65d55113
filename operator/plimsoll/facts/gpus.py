"""What a GPU is: memory as driver and torch report it, bandwidth, compute, GPUs per node (data: ``gpus.json``).

A node names its GPU in the label ``nvidia.com/gpu.product``: the device name with spaces turned into hyphens, plus
``-SHARED`` under time slicing and ``-MIG-<profile>`` under the single MIG strategy. People write the device name.
"""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final, Literal

GIB: Final = 1 << 30
NEAREST: Final = 3
DataType = Literal["fp16", "bf16", "fp8", "fp4"]

# Share of the driver's total that torch sees where nobody measured it, by size of the part (``gpus.json``, "about").
_TORCH_SHARE_LARGE: Final = 0.995
_TORCH_SHARE_SMALL: Final = 0.98
_LARGE_PART_BYTES: Final = 70 * GIB
_MIG_MEMORY_SLICES: Final = 8
_MIG_COMPUTE_SLICES: Final = 7
_MIG_SUFFIX: Final = re.compile(r"-mig-(?P<compute>\d)g\.(?P<memory>\d+)gb", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GPU:
    """One GPU product, or one MIG slice of it.

    ``torch_total_bytes`` is what vLLM multiplies by ``gpu_memory_utilization``; ``torch_total_measured`` says whether
    it was read from a running engine or follows from the driver's total. Bandwidth is bytes per second, ``dense_flops``
    floating-point operations per second without sparsity, ``nvlink_bytes_per_second`` both directions together.
    """

    id: str
    name: str
    label: str
    vendor: str
    capability: tuple[int, int] | None
    memory_driver_bytes: int
    torch_total_bytes: int
    torch_total_measured: bool
    bandwidth_bytes_per_second: float
    dense_flops: Mapping[str, float] = field(hash=False)
    nvlink_bytes_per_second: float
    gpus_per_node: int | None
    mig_profile: str | None = None

    def supports(self, dtype: DataType) -> bool:
        """Whether tensor cores of this part compute in ``dtype``."""
        return dtype in self.dense_flops

    def at_least(self, major: int, minor: int = 0) -> bool:
        """Whether this is a CUDA part of at least that compute capability."""
        return self.capability is not None and self.capability >= (major, minor)


def find(name_or_label: str) -> GPU | None:
    """The GPU of a node label or device name; None when no known product name is its prefix.

    The longest known name wins, so ``NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`` is a slice of the H100 and not another part.
    """
    wanted = _fold(name_or_label)
    best = max((key for key in _by_key() if _is_prefix(key, wanted)), key=len, default=None)
    if best is None:
        return None
    gpu = _by_key()[best]
    slice_of = _MIG_SUFFIX.search(wanted, len(best))
    return _slice(gpu, int(slice_of["compute"]), int(slice_of["memory"])) if slice_of else gpu


def node_label(name: str) -> str:
    """The node label that a product's name means: as written where it is one, since it may say SHARED or MIG."""
    gpu = find(name)
    return name if gpu is None or name.lower().startswith(gpu.label.lower()) else gpu.label


def nearest(name: str) -> tuple[str, ...]:
    """Up to three known product labels for an error message: those that hold the name, then those that read like it."""
    labels, wanted = {_fold(label): label for label in names()}, _fold(name)
    longer = [label for label in labels if wanted and wanted in label]
    holding = difflib.get_close_matches(wanted, longer, n=NEAREST, cutoff=0.0)
    alike = difflib.get_close_matches(wanted, labels, n=NEAREST, cutoff=0.4)
    return tuple(labels[key] for key in dict.fromkeys((*holding, *alike)))[:NEAREST]


def names() -> tuple[str, ...]:
    """The label of every known product."""
    return tuple(dict.fromkeys(gpu.label for gpu in _by_key().values()))


def torch_total_bytes(memory_driver_bytes: int) -> int:
    """What torch will see of a part whose driver total is known: 99.5 % of large parts, 98 % of smaller ones."""
    share = _TORCH_SHARE_LARGE if memory_driver_bytes >= _LARGE_PART_BYTES else _TORCH_SHARE_SMALL
    return int(memory_driver_bytes * share)


def _fold(name: str) -> str:
    return re.sub(r"[\s_]+", "-", name.strip()).lower()


def _is_prefix(key: str, wanted: str) -> bool:
    return wanted == key or wanted.startswith(f"{key}-")


@cache
def _by_key() -> dict[str, GPU]:
    text = Path(__file__).with_name("gpus.json").read_text(encoding="utf-8")
    keyed: dict[str, GPU] = {}
    for row in json.loads(text)["gpus"]:
        gpu = _read(row)
        for name in (row["id"], row["name"], row["name"].removeprefix("NVIDIA "), *row["labels"], *row["aliases"]):
            keyed.setdefault(_fold(name), gpu)
    return keyed


def _read(row: Mapping[str, object]) -> GPU:
    return _gpu(**row)  # type: ignore[arg-type] # the file is ours; tests read every row


def _gpu(
    *,
    id: str,  # noqa: A002 # a column of the file
    name: str,
    vendor: str,
    labels: list[str],
    aliases: list[str],  # noqa: ARG001 # read by the index
    capability: str,
    memory_driver_bytes: int,
    torch_total_gib: float | None,
    bandwidth_gb_s: float,
    dense_tflops: Mapping[str, float],
    nvlink_gb_s: float,
    gpus_per_node: int | None,
    sources: list[str],  # noqa: ARG001 # for people
) -> GPU:
    return GPU(
        id=id,
        name=name,
        label=labels[0],
        vendor=vendor,
        capability=_capability(capability),
        memory_driver_bytes=memory_driver_bytes,
        torch_total_bytes=int(torch_total_gib * GIB) if torch_total_gib else torch_total_bytes(memory_driver_bytes),
        torch_total_measured=torch_total_gib is not None,
        bandwidth_bytes_per_second=bandwidth_gb_s * 1e9,
        dense_flops={dtype: tflops * 1e12 for dtype, tflops in dense_tflops.items()},
        nvlink_bytes_per_second=nvlink_gb_s * 1e9,
        gpus_per_node=gpus_per_node,
    )


def _capability(text: str) -> tuple[int, int] | None:
    """``9.0`` → (9, 0); AMD's gfx names have no CUDA capability."""
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() else None


def _slice(gpu: GPU, compute_slices: int, memory_gb: int) -> GPU:
    """A MIG slice: eighths of the memory (and its bandwidth), sevenths of the compute, no NVLink.

    Source: NVIDIA's MIG user guide, profile names ``<compute>g.<memory>gb``.
    """
    whole_gb = gpu.memory_driver_bytes / 1e9
    memory_slices = min(_MIG_MEMORY_SLICES, max(1, round(_MIG_MEMORY_SLICES * memory_gb / whole_gb)))
    memory_share = memory_slices / _MIG_MEMORY_SLICES
    compute_share = min(1.0, compute_slices / _MIG_COMPUTE_SLICES)
    return replace(
        gpu,
        memory_driver_bytes=int(gpu.memory_driver_bytes * memory_share),
        torch_total_bytes=int(gpu.torch_total_bytes * memory_share),
        torch_total_measured=False,
        bandwidth_bytes_per_second=gpu.bandwidth_bytes_per_second * memory_share,
        dense_flops={dtype: flops * compute_share for dtype, flops in gpu.dense_flops.items()},
        nvlink_bytes_per_second=0.0,
        mig_profile=f"{compute_slices}g.{memory_gb}gb",
    )
