"""Which family reads which architecture (data: ``architectures.json``), and the architecture a file means."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

from plimsoll.facts.families.reading import Reading
from plimsoll.facts.fields import Fields, default_text_type
from plimsoll.facts.models import Layer, UnknownArchitecture

# A file that names neither architecture nor model type is taken for plain attention if it spells all of it out.
UNNAMED: Final = "(unnamed)"


class _Module(Protocol):
    def read_layers(self, reading: Reading) -> tuple[Layer, ...]: ...


@dataclass(frozen=True, slots=True)
class Family:
    """One family's module, with defaults for what most families do not need to say."""

    name: str
    module: _Module

    def read_layers(self, reading: Reading) -> tuple[Layer, ...]:
        """What each decoder layer stores."""
        return self.module.read_layers(reading)

    def head_size(self, reading: Reading) -> int:
        """The head size vLLM keeps for the whole model."""
        rule = cast("Callable[[Reading], int] | None", getattr(self.module, "head_size", None))
        return reading.head_dim if rule is None else rule(reading)

    def query_heads(self, reading: Reading) -> int:
        """Attention heads; 0 in a model without attention."""
        rule = cast("Callable[[Reading], int] | None", getattr(self.module, "query_heads", None))
        return reading.query_heads if rule is None else rule(reading)

    def state_dtype(self, reading: Reading) -> str | None:
        """Dtype of recurrent state when flags leave it open; None: that of the convolution."""
        rule = cast("Callable[[Reading], str | None] | None", getattr(self.module, "state_dtype", None))
        return None if rule is None else rule(reading)

    def prefix_lm(self, reading: Reading) -> bool:
        """Whether image tokens attend both ways, which excludes some kernels.

        Source: vLLM 0.32 ``model_arch_config_convertor.py is_mm_prefix_lm``.
        """
        if not reading.wrapped:
            return False
        if reading.top.values.get("is_mm_prefix_lm") is not None:
            return reading.top.flag("is_mm_prefix_lm")
        if reading.top.model_type.startswith("gemma4"):
            return reading.text.text("use_bidirectional_attention") == "vision"
        return reading.top.model_type in {"bagel", "gemma3", "molmo2", "moondream3", "paligemma"}


@cache
def _table() -> Mapping[str, Mapping[str, object]]:
    text = Path(__file__).parents[1].joinpath("architectures.json").read_text(encoding="utf-8")
    loaded: Mapping[str, Mapping[str, object]] = json.loads(text)
    return loaded


@cache
def _family_names() -> Mapping[str, str]:
    families = cast("Mapping[str, list[str]]", _table()["families"])
    return {architecture: family for family, architectures in families.items() for architecture in architectures}


def resolve_architecture(top: Fields, text: Fields) -> str:
    """The decoder's architecture: named by the decoder's part, by the file, or meant by the model type.

    Wrappers build the decoder they contain, so the decoder's own type decides where a wrapper is not itself known.

    Raises:
        UnknownArchitecture: nothing in the file says what the model is.
    """
    by_type = cast("Mapping[str, str]", _table()["model_types"])
    decoders = cast("Mapping[str, str]", _table()["decoders"])
    outer, inner = _first(top), _first(text)
    candidates = [
        outer,
        inner,
        by_type.get(text.model_type),
        decoders.get(outer or ""),
        by_type.get(top.model_type),
    ]
    known = _family_names()
    found = next((name for name in candidates if name in known), None)
    if found is not None:
        return found
    named = next((name for name in candidates if name), None)
    if named is not None:
        return named
    if top.model_type or text.model_type:
        raise UnknownArchitecture(text.model_type or top.model_type, "no family of caches is described for this type")
    return UNNAMED


def model_type_of(architecture: str) -> str:
    """The model type of a decoder that names only its architecture: what defaults and patterns go by; may be empty."""
    by_type = cast("Mapping[str, str]", _table()["model_types"])
    named = min((name for name, known in by_type.items() if known == architecture), key=len, default="")
    return default_text_type(named) or named


def _first(fields: Fields) -> str | None:
    names = fields.strings("architectures")
    return names[0] if names else None


def family_of(reading: Reading) -> Family:
    """The family that reads an architecture.

    Raises:
        UnknownArchitecture: no family does.
    """
    name = "unnamed" if reading.architecture == UNNAMED else _family_names().get(reading.architecture)
    if name is None:
        raise UnknownArchitecture(reading.architecture, "nobody described what its layers store")
    return _family(name)


@cache
def _family(name: str) -> Family:
    return Family(name, cast("_Module", import_module(f"plimsoll.facts.families.{name}")))
