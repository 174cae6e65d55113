"""From a request to a plan: finds the model's configuration, then asks the planner, which is pure.

Order of sources: ``spec.model.configRef``, else a catalogue ConfigMap of the operator's namespace, else the bundled
catalogue. A source that is named but unreadable is an error of its own, never a silent fallback to the next.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from plimsoll.adapters.ports import (
    CONFIG_MAPS,
    VOLUME_CLAIMS,
    Cluster,
    ClusterError,
    ForbiddenError,
    NotFoundError,
    UnreachableError,
)
from plimsoll.api import names, reasons
from plimsoll.api.v1alpha1 import ConfigRef
from plimsoll.core import replay
from plimsoll.core.drift import digest
from plimsoll.core.plan.asked import draft_name
from plimsoll.core.plan.claims import Claims, claim_names
from plimsoll.core.plan.configmaps import Files, UnreadableError, catalogued, files_of, referenced
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction, to_dict
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig, bundled_config
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.planned import Asked
from plimsoll.core.policy import PodPolicy
from plimsoll.core.request import Request
from plimsoll.core.rollout import Outcome, Unavailable


class _MissingClaimError(Exception):
    """A claim that the pods mount is not there."""


log = logging.getLogger("plimsoll.planning")

REMEMBERED_PLANS: Final = 256
CATALOGUE_SECONDS: Final = 10.0


@dataclass
class Planner:
    """Plans requests; answers are remembered by what they depend on."""

    cluster: Cluster
    namespace: str
    monotonic: Callable[[], float]
    inventory: Callable[[], Inventory] = Inventory
    policy: PodPolicy = field(default_factory=PodPolicy)
    pools: Callable[[str], Mapping[str, int]] = lambda _model: {}
    """KV blocks that running engines of a model report, by what decides them."""
    speeds: Callable[[str], Mapping[str, float]] = lambda _model: {}
    """Step times over those predicted, of running engines of a model, by what decides them."""
    _inventory: Inventory = field(default_factory=Inventory)
    _plans: OrderedDict[str, tuple[Asked, Plan | Refusal]] = field(default_factory=OrderedDict)
    _catalogue: Files = field(default_factory=dict)
    _catalogue_until: float = float("-inf")

    async def plan(self, request: Request, correction: Correction = NOTHING_LEARNED) -> Outcome:
        """A Plan, a Refusal, or Unavailable when the model's configuration could not be had.

        ``correction``: what an engine that failed has taught.
        """
        try:
            config = await self._config(request)
            claims = await self._claims(request)
        except UnreadableError as error:
            return Unavailable(reasons.CATALOGUE_UNREADABLE.name, str(error))
        except _MissingClaimError as error:
            return Unavailable(reasons.VOLUME_CLAIM_MISSING.name, str(error))
        # No part of the fingerprint, but of what a plan may count on: bounds of replicas, leave to take fp8 KV.
        bounds = (request.spec.scaling.model_dump(), request.spec.replicas, request.spec.tuning.model_dump())
        self._forget_plans_of_another_inventory()
        known = self._known(request, claims)
        pods = (sorted(known.pools.items()), sorted(known.speeds.items()))
        learned = (to_dict(correction), *pods, request.load.to_dict())
        key = digest([request.fingerprint, *bounds, config and config.mark, claims, *learned])
        if key not in self._plans:
            asked = Asked(request.spec, config, known, correction)
            self._plans[key] = (asked, asked.plan())
            while len(self._plans) > REMEMBERED_PLANS:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return self._plans[key][1]

    def grounds(self, answer: Plan | Refusal | None) -> Mapping[str, Any]:
        """All that an answer given before was planned from, for the ledger; nothing where it is not remembered."""
        asked = next((asked for asked, made in self._plans.values() if made is answer), None)
        return replay.planned(asked, answer) if asked and answer else {}

    async def what_if(self, request: Request) -> Asked | None:
        """To plan the same request with another spec; None while its model or its claims cannot be read."""
        try:
            config, claims = await self._config(request), await self._claims(request)
        except (UnreadableError, _MissingClaimError):
            return None
        self._forget_plans_of_another_inventory()
        return Asked(request.spec, config, self._known(request, claims))

    def _known(self, request: Request, claims: Claims) -> Inventory:
        """What a plan of this request may count on beside the request."""
        model = request.spec.model.id
        return replace(
            self._inventory,
            policy=self.policy,
            claims=claims,
            pools=self.pools(model),
            speeds=self.speeds(model) if request.speeds is None else request.speeds,
            load=request.load,
        )

    def _forget_plans_of_another_inventory(self) -> None:
        """Another price or budget is a reason to plan anew; running plans stay until somebody accepts what it says."""
        now = self.inventory()
        if now != self._inventory:
            self._inventory = now
            self._plans.clear()

    async def _claims(self, request: Request) -> Claims:
        """Access modes of the claims that the pods mount; those that may not be read are left out."""
        found: dict[str, tuple[str, ...]] = {}
        for name in claim_names(request.spec):
            try:
                claim = await self.cluster.get(VOLUME_CLAIMS, request.namespace, name)
            except NotFoundError:
                where = f"{request.namespace}/{name}"
                raise _MissingClaimError(f"PersistentVolumeClaim {where} does not exist; create it") from None
            except ForbiddenError as error:
                log.warning("access modes of claims are not known: %s", error.message)
            else:
                found[name] = tuple(claim.get("spec", {}).get("accessModes") or ())
        return found

    async def _config(self, request: Request) -> ModelConfig | None:
        model = request.spec.model
        if model.config_ref:
            found: ModelConfig | None = await self._referenced(request.namespace, model.config_ref)
        else:
            found = catalogued(await self._operator_catalogue(), model.id) or bundled_config(model.id)
        draft = draft_name(request.spec)
        if found is None or draft is None:
            return found
        return replace(found, draft=catalogued(await self._operator_catalogue(), draft))

    async def _referenced(self, namespace: str, ref: ConfigRef) -> ModelConfig:
        where = f"ConfigMap {namespace}/{ref.name}"
        try:
            found = await self.cluster.get(CONFIG_MAPS, namespace, ref.name)
        except NotFoundError:
            raise UnreadableError(
                f"spec.model.configRef.name: {where} does not exist; create it with the model's config.json "
                f"under the key {ref.key!r}, or leave configRef out to use the catalogue"
            ) from None
        except UnreachableError:
            raise
        except ClusterError as error:
            raise UnreadableError(f"{where} cannot be read: {error.message}") from error
        return referenced(files_of(found.get("data") or {}, where), ref, where)

    async def _operator_catalogue(self) -> Files:
        """Files of the operator's own catalogue ConfigMaps; looked up a few times a minute at most.

        An operator that may not list them has none: the bundled catalogue does.
        """
        if self.monotonic() >= self._catalogue_until:
            try:
                self._catalogue = await self._listed_catalogue()
            except ForbiddenError as error:
                log.warning("no catalogue ConfigMaps: %s", error.message)
                self._catalogue = {}
            self._catalogue_until = self.monotonic() + CATALOGUE_SECONDS
        return self._catalogue

    async def _listed_catalogue(self) -> Files:
        files: dict[str, tuple[str, str]] = {}
        async for found in self.cluster.list(CONFIG_MAPS, self.namespace, f"{names.LABEL_CATALOGUE}=true"):
            data: Mapping[str, str] = found.get("data") or {}
            files |= files_of(data, f"ConfigMap {self.namespace}/{found['metadata']['name']}")
        return files
