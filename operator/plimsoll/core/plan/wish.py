"""A request with its facts resolved: model, GPUs, engine version, the user's own flags; or why that cannot be."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

from plimsoll.api import reasons
from plimsoll.api.reasons import Reason
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.kv import EngineOptions, Speculation
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.memory.loaded import loaded_weights
from plimsoll.core.plan.claims import Claims
from plimsoll.core.plan.demand import Demand, read_demand
from plimsoll.core.plan.extra_args import BadFlagError, Overrides, read_overrides
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Nearest, Refusal
from plimsoll.core.plan.shapes import Fixed
from plimsoll.core.policy import PodPolicy
from plimsoll.core.rows import as_cuda
from plimsoll.facts import catalogue, engines, gpus
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelConfigError, ModelFacts, UnknownArchitecture, read_model
from plimsoll.facts.overrides import overridden

_IMAGE_TAG: Final = re.compile(r":v?(\d+\.\d+(?:\.\d+)?)")
_REMEMBERED_MODELS: Final = 256
_SURELY: Final = 0.95
"""Padding differs between GPUs by less than the rest."""


@dataclass(frozen=True)
class Inventory:
    """What a planner may know of the cluster beside the request: nodes by product, GPUs that may be used, prices.

    ``prices`` are of one GPU by product, in any one currency and time; without all of them memory stands for price.
    ``policy`` is what the operator's owner decides about pods, ``claims`` the volumes that the service names.
    """

    gpus_per_node: Mapping[str, int] = field(default_factory=dict)
    gpu_budget: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    policy: PodPolicy = field(default_factory=PodPolicy)
    claims: Claims = field(default_factory=dict)


class RefusedError(Exception):
    """The request cannot be planned; carries the answer."""

    def __init__(self, reason: Reason, message: str, nearest: tuple[Nearest, ...] = ()) -> None:
        super().__init__(message)
        self.answer = Refusal(reason.name, message, nearest=nearest)


@dataclass(frozen=True)
class Wish:
    """A request with its facts resolved. ``replicas`` is the floor; ``gpu_names`` are labels with their figures."""

    spec: VLLMServiceSpec
    config: ModelConfig
    facts: ModelFacts
    version: EngineVersion
    written_version: str
    products: tuple[tuple[GPU, str], ...]
    replicas: int
    overrides: Overrides
    speculation: Speculation | None
    demand: Demand
    inventory: Inventory
    assumptions: tuple[str, ...] = ()

    @property
    def fixed(self) -> Fixed:
        """Parallel sizes that the user set."""
        return Fixed.of(self.overrides.options, self.overrides.memory)

    @property
    def max_gpus(self) -> int:
        """GPUs over all replicas: the service's own limit and the cluster's."""
        limit, budget = self.spec.hardware.max_gpus, self.inventory.gpu_budget
        return limit if budget is None else min(limit, budget)

    @property
    def context_tokens(self) -> int:
        """The engine's maximum length: what is asked, or more where the user's own flag says so."""
        return max(self.spec.context_tokens, self.overrides.options.get("max_model_len") or 0)

    @cached_property
    def least_weights_bytes(self) -> float:
        """Bytes of the weights over all GPUs of a replica, at the least; what every engine repeats is counted once."""
        gpu, _ = self.products[0]
        options = EngineOptions(device=gpu, version=self.version, text_only=True)
        flags = MemoryFlags(quantization=self.overrides.memory.get("quantization"))
        return loaded_weights(self.facts, options, flags, 0).item.bytes * _SURELY

    def most_replicas(self, gpus_per_replica: int) -> int:
        """Replicas that GPUs and, in mode Auto, ``maxReplicas`` allow."""
        by_gpus = self.max_gpus // gpus_per_replica
        scaling = self.spec.scaling
        limit = scaling.max_replicas if scaling.mode == "Auto" else None
        return by_gpus if limit is None else min(by_gpus, limit)


def resolve_wish(spec: VLLMServiceSpec, replicas: int, config: ModelConfig | None, inventory: Inventory) -> Wish:
    """Resolve names to facts.

    Raises:
        RefusedError: something named is unknown, unreadable or contradictory.
    """
    if config is None:
        raise RefusedError(reasons.UNKNOWN_MODEL, _unknown_model(spec.model.id))
    version, written, notes = _version(spec)
    try:
        overrides = read_overrides(spec.engine.extra_args, version, spec.context_tokens)
    except BadFlagError as error:
        raise RefusedError(reasons.BAD_FLAG, f"spec.engine.extraArgs: {error}") from error
    facts = _facts(config, overrides)
    products = tuple(_product(name) for name in _names(spec))
    return Wish(
        spec=spec,
        config=config,
        facts=facts,
        version=version,
        written_version=written,
        products=products,
        replicas=max(replicas, 1),
        overrides=overrides,
        speculation=_speculation(overrides.speculative),
        demand=read_demand(spec),
        inventory=inventory,
        assumptions=notes,
    )


def version_of_image(image: str | None) -> str | None:
    """The engine version an image's tag names, or None."""
    found = _IMAGE_TAG.search(image or "")
    return found.group(1) if found else None


def _unknown_model(model: str) -> str:
    near = ", ".join(catalogue.nearest(model))
    hint = f"did you mean {near}? " if near else ""
    return (
        f"spec.model.id: {model!r} is not in the catalogue; {hint}"
        "put its config.json into a ConfigMap and name it in spec.model.configRef"
    )


def _version(spec: VLLMServiceSpec) -> tuple[EngineVersion, str, tuple[str, ...]]:
    """The rules to use, the version as written, and what is assumed about it."""
    declared, tagged = spec.engine.version, version_of_image(spec.engine.image)
    notes = list(_version_notes(spec, declared, tagged))
    text = declared or tagged or engines.NEWEST
    try:
        return EngineVersion.parse(text), text, tuple(notes)
    except ValueError:
        rules = _nearest_rules(text)
        known = f"{engines.OLDEST_RELEASE[0]}.{engines.OLDEST_RELEASE[1]} to {engines.NEWEST}"
        notes.append(f"engine: nothing is known about vLLM {text} (known: {known}): the rules of {rules} are taken")
        return rules, text, tuple(notes)


def _version_notes(spec: VLLMServiceSpec, declared: str | None, tagged: str | None) -> Iterator[str]:
    if declared is None and tagged is None:
        where = f"engine.image {spec.engine.image} names no version: " if spec.engine.image else ""
        yield f"engine: {where}the newest vLLM with a table, {engines.NEWEST}"
    if declared and tagged and not declared.startswith(tagged):
        yield f"engine: engine.version {declared} is taken, although the tag of engine.image says {tagged}"


def _nearest_rules(text: str) -> EngineVersion:
    numbers = [int(part) for part in re.findall(r"\d+", text)[:2]]
    return EngineVersion(*engines.OLDEST_RELEASE) if tuple(numbers) < engines.OLDEST_RELEASE else _newest()


def _newest() -> EngineVersion:
    return EngineVersion.parse(engines.NEWEST)


def _facts(config: ModelConfig, overrides: Overrides) -> ModelFacts:
    written = overridden(config.config, overrides.hf_overrides) if overrides.hf_overrides else config.config
    try:
        quant = json.dumps(config.quant_config) if config.quant_config is not None else None
        return _remembered(json.dumps(written), quant, config.weights_bytes)
    except ModelConfigError as error:
        message = f"{config.origin}: {error}; correct the file"
        raise RefusedError(reasons.INVALID_MODEL_CONFIG, message) from error
    except UnknownArchitecture as error:
        raise RefusedError(reasons.UNKNOWN_ARCHITECTURE, f"{config.origin}: {error}") from error


@lru_cache(maxsize=_REMEMBERED_MODELS)
def _remembered(config: str, quant_config: str | None, weights_bytes: int | None) -> ModelFacts:
    """Facts by the text they come from: what was computed for a model is remembered by its facts."""
    quant = json.loads(quant_config) if quant_config is not None else None
    return read_model(json.loads(config), quant, weights_bytes=weights_bytes)


def _names(spec: VLLMServiceSpec) -> tuple[str, ...]:
    return spec.hardware.gpus or ((spec.hardware.gpu,) if spec.hardware.gpu else ())


def _product(name: str) -> tuple[GPU, str]:
    """The GPU and the node label to select: a label is kept as written (it may say SHARED or MIG)."""
    gpu = gpus.find(name)
    if gpu is None:
        near = ", ".join(gpus.nearest(name)) or ", ".join(gpus.names()[:5])
        message = (
            f"spec.hardware.gpu: {name!r} is not a GPU the catalogue knows; known and near: {near} "
            "(the node label nvidia.com/gpu.product)"
        )
        raise RefusedError(reasons.UNKNOWN_GPU, message)
    written_as_label = name.lower().startswith(gpu.label.lower())
    return as_cuda(gpu), name if written_as_label else gpu.label


def _speculation(written: Mapping[str, Any]) -> Speculation | None:
    """Speculative decoding of the user's own flags; a draft that no catalogue knows costs nothing in the estimate."""
    if not written:
        return None
    tokens, model, method = written.get("num_speculative_tokens", 1), written.get("model"), written.get("method")
    if isinstance(tokens, str) and tokens.isascii() and tokens.isdigit():
        tokens = int(tokens)
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= 1024:  # noqa: PLR2004
        message = f"num_speculative_tokens: {str(tokens)[:40]!r} is not a number from 1 to 1024"
        raise RefusedError(reasons.BAD_FLAG, f"spec.engine.extraArgs: --speculative-config: {message}")
    if method is not None and not isinstance(method, str):
        message = f"method: {str(method)[:40]!r} is not a word"
        raise RefusedError(reasons.BAD_FLAG, f"spec.engine.extraArgs: --speculative-config: {message}")
    draft = bundled_config(model) if isinstance(model, str) else None
    facts = _facts(draft, Overrides()) if draft is not None else None
    return Speculation(method or ("draft_model" if facts else "mtp"), tokens, facts)
