"""``--hf-overrides``: what a user writes over a checkpoint's ``config.json``."""

from collections.abc import Mapping
from typing import Any


def overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration as the engine then reads it: objects are merged key by key, everything else replaced."""
    merged = dict(config)
    for key, value in overrides.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = overridden(dict(before or {}), value) if both else value
    return merged
