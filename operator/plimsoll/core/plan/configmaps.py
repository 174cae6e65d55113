"""Model configurations in ConfigMaps: file names, JSON, and what is wrong with them. Pure: texts in, values out."""

import json
from collections.abc import Mapping
from typing import Any, Final

from plimsoll.api.v1alpha1 import ConfigRef
from plimsoll.core.plan.model import ModelConfig

QUANT_SUFFIX: Final = ".hf_quant_config"

Files = Mapping[str, tuple[str, str]]
"""File name → (its text, the ConfigMap it stands in)."""


class UnreadableError(Exception):
    """The configuration is not there or is no JSON; the message names ConfigMap, key and a way out."""


def files_of(data: Mapping[str, str], where: str) -> dict[str, tuple[str, str]]:
    """The files of one ConfigMap, each with the ConfigMap's name for messages."""
    return {name: (text, where) for name, text in data.items()}


def referenced(files: Files, ref: ConfigRef, where: str) -> ModelConfig:
    """The configuration under the key that a ``configRef`` names."""
    if ref.key not in files:
        keys = ", ".join(sorted(files)) or "none"
        raise UnreadableError(f"spec.model.configRef.key: {where} has no key {ref.key!r}; it has: {keys}")
    return _parsed(files, ref.key, f"{ref.key.removesuffix('.json')}{QUANT_SUFFIX}.json", "hf_quant_config.json")


def catalogued(files: Files, model_id: str) -> ModelConfig | None:
    """The configuration of a model in catalogue ConfigMaps (key ``<org>--<name>.json``), or None."""
    stem = model_id.replace("/", "--")
    if f"{stem}.json" not in files:
        return None
    return _parsed(files, f"{stem}.json", f"{stem}{QUANT_SUFFIX}.json")


def _parsed(files: Files, name: str, *quant_names: str) -> ModelConfig:
    quant_name = next((n for n in quant_names if n in files), None)
    return ModelConfig(
        config=_json_object(files, name),
        quant_config=_json_object(files, quant_name) if quant_name else None,
        origin=files[name][1],
    )


def _json_object(files: Files, name: str) -> Mapping[str, Any]:
    text, where = files[name]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{where}, key {name}: not JSON ({error}); put the model's config.json in") from None
    if not isinstance(value, dict):
        kind = type(value).__name__
        raise UnreadableError(f"{where}, key {name}: a JSON {kind}, not an object; put the model's config.json in")
    return value
