"""What a GPU is to a node label and to an engine: memory, capability, and what is lost to non-KV use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from e2e.fleet import recordings

GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One device as the driver (label) and torch (engine) report it."""

    product: str
    family: str
    compute_capability: tuple[int, int]
    driver_memory_mib: int
    torch_total_bytes: int

    @property
    def device(self) -> str:
        """The device's name as recordings spell it: GPU feature discovery only turned spaces into hyphens."""
        return normalise(self.product)

    def reserve_bytes(self, tensor_parallel: int) -> int:
        """Activations, graphs, sampler, NCCL: one committed figure a memory class (``data/README.md``)."""
        row = self._reserve
        return int((row["single_gib"] if tensor_parallel == 1 else row["parallel_gib"]) * GIB)

    @property
    def free_at_start_bytes(self) -> int:
        """What is left when the CUDA context exists and nothing is loaded."""
        return self.torch_total_bytes - int(self._reserve["context_gib"] * GIB)

    @property
    def default_batched_tokens(self) -> int:
        """``--max-num-batched-tokens`` of an API server when unset (vLLM 0.32 ``engine/arg_utils.py``)."""
        if self.torch_total_bytes >= 160 * GIB:
            return 16384
        return 8192 if self._large else 2048

    @property
    def default_seqs(self) -> int:
        """``--max-num-seqs`` of an API server when unset."""
        return 1024 if self._large else 256

    @property
    def _large(self) -> bool:
        return self.torch_total_bytes >= 70 * GIB and "a100" not in self.product.lower()

    @property
    def _reserve(self) -> dict[str, Any]:
        total_gib = self.torch_total_bytes / GIB
        return next(row for row in recordings.reserve_rows() if total_gib >= row["from_gib"])


def normalise(name: str) -> str:
    """One spelling for 'NVIDIA H100 80GB HBM3' and 'NVIDIA-H100-80GB-HBM3'."""
    return name.replace("-", " ").strip()


def find(product: str) -> Gpu:
    """The GPU of a node label; suffixes such as ``-SHARED`` are matched by longest known prefix.

    Raises:
        ValueError: a product nobody described in ``data/gpus.json``.

    """
    labels = {label: row for row in recordings.gpu_rows() for label in row["product_labels"]}
    known = [label for label in labels if product.startswith(label)]
    if not known:
        raise ValueError(f"GPU product {product!r} is unknown to the fleet; known: {', '.join(sorted(labels))}")
    row = labels[max(known, key=len)]
    major, minor = str(row["compute_capability"]).split(".")
    driver_bytes = row["memory_driver_mib"] << 20
    return Gpu(
        product=product,
        family=str(row["arch"]).split()[0].lower(),
        compute_capability=(int(major), int(minor)),
        driver_memory_mib=row["memory_driver_mib"],
        torch_total_bytes=_torch_bytes(row["torch_total_gib"], driver_bytes),
    )


def _torch_bytes(torch_total_gib: float | None, driver_bytes: int) -> int:
    """Torch sees less than the driver: 0.5 % on parts of 80 GB and more, 2 % below, where nobody measured."""
    if torch_total_gib is not None:
        return int(torch_total_gib * GIB)
    return int(driver_bytes * (0.995 if driver_bytes >= 75 * GIB else 0.98))
