"""YaRN for contexts beyond a model's native limit, as ``--hf-overrides``: only where its rotary kind allows it.

The whole rotary entry is written: vLLM replaces it, and what is left out of it is lost (base, sections, share).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelFacts

_PARAMETERS_SINCE: Final = 19
"""First recorded release with transformers 5, which keeps ``rope_parameters`` with the base in it."""
_PLAIN_WITHOUT_ENTRY: Final = frozenset(
    {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen3_next", "mistral", "mixtral"}
)
"""Model types whose files leave the entry out because nothing is scaled; of others the entry may have been left out."""
_ENTRIES: Final = ("rope_parameters", "rope_scaling")
_BESIDE: Final = ("rope_theta", "partial_rotary_factor")
WARNING: Final = (
    "rope: YaRN stretches positions by {factor:g} for all requests: answers to short texts may be worse; take it back "
    "where the long context is not needed"
)


class RopeError(ValueError):
    """The model's positions cannot be stretched; the message says why."""


def yarn_override(facts: ModelFacts, tokens: int, version: EngineVersion) -> tuple[str, float]:
    """The value of ``--hf-overrides`` for contexts of ``tokens``, and the factor of YaRN.

    Trained positions are the largest power of two within the limit: Qwen3 writes 40,960 for 32,768 and an answer.

    Raises:
        RopeError: the file does not say that its positions are plain ones, or not with which base.
    """
    problem = yarn_problem(facts, version)
    if problem:
        raise RopeError(problem)
    trained = 1 << (facts.max_model_len.bit_length() - 1)
    factor = round(-(-100 * tokens // trained) / 100, 2)
    key = "rope_parameters" if version.at_least(_PARAMETERS_SINCE) else "rope_scaling"
    stretched = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    override: Mapping[str, Any] = {
        "max_position_embeddings": tokens,
        key: {**_entry(facts.raw), **_beside(facts.raw, version), **stretched},
    }
    if facts.raw is not facts.config and facts.config.get("text_config") == facts.raw:
        override = {"text_config": override}
    return json.dumps(override, separators=(",", ":")), factor


def yarn_problem(facts: ModelFacts, version: EngineVersion) -> str | None:
    """Why YaRN cannot be asked of the model; None when it can."""
    entry = _entry(facts.raw)
    kind = entry.get("rope_type", entry.get("type"))
    if facts.limit_is_assumed:
        return "config.json writes no limit to go beyond"
    if any(isinstance(value, Mapping) for value in entry.values()):
        return "its layers rotate in several ways"
    if kind not in {None, "default"}:
        return f"its positions are scaled already ({kind})"
    if not facts.has_attention or facts.has_chunks or (kind is None and facts.model_type not in _PLAIN_WITHOUT_ENTRY):
        return f"nothing in config.json says that {facts.model_type or 'the model'} has plain rotary positions"
    if version.at_least(_PARAMETERS_SINCE) and "rope_theta" not in {*entry, *_beside(facts.raw, version)}:
        return "config.json does not write rope_theta, which the override must repeat: give the whole file (configRef)"
    return None


def _entry(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found: object = next((raw[key] for key in _ENTRIES if raw.get(key)), {})
    return found if isinstance(found, Mapping) else {}


def _beside(raw: Mapping[str, Any], version: EngineVersion) -> Mapping[str, Any]:
    """What newer releases expect inside the entry and older files write beside it."""
    if not version.at_least(_PARAMETERS_SINCE):
        return {}
    return {key: raw[key] for key in _BESIDE if raw.get(key) is not None}
