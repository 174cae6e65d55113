"""Which accelerators a pod asks for, and which product they are, as far as its manifest says."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from plimsoll.api.names import GPU_PRODUCT_LABEL
from plimsoll.core.workloads.tree import Tree, entries, part, text, whole
from plimsoll.facts import gpus, instance_types

PRODUCT_LABELS: Final = (
    GPU_PRODUCT_LABEL, "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator", "gpu.nvidia.com/class",
    "karpenter.k8s.aws/instance-gpu-name", "nvidia.com/gpu.family", "gpu.nvidia.com/model",
    "eks.amazonaws.com/instance-gpu-name", "accelerator", "gpu-type", "gpu", "kubernetes.azure.com/accelerator-type",
    "k8s.amazonaws.com/accelerator",
)  # fmt: skip
_INSTANCE_LABELS: Final = (
    "node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type", "karpenter.k8s.aws/instance-family",
    "karpenter.azure.com/sku-name", "eks.amazonaws.com/instance-family",
)  # fmt: skip
_GPU_RESOURCE: Final = re.compile(
    r"(nvidia|amd)\.com/(gpu|mig|pgpu|vgpu|GB|TU|GH|GA|AD)|gpu\.intel\.com/|habana\.ai/|aws\.amazon\.com/neuron"
    r"|google\.com/tpu|huawei\.com/Ascend|intel\.com/|furiosa|tencent\.com/qgpu|aliyun\.com/gpu|volcano\.sh/gpu"
    r"|vke\.volcengine\.com|metax-tech|cambricon|nvidia\.com/"
)
_SHARED: Final = re.compile(r"\.shared$|gpu-mem|gpu-core|gpumem|gpucores|vgpu-memory|gpu-percentage")


def accelerators(container: Tree) -> dict[str, Any]:
    """The accelerators among a container's limits and requests, by resource name."""
    limits, requests = part(container, "resources", "limits"), part(container, "resources", "requests")
    merged = {**requests, **limits}
    return {str(name): value for name, value in merged.items() if _GPU_RESOURCE.match(str(name))}


def gpu_count(found: Mapping[str, Any]) -> int | None:
    """GPUs by the resources; None where the amount is not a number, or there are none."""
    counts = [whole(value) for name, value in found.items() if not _SHARED.search(name) or name.endswith(".shared")]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def claims_devices(pod: Tree, container: Tree) -> bool:
    """Whether devices come by dynamic resource allocation."""
    return bool(entries(pod, "resourceClaims")) or bool(entries(container, "resources", "claims"))


def product_of(pod: Tree, resources: Mapping[str, Any]) -> str | None:
    """The label of the GPU product that a pod can only run on; None where several, or none, are named."""
    for name in resources:
        if "/mig-" in name:
            whole_card = _product(pod)
            return f"{whole_card}-MIG-{name.partition('/mig-')[2]}" if whole_card else None
    return _product(pod)


def _product(pod: Tree) -> str | None:
    found = {known_product(key, value) for key, value in _wanted(pod)} - {None}
    return next(iter(found)) if len(found) == 1 else None


def selector_of(pod: Tree) -> Mapping[str, Any]:
    """Labels of the nodes that a pod asks for."""
    return part(pod, "nodeSelector")


def known_product(key: str, value: str) -> str | None:
    """The product that a node label's value means."""
    if key in _INSTANCE_LABELS:
        return instance_types.gpu_of(value)
    if key not in PRODUCT_LABELS:
        return None
    return named_product(value)


def named_product(value: str) -> str | None:
    """The label of a product in any spelling that clouds and people use."""
    direct = gpus.find(value) or gpus.find(value.removeprefix("nvidia-"))
    return value if direct and value in gpus.names() else (direct.label if direct else instance_types.alias(value))


def _wanted(pod: Tree) -> Iterator[tuple[str, str]]:
    """(label, value) that every node of the pod must have."""
    for key, value in selector_of(pod).items():
        yield str(key), str(value)
    terms = entries(
        pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    for term in terms if len(terms) == 1 else ():
        for expression in entries(term, "matchExpressions"):
            values = expression.get("values")
            if expression.get("operator") == "In" and isinstance(values, list) and len(values) == 1:
                yield text(expression, "key") or "", str(values[0])
