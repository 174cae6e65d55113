"""Which plan runs, and the children it means. Pure: request, fresh plan and kept revisions in, manifests out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll.api import names, reasons
from plimsoll.core import replan
from plimsoll.core.conditions import Problem
from plimsoll.core.drift import differs, digest
from plimsoll.core.manifests.deployment import deployment
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.pdb import disruption_budget
from plimsoll.core.manifests.pod import PodRequest, pod_template
from plimsoll.core.manifests.revision import Revision, current, new_revision
from plimsoll.core.manifests.service import network_service
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.request import Request
from plimsoll.core.steps import Step

DIFF_LIMIT: Final = 400
OLD_DEADLINE_MARGIN_SECONDS: Final = 120
_PLANNED: Final = "plannedReplicas"
"""Key of a kept plan for the replicas it was made for: no part of the choice, and not reported."""


@dataclass(frozen=True)
class Unavailable:
    """The planner could not be asked: its model facts could not be read. ``reason`` is a condition reason."""

    reason: str
    message: str


Outcome = Plan | Refusal | Unavailable


@dataclass(frozen=True)
class Target:
    """What should run, and what to say about plans."""

    revision: Revision | None
    refusal: Problem | None = None
    refused: Refusal | None = None
    """The planner's own refusal, with what was tried and what would fit."""
    update: Problem | None = None
    update_unknown: str = ""
    frozen: bool = False
    """The request has no plan: the previous fleet is kept as it is, its count included."""


def choose_target(
    request: Request, outcome: Outcome, kept: Sequence[Revision], correction: Correction = NOTHING_LEARNED
) -> Target:
    """The plan to run. A running plan answers its request until the request changes or the user accepts a new one.

    ``correction``: what the ``outcome`` was planned with.
    """
    running = current(kept)
    outcome = _on_one_node(outcome)
    same_request = running is not None and running.fingerprint == request.fingerprint
    if isinstance(outcome, Plan):
        learned = replan.learned(request, correction, replanned=replan.was_tried(request, kept))
        fresh = render(request, outcome, _next_number(running), learned)
        if running is None or not same_request or request.accept_plan == fresh.name:
            return Target(_numbered(fresh, kept))
        return Target(running, update=_update(running, fresh))
    problem = Problem(outcome.reason, outcome.message)
    if not same_request:
        refused = outcome if isinstance(outcome, Refusal) else None
        return Target(running, refusal=problem, refused=refused, frozen=True)
    if isinstance(outcome, Unavailable):
        return Target(running, update_unknown=outcome.message)
    return Target(
        running, update=Problem(reasons.PLAN_NOW_INFEASIBLE.name, f"planning again would refuse: {outcome.message}")
    )


def ignored(request: Request, target: Target, kept: Sequence[Revision]) -> str:
    """What to say of an accept-plan annotation that names nothing; one that was followed long ago needs no word."""
    known = {revision.name for revision in (*kept, *([target.revision] if target.revision else []))}
    if not request.accept_plan or request.accept_plan in known:
        return ""
    asked = f"annotation {names.ANNOTATION_ACCEPT_PLAN}: {request.accept_plan[:80]!r}"
    return f"{asked} names no plan that is kept or on offer"


def replanned(
    request: Request, target: Target, kept: Sequence[Revision], outcome: Outcome, correction: Correction
) -> tuple[Target, str]:
    """The target after a second try with what the engine's failure taught, and what came of it when nothing did."""
    running = target.revision
    assert running is not None  # noqa: S101 - its engine failed
    if isinstance(outcome, Unavailable):
        return target, ""
    if isinstance(outcome, Refusal):
        return replace(target, refused=outcome), f"Planning again with the engine's own figures: {outcome.message}"
    learned = replan.learned(request, correction, replanned=True)
    fresh = render(request, outcome, _next_number(running), learned)
    if fresh.name == running.name:
        return target, "Planning again with the engine's own figures gives the same plan."
    return Target(_numbered(fresh, kept)), ""


def render(request: Request, plan: Plan, number: int, learned: Mapping[str, Any] | None = None) -> Revision:
    """The revision that a fresh plan would become. ``learned``: what an engine taught that it was made with."""
    template = pod_template(plan, PodRequest(request.name, request.spec, request.restart, plan.policy))
    reported = to_json(plan)
    # How many replicas run is not part of a kept plan: it moves without a restart.
    reported[_PLANNED] = reported["choice"].pop("replicas")
    made = new_revision(owner(request), request.fingerprint, reported, _marked(template), plan.startup.seconds, number)
    return replace(made, learned=learned or {})


def _marked(template: Mapping[str, Any]) -> dict[str, Any]:
    """The template with its hash as an annotation, by which pods of different templates are told apart."""
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_TEMPLATE: digest(template)}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def owner(request: Request) -> Owner:
    """The request's identity as the owner of its children."""
    return Owner(request.namespace, request.name, request.uid)


def children(request: Request, target: Revision, step: Step) -> list[dict[str, Any]]:
    """Manifests in the order in which they are applied: what the fleet needs first, the fleet last.

    The target's revision is kept even while its template still waits.
    """
    mine = owner(request)
    budget = [disruption_budget(mine)] if step.replicas > 1 else []
    fleet = []
    if step.revision is not None:
        runs = step.revision
        fleet = [deployment(mine, runs.template, deadline_seconds=_deadline_seconds(runs), way=step.way)]
    return [target.manifest(mine), network_service(mine), *budget, *fleet]


def _deadline_seconds(revision: Revision) -> int:
    """When a roll-out of the revision counts as too slow; revisions of the first release kept no such figure."""
    startup = revision.plan.get("startup") or {}
    return int(startup.get("deadlineSeconds", 2 * revision.load_seconds + OLD_DEADLINE_MARGIN_SECONDS))


def gpus_per_replica(revision: Revision) -> int:
    """GPUs that one replica of the kept plan takes."""
    return int(revision.plan["choice"]["gpusPerReplica"])


def planned_replicas(revision: Revision) -> int:
    """Replicas that the kept plan needs for the load it was made for."""
    return int(revision.plan.get(_PLANNED, 1))


def reported_plan(target: Target, replicas: int) -> dict[str, Any] | None:
    """``status.plan``: what runs, and while the request is refused, what was tried and what would fit."""
    running = _running_plan(target.revision, replicas) if target.revision else {}
    if target.refused is None:
        return running or None
    return {**running, **{key: to_json(getattr(target.refused, key)) for key in ("rejected", "nearest")}}


def _running_plan(revision: Revision, replicas: int) -> dict[str, Any]:
    """The kept plan, its revision and the replicas it runs with now."""
    kept = {key: value for key, value in revision.plan.items() if key != _PLANNED}
    choice = {**revision.plan["choice"], "replicas": replicas}
    return {**kept, "choice": choice, "revision": revision.name}


def sentence(revision: Revision) -> str:
    """The plan in one sentence, for the Planned condition."""
    choice, kv = revision.plan["choice"], revision.plan["kv"]
    return (
        f"{choice['gpusPerReplica']} x {choice['gpu']} a replica (TP {choice['tensorParallel']}): "
        f"{kv['tokens']:,} KV tokens, {kv['maxConcurrency']:.2f} requests of the full context at once"
    )


def _on_one_node(outcome: Outcome) -> Outcome:
    """Replicas over several nodes are planned, but nothing here can roll them out: a Deployment's pod has one node."""
    if not isinstance(outcome, Plan) or outcome.choice.nodes_per_replica == 1:
        return outcome
    choice = outcome.choice
    message = (
        f"spec.hardware: a replica would need {choice.nodes_per_replica} nodes ({choice.gpus_per_replica} GPUs "
        f"{choice.gpu}, TP {choice.tensor_parallel}, PP {choice.pipeline_parallel}), and replicas over several nodes "
        "are not rolled out; allow a larger GPU in hardware.gpus, or use a quantised checkpoint"
    )
    return Refusal(reasons.SEVERAL_NODES.name, message)


def _next_number(running: Revision | None) -> int:
    return running.number + 1 if running else 1


def _numbered(fresh: Revision, kept: Sequence[Revision]) -> Revision:
    """The same content is the same object, which is immutable: what runs keeps its number, an older one gets a new."""
    same = next((r for r in kept if r.name == fresh.name), None)
    if same is None or same is current(kept):
        return same or fresh
    return replace(same, number=fresh.number)


def _update(running: Revision, fresh: Revision) -> Problem | None:
    before, after = dict(running.plan["choice"]), dict(fresh.plan["choice"])
    changes = [*_changed_flags(before.pop("args"), after.pop("args"))]
    changes += [f"{k}: {before.get(k)} -> {v}" for k, v in after.items() if before.get(k) != v]
    if not changes and digest(running.template) != digest(fresh.template):
        where = differs(fresh.template, running.template) or "fields left out"
        changes.append(f"pod template: {where}")
    if not changes:
        return None
    text = "; ".join(changes)[:DIFF_LIMIT]
    accept = f"apply with the annotation plimsoll.dev/accept-plan: {fresh.name}"
    return Problem(reasons.NEWER_PLAN.name, f"planning again would change {text}; {accept}")


def _changed_flags(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Each flag that differs, with both values; the rest of an argv is no news."""
    old, new = _by_flag(before), _by_flag(after)
    for flag in [*old, *(flag for flag in new if flag not in old)]:
        if flag not in new:
            yield f"{flag} dropped"
        elif flag not in old:
            yield f"{flag} {new[flag]}".rstrip() + " added"
        elif old[flag] != new[flag]:
            yield f"{flag}: {old[flag]} -> {new[flag]}"


def _by_flag(args: Sequence[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for arg in args:
        if arg.startswith("--"):
            flag, _, value = arg.partition("=")
            values = found.setdefault(flag, [])
            values += [value] if value else []
        else:
            values.append(arg)
    return {flag: " ".join(values) for flag, values in found.items()}
