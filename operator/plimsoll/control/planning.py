"""From a request to a plan: finds the model's configuration, then asks the planner, which is pure.

Order of sources: ``spec.model.configRef``, else a catalogue ConfigMap of the operator's namespace, else the bundled
catalogue. A source that is named but unreadable is an error of its own, never a silent fallback to the next.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from plimsoll.adapters.ports import CONFIG_MAPS, Cluster, ClusterError, NotFoundError, UnreachableError
from plimsoll.api import names, reasons
from plimsoll.api.v1alpha1 import ConfigRef
from plimsoll.core.drift import digest
from plimsoll.core.plan.choose import plan_service
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.request import Request
from plimsoll.core.rollout import Outcome, Unavailable

REMEMBERED_PLANS: Final = 256
CATALOGUE_SECONDS: Final = 30.0
QUANT_SUFFIX: Final = ".hf_quant_config"

Texts = Mapping[str, tuple[str, str]]
"""File name → (its text, the ConfigMap it is from)."""


class _UnreadableError(Exception):
    """The model's configuration cannot be had; carries the answer."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.answer = Unavailable(reason, message)


@dataclass
class Planner:
    """Plans requests; answers are remembered by what they depend on."""

    cluster: Cluster
    namespace: str
    monotonic: Callable[[], float]
    _plans: OrderedDict[str, Outcome] = field(default_factory=OrderedDict)
    _catalogue: Texts = field(default_factory=dict)
    _catalogue_until: float = float("-inf")

    async def plan(self, request: Request) -> Outcome:
        """A Plan, a Refusal, or Unavailable when the model's configuration could not be had."""
        try:
            config = await self._config(request)
        except _UnreadableError as error:
            return error.answer
        seen = (config.origin, config.config, config.quant_config) if config else ()
        key = digest([request.fingerprint, request.minimum_replicas, *seen])
        if key not in self._plans:
            self._plans[key] = plan_service(request.spec, request.minimum_replicas, config)
            while len(self._plans) > REMEMBERED_PLANS:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return self._plans[key]

    async def _config(self, request: Request) -> ModelConfig | None:
        model = request.spec.model
        if model.config_ref:
            return await self._referenced(request.namespace, model.config_ref)
        files = await self._operator_catalogue()
        stem = model.id.replace("/", "--")
        if f"{stem}.json" in files:
            return _parsed(files, stem)
        return bundled_config(model.id)

    async def _referenced(self, namespace: str, ref: ConfigRef) -> ModelConfig:
        where = f"ConfigMap {namespace}/{ref.name}"
        try:
            found = await self.cluster.get(CONFIG_MAPS, namespace, ref.name)
        except NotFoundError:
            raise _UnreadableError(
                reasons.CATALOGUE_UNREADABLE.name,
                f"spec.model.configRef.name: {where} does not exist; create it with the model's config.json "
                f"under the key {ref.key!r}, or leave configRef out to use the catalogue",
            ) from None
        except UnreachableError:
            raise
        except ClusterError as error:
            raise _UnreadableError(
                reasons.CATALOGUE_UNREADABLE.name, f"{where} cannot be read: {error.message}"
            ) from error
        data = found.get("data") or {}
        if ref.key not in data:
            keys = ", ".join(sorted(data)) or "none"
            message = f"spec.model.configRef.key: {where} has no key {ref.key!r}; it has: {keys}"
            raise _UnreadableError(reasons.CATALOGUE_UNREADABLE.name, message)
        stem = ref.key.removesuffix(".json")
        return _parsed(
            {name: (text, where) for name, text in data.items()} | {f"{stem}.json": (data[ref.key], where)}, stem
        )

    async def _operator_catalogue(self) -> Texts:
        """Files of the operator's own catalogue ConfigMaps; looked up at most twice a minute."""
        if self.monotonic() < self._catalogue_until:
            return self._catalogue
        files: dict[str, tuple[str, str]] = {}
        async for found in self.cluster.list(CONFIG_MAPS, self.namespace, f"{names.LABEL_CATALOGUE}=true"):
            where = f"ConfigMap {self.namespace}/{found['metadata']['name']}"
            files |= {name: (text, where) for name, text in (found.get("data") or {}).items()}
        self._catalogue, self._catalogue_until = files, self.monotonic() + CATALOGUE_SECONDS
        return files


def _parsed(files: Texts, stem: str) -> ModelConfig:
    text, where = files[f"{stem}.json"]
    quant = files.get(f"{stem}{QUANT_SUFFIX}.json")
    return ModelConfig(
        config=_json_object(text, f"{where}, key {stem}.json"),
        quant_config=_json_object(quant[0], f"{quant[1]}, key {stem}{QUANT_SUFFIX}.json") if quant else None,
        origin=where,
    )


def _json_object(text: str, where: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UnreadableError(
            reasons.CATALOGUE_UNREADABLE.name, f"{where}: not JSON ({error}); put the config.json in"
        ) from None
    if not isinstance(value, dict):
        message = f"{where}: a JSON {type(value).__name__}, not an object; put the model's config.json in"
        raise _UnreadableError(reasons.CATALOGUE_UNREADABLE.name, message)
    return value
