"""A request with its facts resolved: model, GPUs, engine version, the user's own flags; or why that cannot be."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from plimsoll.api import reasons
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.kv import EngineOptions, Speculation
from plimsoll.core.memory import MemoryFlags
from plimsoll.core.memory.loaded import loaded_weights
from plimsoll.core.plan.asked import arguments_of, drafting_of, facts_of, stretch_of
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction
from plimsoll.core.plan.demand import Demand, read_demand
from plimsoll.core.plan.extra_args import Overrides, read_overrides
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.plan.products import products_of
from plimsoll.core.plan.release import release_of
from plimsoll.core.plan.result import RefusedError, Rejected
from plimsoll.core.plan.shapes import Fixed, Shape, node_size
from plimsoll.facts import catalogue
from plimsoll.facts.engines import EngineVersion
from plimsoll.facts.gpus import GPU
from plimsoll.facts.models import ModelFacts

_MOST_NAMED: Final = 3
_SURELY: Final = 0.95
"""Padding differs between GPUs by less than the rest."""


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
    features: tuple[str, ...]
    """Arguments that fields of the spec stand for; ``overrides`` holds what they fix beside the user's own."""
    overrides: Overrides
    speculation: Speculation | None
    demand: Demand
    inventory: Inventory
    excluded: tuple[Rejected, ...] = ()
    """Products that were asked for and cannot be planned."""
    assumptions: tuple[str, ...] = ()
    correction: Correction = NOTHING_LEARNED

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

    @property
    def kv_dtypes(self) -> tuple[str, ...]:
        """KV dtypes to try: fp8 is a decision about quality, which only the user takes, and some engines refuse it.

        Who names a quality gate wants it judged first.
        """
        tuning = self.spec.tuning
        leave = tuning.mode == "Auto" and "KVCacheDtype" in tuning.allow and tuning.quality_gate is None
        allowed = self.correction.kv_cache_dtype is None and leave
        return ("auto", "fp8") if allowed and "kv_cache_dtype" not in self.overrides.options else ("auto",)

    def node_gpus(self, gpu: GPU, label: str) -> int:
        """GPUs of one node of a product."""
        return node_size(gpu, label, self.inventory.of(label).gpus_per_node)

    def most_replicas(self, shape: Shape) -> int:
        """Replicas that GPUs and nodes and, in mode Auto, ``maxReplicas`` allow."""
        by_gpus = min(self.max_gpus // shape.gpus, self.placeable(shape))
        scaling = self.spec.scaling
        limit = scaling.max_replicas if scaling.mode == "Auto" else None
        return by_gpus if limit is None else min(by_gpus, limit)

    def placeable(self, shape: Shape) -> int:
        """Replicas that the product's nodes hold: one on a node uses whole GPUs of it, one over several whole nodes."""
        there = self.inventory.of(shape.label).gpus
        if there is None:
            return self.max_gpus
        node = self.node_gpus(shape.gpu, shape.label)
        nodes, rest = divmod(there, node)
        return nodes // shape.nodes if shape.nodes > 1 else nodes * (node // shape.gpus) + rest // shape.gpus

    def unit_price(self, shape: Shape) -> float:
        """Cost of one GPU: its price when every allowed product has one, else its memory in GiB."""
        price = self.inventory.of(shape.label).price
        return price if self.priced and price else round(shape.gpu.memory_driver_bytes / (1 << 30), 1)

    @property
    def priced(self) -> bool:
        """Whether every product that may be chosen has a price."""
        return all(self.inventory.of(label).price for _, label in self.products)

    def share_left(self, shape: Shape) -> float:
        """Share of a GPU's memory that others do not hold."""
        return 1 - self.inventory.of(shape.label).reserve_bytes / shape.gpu.torch_total_bytes


def resolve_wish(
    spec: VLLMServiceSpec,
    replicas: int,
    config: ModelConfig | None,
    inventory: Inventory,
    correction: Correction = NOTHING_LEARNED,
) -> Wish:
    """Resolve names to facts.

    Raises:
        RefusedError: something named is unknown, unreadable or contradictory.
    """
    if config is None:
        raise RefusedError(reasons.UNKNOWN_MODEL.name, _unknown_model(spec.model.id))
    version, written, notes = release_of(spec)
    features, overrides = arguments_of(spec, version)
    facts = facts_of(config, overrides)
    stretched = stretch_of(spec, facts, version, overrides)
    if stretched:
        features += stretched[0]
        overrides = read_overrides((*features, *spec.engine.extra_args), version, spec.context_tokens)
        facts = facts_of(config, overrides)
        notes += stretched[1]
    drafting = drafting_of(spec, overrides, facts, config.draft)
    products, excluded = products_of(_names(spec), inventory)
    if not products:
        raise RefusedError(excluded[0].reason, "; ".join(each.message for each in excluded[:_MOST_NAMED]))
    return Wish(
        spec=spec,
        config=config,
        facts=facts,
        version=version,
        written_version=written,
        products=products,
        replicas=max(replicas, 1),
        features=features,
        overrides=overrides,
        speculation=drafting.speculation,
        demand=read_demand(spec, inventory.load),
        inventory=inventory,
        excluded=excluded,
        assumptions=(
            *([correction.because] if correction.because else []),
            *notes,
            *drafting.notes,
            *(f"hardware: {each.choice} is left out ({each.reason})" for each in excluded),
        ),
        correction=correction,
    )


def _unknown_model(model: str) -> str:
    near = ", ".join(catalogue.nearest(model))
    hint = f"did you mean {near}? " if near else ""
    return (
        f"spec.model.id: {model!r} is not in the catalogue; {hint}"
        "put its config.json into a ConfigMap and name it in spec.model.configRef"
    )


def _names(spec: VLLMServiceSpec) -> tuple[str, ...]:
    return spec.hardware.gpus or ((spec.hardware.gpu,) if spec.hardware.gpu else ())
