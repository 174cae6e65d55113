"""Which storage format a checkpoint has when a flag names the method and its configuration does not describe it."""

from typing import Final

from plimsoll.facts.models import JSONObject, ModelFacts, Quantisation

# ModelOpt leaves latent projections and the head alone where nothing else is known.
_MODELOPT_FP4: Final[JSONObject] = {
    "quant_algo": "NVFP4",
    "exclude_modules": ["*q_a_proj*", "*q_b_proj*", "*kv_a_proj*", "*kv_b_proj*", "lm_head"],
}
_AWQ: Final[JSONObject] = {"bits": 4, "group_size": 128, "zero_point": True}
_GPTQ: Final[JSONObject] = {"bits": 4, "group_size": 128, "sym": True}
_USUAL: Final[dict[str, JSONObject]] = {
    "modelopt_fp4": _MODELOPT_FP4,
    "awq": _AWQ,
    "awq_marlin": _AWQ,
    "auto_awq": _AWQ,
    "quark": {"bits": 4},
    "gptq": _GPTQ,
    "gptq_marlin": _GPTQ,
    "auto_gptq": _GPTQ,
}


def likely_quantisations(facts: ModelFacts, flag: str | None, *, has_fp8: bool) -> tuple[Quantisation, ...]:
    """What the checkpoint may be stored as, likeliest first; more than one where a method's name leaves bits open.

    The configuration's own description wins, except over ModelOpt and Quark, which re-quantise published checkpoints.
    compressed-tensors may be 8 bits, usual where tensor cores compute in fp8 (``has_fp8``), or 4.
    """
    written = facts.quantisation
    if flag is None or (written.method is not None and not flag.startswith(("modelopt", "quark"))):
        return (written,)
    if flag == written.method:
        return (written,)
    if flag == "compressed-tensors":
        eight, four = _compressed(8, None), _compressed(4, 128)
        return (eight, four) if has_fp8 else (four, eight)
    return (Quantisation(flag, written.kv_cache_dtype, _USUAL.get(flag, {})),)


def _compressed(bits: int, group: int | None) -> Quantisation:
    weights = {"num_bits": bits, "type": "int", "group_size": group, "symmetric": True}
    return Quantisation("compressed-tensors", None, {"config_groups": {"group_0": {"weights": weights}}})
