"""What a request asks of model and engine beyond sizes, resolved: arguments, ropes, drafts, and the facts behind."""

import json
from functools import lru_cache
from typing import Final

from plimsoll.api import reasons
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.plan.extra_args import BadFlagError, Overrides, read_overrides
from plimsoll.core.plan.features import feature_args
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.release import release_of
from plimsoll.core.plan.result import RefusedError
from plimsoll.core.plan.rope import WARNING, RopeError, yarn_override
from plimsoll.core.speculation import Drafting, SpeculationError, predictor_problem, read_speculation
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.models import ModelConfigError, ModelFacts, UnknownArchitecture, read_model
from plimsoll.facts.overrides import overridden

_REMEMBERED_MODELS: Final = 256


def arguments_of(spec: VLLMServiceSpec, version: EngineVersion) -> tuple[tuple[str, ...], Overrides]:
    """The arguments that fields of the spec stand for, and what they and the user's own fix."""
    try:
        own = read_overrides(spec.engine.extra_args, version, spec.context_tokens)
    except BadFlagError as error:
        raise RefusedError(reasons.BAD_FLAG.name, f"spec.engine.extraArgs: {error}") from error
    try:
        features = feature_args(spec.engine, version)
        if not features:
            return (), own
        return features, read_overrides((*features, *spec.engine.extra_args), version, spec.context_tokens)
    except BadFlagError as error:
        raise RefusedError(reasons.BAD_FLAG.name, f"spec.engine: {error}") from error


def stretch_of(
    spec: VLLMServiceSpec, facts: ModelFacts, version: EngineVersion, overrides: Overrides
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The argument for a context beyond the model's limit, where one is wished and needed, and what to warn of."""
    if spec.model.rope_scaling != "YaRN" or spec.context_tokens <= facts.max_model_len or facts.limit_is_assumed:
        return None
    if overrides.hf_overrides:
        message = "spec.model.ropeScaling: --hf-overrides in engine.extraArgs replaces it: write the ropes there"
        raise RefusedError(reasons.BAD_FLAG.name, f"{message}, or leave it out")
    try:
        value, factor = yarn_override(facts, spec.context_tokens, version)
    except RopeError as error:
        limit = f"contextTokens {spec.context_tokens} is above the {facts.max_model_len} tokens of {spec.model.id}"
        message = f"spec.model.ropeScaling: {limit}, and YaRN cannot help: {error}"
        raise RefusedError(reasons.MAX_MODEL_LEN_ABOVE_MODEL.name, message) from error
    return ("--hf-overrides", value), (WARNING.format(factor=factor),)


def drafting_of(spec: VLLMServiceSpec, overrides: Overrides, facts: ModelFacts, given: ModelConfig | None) -> Drafting:
    """Speculative decoding, whose draft must be known where it could be of any size."""
    where = "spec.engine.speculative" if spec.engine.speculative else "spec.engine.extraArgs: --speculative-config"

    try:
        found = read_speculation(overrides.speculative, lambda name: draft_facts(name, given))
    except SpeculationError as error:
        raise RefusedError(reasons.BAD_FLAG.name, f"{where}: {error}") from error
    if found.unknown:
        raise RefusedError(
            reasons.UNKNOWN_MODEL.name,
            f"{where}: nothing is known of the draft model {found.unknown}, which may be of any size: put its "
            "config.json into the operator's catalogue, or use MTP or NGram",
        )
    problem = predictor_problem(found.speculation, facts)
    if problem:
        raise RefusedError(reasons.BAD_FLAG.name, f"{where}: {problem}")
    return found


def draft_facts(name: str, given: ModelConfig | None) -> ModelFacts | None:
    """Facts of a draft model: of the configuration given, else of the bundled one; None where neither can be read."""
    config = given or bundled_config(name)
    try:
        return facts_of(config, Overrides()) if config is not None else None
    except RefusedError:
        return None


def draft_name(spec: VLLMServiceSpec) -> str | None:
    """The draft model a request names, in a field or in the user's own arguments."""
    if spec.engine.speculative is not None:
        return spec.engine.speculative.model
    if not spec.engine.extra_args:
        return None
    try:
        written = read_overrides(spec.engine.extra_args, release_of(spec)[0], spec.context_tokens).speculative
    except BadFlagError:
        return None
    name = written.get("model")
    return name if isinstance(name, str) else None


def facts_of(config: ModelConfig, overrides: Overrides) -> ModelFacts:
    """Facts of a configuration as the engine reads it, ``--hf-overrides`` in place.

    Raises:
        RefusedError: it is unreadable, or of a kind nobody described.
    """
    written = overridden(config.config, overrides.hf_overrides) if overrides.hf_overrides else config.config
    try:
        quant = json.dumps(config.quant_config) if config.quant_config is not None else None
        return _remembered(json.dumps(written), quant, config.weights_bytes)
    except ModelConfigError as error:
        message = f"{config.origin}: {error}; correct the file"
        raise RefusedError(reasons.INVALID_MODEL_CONFIG.name, message) from error
    except UnknownArchitecture as error:
        raise RefusedError(reasons.UNKNOWN_ARCHITECTURE.name, f"{config.origin}: {error}") from error


@lru_cache(maxsize=_REMEMBERED_MODELS)
def _remembered(config: str, quant_config: str | None, weights_bytes: int | None) -> ModelFacts:
    """Facts by the text they come from: what was computed for a model is remembered by its facts."""
    quant = json.loads(quant_config) if quant_config is not None else None
    return read_model(json.loads(config), quant, weights_bytes=weights_bytes)
