"""How a pod asks for its GPUs: the resource it requests and the node label that names the product.

NVIDIA's device plugin shows MIG slices in one of two ways, for the whole cluster or node by node. Strategy ``single``:
a slice is a ``nvidia.com/gpu``, and the node's product label ends in ``-MIG-<profile>``. Strategy ``mixed``: each
profile is a resource of its own, with its own product label. Source: gpu-feature-discovery's README, "Labels", and the
device plugin's, "MIG strategy".
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from plimsoll.api import names

MIGStrategy = Literal["single", "mixed"]
_PROFILE: Final = re.compile(r"-MIG-(?P<profile>\d+g\.\d+gb(?:[.+][a-z0-9.+]+)?)$", re.IGNORECASE)


@dataclass(frozen=True)
class GPUClaim:
    """An extended resource, and the label of nodes whose GPUs of that resource are the product."""

    resource: str
    label: str
    product: str

    @property
    def node_selector(self) -> dict[str, str]:
        """Nodes that have the product."""
        return {self.label: self.product}


def gpu_claim(product: str, strategy: MIGStrategy = "single") -> GPUClaim:
    """How to ask for a product as the plan names it."""
    slice_of = _PROFILE.search(product)
    if slice_of is None or strategy == "single":
        return GPUClaim(names.GPU_RESOURCE, names.GPU_PRODUCT_LABEL, product)
    resource = f"{names.MIG_RESOURCE_PREFIX}{slice_of['profile'].lower().replace('+', '.')}"
    return GPUClaim(resource, f"{resource}.product", product)
