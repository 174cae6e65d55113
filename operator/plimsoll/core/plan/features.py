"""Fields of ``spec.engine`` and ``spec.model`` that are written as arguments: adapters, speculation, KV offload, ropes.

They are read back as a user's own arguments are, so that their cost enters the arithmetic in one way only.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from plimsoll.api.engine_features import KVOffloadSpec, LoRASpec, SpeculativeSpec
from plimsoll.api.units import quantity_bytes
from plimsoll.api.v1alpha1 import EngineSpec
from plimsoll.core.plan.extra_args import BadFlagError, read_argv
from plimsoll.facts import engine_flags
from plimsoll.facts.engines import EngineVersion

Argument = tuple[str, ...]

_GIB: Final = 1 << 30
_METHODS: Final = {
    "MTP": "mtp", "Eagle": "eagle", "Eagle3": "eagle3", "DraftModel": "draft_model", "NGram": "ngram"
}  # fmt: skip
# Flags that say the same as a field, by the field.
_SAME: Final = {
    "lora": ("enable_lora", "max_loras", "max_lora_rank", "lora_modules"),
    "speculative": ("speculative_config", "spec_method", "spec_model", "spec_tokens"),
    "kvOffload": ("kv_offloading_size", "kv_offloading_backend", "kv_transfer_config"),
}


def feature_args(engine: EngineSpec, version: EngineVersion) -> tuple[str, ...]:
    """The arguments of the features asked for.

    Raises:
        BadFlagError: the release has no such feature, or the user's own arguments say the same.
    """
    features = (("lora", engine.lora), ("speculative", engine.speculative), ("kvOffload", engine.kv_offload))
    asked = {name: feature for name, feature in features if feature is not None}
    _check_said_once(asked, engine.extra_args, version)
    words: list[str] = []
    for name, feature in asked.items():
        for argument in _arguments(feature):
            problem = engine_flags.flag_problem(argument[0], version)
            if problem:
                raise BadFlagError(f"{problem}; leave spec.engine.{name} out")
            words += argument
    return tuple(words)


def _arguments(feature: LoRASpec | SpeculativeSpec | KVOffloadSpec) -> Iterator[Argument]:
    match feature:
        case LoRASpec():
            yield from _lora(feature)
        case SpeculativeSpec():
            yield from _speculative(feature)
        case KVOffloadSpec():
            # Written out: the first releases that have the size have no default for the other.
            yield "--kv-offloading-size", f"{quantity_bytes(feature.host_memory) / _GIB:g}"
            yield "--kv-offloading-backend", "native"


def _lora(lora: LoRASpec) -> Iterator[Argument]:
    yield ("--enable-lora",)
    yield "--max-loras", str(lora.max_loras)
    yield "--max-lora-rank", str(lora.max_rank)
    if lora.modules:
        yield "--lora-modules", *(f"{module.name}={module.path}" for module in lora.modules)


def _speculative(spec: SpeculativeSpec) -> Iterator[Argument]:
    written: dict[str, Any] = {"method": _METHODS[spec.method], "num_speculative_tokens": spec.tokens}
    if spec.model:
        written["model"] = spec.model
    yield "--speculative-config", json.dumps(written, separators=(",", ":"))


def _check_said_once(asked: dict[str, Any], extra_args: Sequence[str], version: EngineVersion) -> None:
    given = {argument.flag.dest: argument.written for argument in read_argv(extra_args, version)}
    for name in asked:
        for dest in _SAME[name]:
            if dest in given:
                raise BadFlagError(f"{given[dest]}: spec.engine.{name} says this already: keep one of the two")
