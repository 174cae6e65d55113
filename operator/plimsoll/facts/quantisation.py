"""How a checkpoint says that weights and KV cache are quantised: compressed-tensors, ModelOpt, AWQ, GPTQ, FP8…

Rules follow vLLM 0.32: ``model_arch_config_convertor.py _normalize_quantization_config``, ``utils/torch_utils.py
get_kv_cache_quant_algo_string``, the ``override_quantization_method`` hooks of ``layers/quantization``.
"""

from collections.abc import Mapping
from typing import Final

from plimsoll.facts.fields import Fields
from plimsoll.facts.models import JSONObject, ModelConfigError, Quantisation

_MODELOPT_FP8: Final = frozenset({"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO"})
_MODELOPT_KV: Final[Mapping[str, str]] = {"fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
_DEEPSEEK_V4_TYPES: Final = frozenset({"deepseek_v4", "deepseek_v41"})


def read_quantisation(config: JSONObject, text: JSONObject, quant_config: JSONObject | None) -> Quantisation:
    """Quantisation of a checkpoint; ``quant_config`` is the file beside it, used only when ``config`` says nothing."""
    written = _written(config, text, quant_config)
    if written is None:
        return Quantisation()
    method = _method(written, config)
    return Quantisation(method or None, _kv_cache_dtype(method, written), written)


def _written(config: JSONObject, text: JSONObject, quant_config: JSONObject | None) -> JSONObject | None:
    for owner, key in (
        (config, "quantization_config"),
        ({"hf_quant_config.json": quant_config}, "hf_quant_config.json"),
        (config, "compression_config"),
        (text, "quantization_config"),
        (text, "compression_config"),
    ):
        found = owner.get(key)
        if found is None:
            continue
        if not isinstance(found, Mapping):
            raise ModelConfigError(key, found, "not an object")
        return found
    return None


def _method(written: JSONObject, config: JSONObject) -> str:
    """The method as vLLM names it, empty when the text names none (vLLM then loads plain weights)."""
    fields = Fields(written, "quantization_config")
    method = (_modelopt_method(fields) or fields.text("quant_method") or "").lower()
    method = method.replace("compressed_tensors", "compressed-tensors")
    if method.startswith("modelopt"):
        return _modelopt_variant(fields, method)
    model_type = config.get("model_type")
    if method == "fp8" and model_type in _DEEPSEEK_V4_TYPES:
        return "deepseek_v4_fp8"
    if method == "mxfp4" and model_type == "gpt_oss":
        return "gpt_oss_mxfp4"
    if method == "compressed-tensors" and model_type == "kimi_k3" and fields.text("format") == "mxfp4-pack-quantized":
        return "mxfp4"
    return method


def _modelopt_method(fields: Fields) -> str | None:
    """The method of a ModelOpt file written before it had ``quant_method``; needs the producer's name."""
    producer = fields.values.get("producer")
    inner = fields.values.get("quantization")
    if not isinstance(inner, Mapping):
        return None
    named = isinstance(producer, Mapping) and producer.get("name") == "modelopt"
    if not named and "modelopt_quant_config" not in inner:
        return None
    algorithm = str(inner.get("quant_algo") or "").upper()
    if algorithm in _MODELOPT_FP8:
        return "modelopt"
    if algorithm == "NVFP4":
        return "modelopt_fp4"
    if algorithm == "MIXED_PRECISION":
        return "modelopt_mixed"
    if not algorithm:
        return None
    raise ModelConfigError("quantization.quant_algo", algorithm, "not an algorithm of ModelOpt that vLLM reads")


def _modelopt_variant(fields: Fields, method: str) -> str:
    """``modelopt`` names a family; the algorithm picks the member."""
    inner = fields.values.get("quantization")
    algorithm = (inner if isinstance(inner, Mapping) else fields.values).get("quant_algo")
    name = str(algorithm or "").upper()
    if name == "MIXED_PRECISION":
        return "modelopt_mixed"
    if name.startswith("MXFP8"):
        return "modelopt_mxfp8"
    return "modelopt_fp4" if "FP4" in name else method


def _kv_cache_dtype(method: str, written: JSONObject) -> str | None:
    """What ``--kv-cache-dtype auto`` becomes."""
    if method.startswith("modelopt"):
        return _modelopt_kv_dtype(written)
    if method == "compressed-tensors" and written.get("kv_cache_scheme") is not None:
        return "fp8"
    return None


def _modelopt_kv_dtype(written: JSONObject) -> str | None:
    inner = written.get("quantization")
    inner = inner if isinstance(inner, Mapping) else written
    declared = (
        inner.get("kv_cache_scheme")
        or written.get("kv_cache_scheme")
        or inner.get("kv_cache_quant_algo")
        or written.get("kv_cache_quant_algo")
    )
    if isinstance(declared, Mapping):
        bits, kind = declared.get("num_bits"), declared.get("type")
        if kind == "float" and bits == 8 and declared.get("dynamic") is False:  # noqa: PLR2004
            return "fp8_e4m3"
        return "nvfp4" if kind == "float" and bits == 4 else None  # noqa: PLR2004
    return _MODELOPT_KV.get(declared.lower()) if isinstance(declared, str) else None
