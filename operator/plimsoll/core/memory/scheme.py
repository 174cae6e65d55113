"""From a checkpoint's quantisation to the storage format of each of its matrices."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from plimsoll.core.memory.formats import (
    EIGHT_BIT_CHANNEL,
    EIGHT_BIT_TENSOR,
    MXFP4,
    MXFP8,
    NVFP4,
    Format,
    fp8_block,
    grouped,
    plain,
)
from plimsoll.core.memory.skips import Skips, canonical
from plimsoll.core.memory.tensors import Tensor
from plimsoll.facts.models import JSONObject, Quantisation

_GROUPED: Final = frozenset({"awq", "auto_awq", "awq_marlin", "gptq", "auto_gptq", "gptq_marlin", "moe_wna16", "inc"})
_ONLINE: Final[Mapping[str, Format]] = {
    "fp8_per_tensor": EIGHT_BIT_TENSOR,
    "fp8_per_block": fp8_block(128, 128),
    "fp8_per_channel": EIGHT_BIT_CHANNEL,
    "int8_per_channel_weight_only": EIGHT_BIT_CHANNEL,
    "fbgemm_fp8": EIGHT_BIT_CHANNEL,
    "mxfp8": MXFP8,
    "modelopt_mxfp8": MXFP8,
    "nvfp4_per_token": NVFP4,
}
_MODELOPT: Final[Mapping[str, Format]] = {
    "FP8": EIGHT_BIT_TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": EIGHT_BIT_CHANNEL,
    "FP8_PB_WO": fp8_block(128, 128),
    "MXFP8": MXFP8,
}
_DIGITS: Final = re.compile(r"\d")
_FOUR_BITS: Final = 4
_USUAL_GROUP: Final = 128


@dataclass(frozen=True)
class Scheme:
    """Formats of a checkpoint. ``by_module`` wins over ``experts`` wins over ``linear``; skipped modules are plain."""

    plain: Format
    linear: Format
    experts: Format | None = None
    skips: Skips = field(default_factory=Skips)
    by_module: Mapping[str, Format] | None = None
    by_pattern: tuple[tuple[re.Pattern[str], Format], ...] = ()

    @property
    def tells_layers_apart(self) -> bool:
        """Whether the same matrix may be stored differently in different layers."""
        named = self.by_module is not None or any(_DIGITS.search(pattern.pattern) for pattern, _ in self.by_pattern)
        return named or self.skips.tell_layers_apart

    def format_of(self, tensor: Tensor) -> Format:
        """How ``tensor`` is stored."""
        if self.by_module is not None:
            return self._named(tensor.path) or self._unnamed(tensor)
        if not tensor.linear or self.skips.covers(tensor.path):
            return self._unnamed(tensor)
        for pattern, fmt in self.by_pattern:
            if any(pattern.match(prefix + tensor.path) for prefix in ("model.", "")):
                return fmt
        return self.experts if self.experts is not None and ".experts." in tensor.path else self.linear

    def _unnamed(self, tensor: Tensor) -> Format:
        return plain(tensor.element_bytes) if tensor.element_bytes else self.plain

    def _named(self, path: str) -> Format | None:
        assert self.by_module is not None  # noqa: S101 # the caller looked
        while path:
            if path in self.by_module:
                return self.by_module[path]
            path = path.rpartition(".")[0]
        return None


def read_scheme(quantisation: Quantisation, element_bytes: int) -> Scheme:
    """Formats of a checkpoint whose unquantised elements take ``element_bytes``.

    Sources: vLLM 0.32 ``layers/quantization`` (each method's ``create_weights``).
    """
    method, written = quantisation.method, quantisation.config
    whole = plain(element_bytes)
    if method is None:
        return Scheme(whole, whole)
    inner = written.get("quantization")
    body = inner if isinstance(inner, Mapping) else written
    skips = Skips.read(_skipped(body))
    if method == "modelopt_mixed" and isinstance(body.get("quantized_layers"), Mapping):
        return _mixed(body["quantized_layers"], whole, skips)
    if method == "compressed-tensors" or (method == "mxfp4" and "config_groups" in written):
        return _compressed(written, whole, skips)
    return _experts_apart(method, body, whole, skips) or Scheme(whole, _uniform(method, body, whole), skips=skips)


def _experts_apart(method: str, body: JSONObject, whole: Format, skips: Skips) -> Scheme | None:
    """Methods that treat experts differently from everything else."""
    if method == "deepseek_v4_fp8":
        return _deepseek_v4(body, whole)
    if method in {"mxfp4", "gpt_oss_mxfp4"}:
        return Scheme(whole, whole, experts=MXFP4, skips=skips)
    return Scheme(whole, whole, experts=EIGHT_BIT_CHANNEL) if method == "experts_int8" else None


def _uniform(method: str, body: JSONObject, whole: Format) -> Format:
    if method in _ONLINE:
        return _ONLINE[method]
    if method == "fp8":
        return _fp8(body)
    if method in _GROUPED:
        return _grouped(body)
    if method.startswith("modelopt"):
        return _modelopt(str(body.get("quant_algo") or ("NVFP4" if method == "modelopt_fp4" else "FP8")))
    if method in {"bitsandbytes", "gguf"}:
        return EIGHT_BIT_CHANNEL if body.get("load_in_8bit") else grouped(_FOUR_BITS, 64, zero_points=False)
    bits = body.get("bits")
    return grouped(bits, _USUAL_GROUP, zero_points=False) if isinstance(bits, int) else whole


def _fp8(body: JSONObject) -> Format:
    block = body.get("weight_block_size")
    if isinstance(block, Sequence) and len(block) == 2 and all(isinstance(size, int) for size in block):  # noqa: PLR2004
        return fp8_block(block[0], block[1])
    return EIGHT_BIT_TENSOR


def _grouped(body: JSONObject) -> Format:
    bits, group = body.get("bits", body.get("w_bit")), body.get("group_size", body.get("q_group_size"))
    return grouped(
        bits if isinstance(bits, int) else _FOUR_BITS,
        group if isinstance(group, int) else _USUAL_GROUP,
        zero_points=bool(body.get("zero_point", not body.get("sym", False))),
    )


def _modelopt(algorithm: str) -> Format:
    algorithm = algorithm.upper()
    return NVFP4 if "FP4" in algorithm else _MODELOPT.get(algorithm, EIGHT_BIT_TENSOR)


def _mixed(layers: object, whole: Format, skips: Skips) -> Scheme:
    """ModelOpt's list of modules; a list that names no layer (cut short) is taken as NVFP4 experts, FP8 elsewhere."""
    modules = _modelopt_modules(layers)
    if any(name.startswith("layers.") for name in modules):
        return Scheme(whole, whole, by_module=modules)
    return Scheme(whole, EIGHT_BIT_TENSOR, experts=NVFP4, skips=skips)


def _modelopt_modules(layers: object) -> Mapping[str, Format]:
    assert isinstance(layers, Mapping)  # noqa: S101 # the caller looked
    return {
        canonical(name): _modelopt(str(entry.get("quant_algo", "")))
        for name, entry in layers.items()
        if isinstance(entry, Mapping)
    }


def _deepseek_v4(body: JSONObject, whole: Format) -> Scheme:
    """fp8 everywhere, experts in fp4 unless the file says otherwise; its class honours no ignore list."""
    if "NVFP4" in str(body.get("moe_quant_algo")):
        return Scheme(whole, _fp8(body), experts=NVFP4)
    return Scheme(whole, _fp8(body), experts=MXFP4 if body.get("expert_dtype", "fp4") == "fp4" else _fp8(body))


def _compressed(written: JSONObject, whole: Format, skips: Skips) -> Scheme:
    """compressed-tensors: groups of targets, each a class name, a module name or an ``re:`` pattern."""
    groups = written.get("config_groups")
    linear: Format | None = None
    patterns: list[tuple[re.Pattern[str], Format]] = []
    for group in groups.values() if isinstance(groups, Mapping) else ():
        fmt = _compressed_weights(group, str(written.get("format") or ""))
        for target in group.get("targets") or ("Linear",):
            if target.startswith("re:"):
                patterns.append((re.compile(target[3:]), fmt))
            else:
                linear = fmt
    if linear is None:
        linear = whole if patterns else EIGHT_BIT_CHANNEL
    return Scheme(whole, linear, skips=skips, by_pattern=tuple(patterns))


def _compressed_weights(group: JSONObject, file_format: str) -> Format:
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        return EIGHT_BIT_CHANNEL
    bits, size = weights.get("num_bits"), weights.get("group_size")
    if "mxfp4" in str(group.get("format") or file_format):
        return MXFP4
    if bits == _FOUR_BITS and weights.get("type") == "float":
        return NVFP4
    if isinstance(bits, int) and bits < 8:  # noqa: PLR2004
        return grouped(bits, size if isinstance(size, int) else 0, zero_points=weights.get("symmetric") is False)
    block = weights.get("block_structure")
    return fp8_block(block[0], block[1]) if isinstance(block, Sequence) and len(block) == 2 else EIGHT_BIT_CHANNEL  # noqa: PLR2004


def _skipped(body: JSONObject) -> list[str]:
    found: list[str] = []
    for key in ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude"):
        names = body.get(key)
        if isinstance(names, Sequence) and not isinstance(names, str):
            found.extend(name for name in names if isinstance(name, str))
    return found
