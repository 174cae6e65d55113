"""GPU products by the names clouds give them: instance types, accelerator labels, resource profiles.

From the providers' public lists of GPU instances (the same pages as ``gpus.json``); only those with one product.
"""

import re
from typing import Final

_A100_40, _A100_80 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"
_A100_PCIE, _H100, _H100_NVL = "NVIDIA-A100-80GB-PCIe", "NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-NVL"
_RTX_PRO: Final = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"
_TYPES: Final = (
    # AWS families
    (r"g4dn(\..*)?", "Tesla-T4"), (r"g5(\..*)?", "NVIDIA-A10G"), (r"gr?6(\..*)?", "NVIDIA-L4"),
    (r"g6e(\..*)?", "NVIDIA-L40S"), (r"g7e(\..*)?", _RTX_PRO), (r"p3(\..*)?", "Tesla-V100-SXM2-16GB"),
    (r"p3dn(\..*)?", "Tesla-V100-SXM2-32GB"), (r"p4d(\..*)?", _A100_40), (r"p4de(\..*)?", _A100_80),
    (r"p5(\..*)?", _H100), (r"p5en?(\..*)?", "NVIDIA-H200"), (r"p6-b200(\..*)?", "NVIDIA-B200"),
    (r"p6-b300(\..*)?", "NVIDIA-B300-SXM6-AC"),
    # Google Cloud machine types
    (r"g2-standard-.*", "NVIDIA-L4"), (r"a2-highgpu-.*|a2-megagpu-.*", _A100_40), (r"a2-ultragpu-.*", _A100_80),
    (r"a3-(high|mega|edge)gpu-.*", _H100), (r"a3-ultragpu-.*", "NVIDIA-H200"), (r"a4-highgpu-.*", "NVIDIA-B200"),
    (r"g4-standard-.*", _RTX_PRO),
    # Azure sizes
    (r"standard_nc\d+as_t4_v3", "Tesla-T4"), (r"standard_nc\d+ads_a100_v4", _A100_PCIE),
    (r"standard_nd96asr_v4", _A100_40), (r"standard_nd96amsr_a100_v4", _A100_80), (r"standard_nd96isr_h100_v5", _H100),
    (r"standard_ncc?\d+a?d[is]s?_h100_v5", _H100_NVL), (r"standard_nd96isr_h200_v5", "NVIDIA-H200"),
    (r"standard_nv\d+a[dm]{1,2}s_a10_v5", "NVIDIA-A10"),
)  # fmt: skip
_ALIASES: Final = (
    (r"(nvidia-)?(tesla-)?t4", "Tesla-T4"), (r"(nvidia-)?l4", "NVIDIA-L4"), (r"(nvidia-)?a10g", "NVIDIA-A10G"),
    (r"(nvidia-)?l40s", "NVIDIA-L40S"), (r"nvidia-tesla-a100|(nvidia-)?(gpu-)?a100-?40(gb)?", _A100_40),
    (r"(nvidia-)?(gpu-)?a100-?80(gb)?", _A100_80),
    (r"(nvidia-)?(gpu-)?h100(-80gb|-mega-80gb)?|h100[-_](sxm5?|nvlink)([-_]80gb)?", _H100),
    (r"(nvidia-)?(gpu-)?h200(-141gb)?", "NVIDIA-H200"), (r"(nvidia-)?b200", "NVIDIA-B200"),
    (r"(nvidia-)?gb200", "NVIDIA-GB200"), (r"(nvidia-)?gh200(-.*)?", "NVIDIA-GH200-480GB"),
    (r"(nvidia-)?rtx-pro-6000", _RTX_PRO), (r"(amd-)?(gpu-)?mi300x", "AMD_Instinct_MI300X_OAM"),
    (r"(nvidia-)?(geforce-)?rtx[-_ ]?4090", "NVIDIA-GeForce-RTX-4090"), (r"(nvidia-)?v100", "Tesla-V100-SXM2-16GB"),
    (r"(nvidia-)?(geforce-)?rtx[-_ ]?3090", "NVIDIA-GeForce-RTX-3090"),
    (r"(nvidia-)?(geforce-)?rtx[-_ ]?5090", "NVIDIA-GeForce-RTX-5090"),
)  # fmt: skip


def gpu_of(instance_type: str) -> str | None:
    """The node label of an instance type's GPUs; None for types that are not known or have none."""
    return _matching(instance_type, _TYPES)


def alias(name: str) -> str | None:
    """The node label behind another name of a product."""
    return _matching(name, _ALIASES)


def _matching(name: str, table: tuple[tuple[str, str], ...]) -> str | None:
    wanted = name.strip().lower()
    return next((label for pattern, label in table if re.fullmatch(pattern, wanted)), None)
