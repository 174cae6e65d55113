"""From what a user wants to the configuration that serves it, or the refusal with its arithmetic.

Pure and deterministic: the same request gives the same plan on every machine. How a plan is chosen stands in
``docs/planning.md``.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from plimsoll.api import reasons
from plimsoll.api.v1alpha1 import VLLMServiceSpec
from plimsoll.core.plan.claims import claims_problem
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction
from plimsoll.core.plan.explain import MOST_REJECTED, bounded, plan_of, rejections
from plimsoll.core.plan.fit import Failed
from plimsoll.core.plan.inventory import Inventory
from plimsoll.core.plan.model import ModelConfig
from plimsoll.core.plan.nearest import nearest_changes, within_the_model
from plimsoll.core.plan.pods import check_pods
from plimsoll.core.plan.result import Plan, Refusal, RefusedError
from plimsoll.core.plan.search import Candidate, polished, search
from plimsoll.core.plan.wish import Wish, resolve_wish

_ABOUT_DIVISORS: Final = frozenset({reasons.HEADS_NOT_DIVISIBLE.name})
LONGEST_MESSAGE: Final = 2000
_NOTHING_KNOWN: Final = Inventory()


def plan_service(
    spec: VLLMServiceSpec,
    replicas: int,
    config: ModelConfig | None,
    inventory: Inventory = _NOTHING_KNOWN,
    correction: Correction = NOTHING_LEARNED,
) -> Plan | Refusal:
    """The plan of a service that must have room for ``replicas``. Never raises for a spec that the API accepts."""
    try:
        check_pods(spec, inventory)
        wish = resolve_wish(spec, replicas, config, inventory, correction)
        _check_model_limit(wish)
    except RefusedError as refused:
        return _cut(refused.answer)
    found = search(wish)
    if not found.candidates:
        return _cut(_refusal(wish, found.failed))
    best = polished(wish, found.candidates[0])
    plan = bounded(plan_of(wish, _as_asked(wish, best), rejections(wish, best, found)))
    return claims_problem(spec, plan.choice, inventory.claims) or plan


def _check_model_limit(wish: Wish) -> None:
    """No context beyond what the model was made for, where its file says so."""
    limit, asked = wish.facts.max_model_len, wish.context_tokens
    if asked <= limit or wish.facts.limit_is_assumed:
        return
    nearest = within_the_model(wish, limit)
    ways = f"; would fit: {' or '.join(change.change for change in nearest)}" if nearest else ""
    message = (
        f"spec.contextTokens: {asked} is above the {limit} tokens that {wish.spec.model.id} allows "
        f"({wish.config.origin}); ask for {limit} or less{ways}"
    )
    raise RefusedError(reasons.MAX_MODEL_LEN_ABOVE_MODEL.name, message, nearest=nearest)


def _as_asked(wish: Wish, best: Candidate) -> Candidate:
    """Where somebody else sets the replicas, the plan is judged with theirs, as far as ``maxGPUs`` allows."""
    if wish.spec.scaling.mode == "Auto":
        return best
    replicas = max(1, min(wish.spec.replicas, wish.most_replicas(best.engine.shape)))
    serving = best.service.serve(replicas)
    return replace(best, serving=serving, cost=best.cost / best.serving.replicas * replicas)


def _refusal(wish: Wish, failed: Sequence[Failed]) -> Refusal:
    """The refusal of the candidate that came closest, and the changes that would help."""
    closest = _closest(failed).rejected
    nearest = nearest_changes(wish, failed)
    ways = " or ".join(change.change for change in nearest)
    hint = f"would fit: {ways}" if ways else "use fewer contextTokens, a larger GPU, more GPUs or a quantised model"
    shown = (*(each.rejected for each in failed), *wish.excluded)[:MOST_REJECTED]
    return Refusal(closest.reason, f"{closest.message}; {hint}", nearest=nearest, rejected=shown)


def _closest(failed: Sequence[Failed]) -> Failed:
    """Of those within the budget the one that holds the longest context, else the last that failed for memory; where
    none is within it, the smallest.
    """
    within = [each for each in failed if each.rejected.reason != reasons.MAX_GPUS_EXCEEDED.name]
    divided = [each for each in within if each.rejected.reason not in _ABOUT_DIVISORS]
    usable = divided or within
    if not usable:
        return min(failed, key=lambda each: each.gpus_needed)
    return max(reversed(usable), key=lambda each: each.context_that_fits)


def _cut(refusal: Refusal) -> Refusal:
    message = refusal.message
    return refusal if len(message) <= LONGEST_MESSAGE else replace(refusal, message=f"{message[:LONGEST_MESSAGE]}…")
