"""Which plan runs, and the children it means. Pure: request, fresh plan and kept revisions in, manifests out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from plimsoll.api import names, reasons
from plimsoll.core import replan, several_nodes
from plimsoll.core.conditions import Problem
from plimsoll.core.drift import differs, digest
from plimsoll.core.kinds import NOTHING_OPTIONAL, Kinds
from plimsoll.core.manifests.identity import Owner
from plimsoll.core.manifests.nodes import NodeTemplates, node_templates
from plimsoll.core.manifests.pdb import disruption_budget
from plimsoll.core.manifests.pod import PodRequest, pod_template
from plimsoll.core.manifests.revision import Revision, current, new_revision
from plimsoll.core.manifests.service import network_service
from plimsoll.core.manifests.workload import workload
from plimsoll.core.plan.correction import NOTHING_LEARNED, Correction
from plimsoll.core.plan.extra_args import by_flag
from plimsoll.core.plan.result import Plan, Refusal, to_json
from plimsoll.core.request import Request
from plimsoll.core.steps import Step
from plimsoll.core.tuned import kept_as

DIFF_LIMIT: Final = 400
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
    plan: Plan | None = None
    """The planner's answer that ``revision`` keeps, where it says the same now."""

    @property
    def answer(self) -> Plan | Refusal | None:
        """What the planner says of what is asked for."""
        return self.refused if self.refusal else self.plan


def choose_target(
    request: Request,
    outcome: Outcome,
    kept: Sequence[Revision],
    correction: Correction = NOTHING_LEARNED,
    kinds: Kinds = NOTHING_OPTIONAL,
) -> Target:
    """The plan to run. A running plan answers its request until the request changes or the user accepts a new one.

    ``correction``: what the ``outcome`` was planned with.
    """
    running = current(kept)
    same_request = running is not None and running.fingerprint == request.fingerprint
    if not (running and same_request and running.nodes > 1):
        outcome = _placed(outcome, kinds)  # what runs over several nodes is not judged again: it would only be lost
    if isinstance(outcome, Plan):
        learned = replan.learned(request, correction, replanned=replan.was_tried(request, kept))
        fresh = render(request, outcome, _next_number(running), learned)
        if running is None or not same_request or request.accept_plan == fresh.name:
            revision = _numbered(fresh, kept)
            return Target(revision, plan=_kept_as(outcome, fresh, revision))
        return Target(running, update=_update(running, fresh), plan=_kept_as(outcome, fresh, running))
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
    request: Request,
    target: Target,
    kept: Sequence[Revision],
    outcome: Outcome,
    correction: Correction,
    kinds: Kinds = NOTHING_OPTIONAL,
) -> tuple[Target, str]:
    """The target after a second try with what the engine's failure taught, and what came of it when nothing did."""
    running = target.revision
    assert running is not None  # noqa: S101 - its engine failed
    outcome = _placed(outcome, kinds)
    if isinstance(outcome, Unavailable):
        return target, ""
    if isinstance(outcome, Refusal):
        return replace(target, refused=outcome), f"Planning again with the engine's own figures: {outcome.message}"
    learned = replan.learned(request, correction, replanned=True)
    fresh = render(request, outcome, _next_number(running), learned)
    if fresh.name == running.name:
        return target, "Planning again with the engine's own figures gives the same plan."
    revision = _numbered(fresh, kept)
    return Target(revision, plan=_kept_as(outcome, fresh, revision)), ""


def render(request: Request, plan: Plan, number: int, learned: Mapping[str, Any] | None = None) -> Revision:
    """The revision that a fresh plan would become. ``learned``: what an engine taught that it was made with."""
    template = pod_template(plan, PodRequest(request.name, request.spec, request.restart, plan.policy))
    nodes = plan.choice.nodes_per_replica
    made = node_templates(template, request.name, nodes) if nodes > 1 else NodeTemplates(template, None)
    reported = to_json(plan)
    # How many replicas run is not part of a kept plan: it moves without a restart.
    reported[_PLANNED] = reported["choice"].pop("replicas")
    made = _marked(made)
    revision = new_revision(
        owner(request), request.fingerprint, reported, made.leader, plan.startup.seconds, number, made.worker
    )
    return replace(revision, learned=learned or {}, tuned=kept_as(request), load=request.load.to_dict())


def _marked(made: NodeTemplates) -> NodeTemplates:
    """The templates with their hash as an annotation, by which pods of different templates are told apart."""
    mark = digest([made.leader, made.worker] if made.worker else made.leader)
    return NodeTemplates(_with_mark(made.leader, mark), _with_mark(made.worker, mark) if made.worker else None)


def _with_mark(template: Mapping[str, Any], mark: str) -> dict[str, Any]:
    metadata = template["metadata"]
    annotations = {**metadata.get("annotations", {}), names.ANNOTATION_TEMPLATE: mark}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def owner(request: Request) -> Owner:
    """The request's identity as the owner of its children."""
    return Owner(request.namespace, request.name, request.uid)


def children(request: Request, target: Revision, step: Step) -> list[dict[str, Any]]:
    """Manifests in the order in which they are applied: what the fleet needs, the fleet, and the budget that follows
    its count: whoever goes on after a crash between the two finds the count, and the budget that belongs to it lacking.

    The target's revision is kept even while its template still waits.
    """
    mine = owner(request)
    budget = [disruption_budget(mine, target.nodes)] if step.replicas > 1 else []
    fleet = [workload(mine, step.revision, step.way)] if step.revision else []
    return [target.manifest(mine), network_service(mine), *fleet, *budget]


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


def _placed(outcome: Outcome, kinds: Kinds) -> Outcome:
    """A replica over several nodes is refused where nothing could run it: a Deployment's pod has one node."""
    why = several_nodes.refusal(outcome, kinds) if isinstance(outcome, Plan) else None
    return outcome if why is None else Refusal(reasons.SEVERAL_NODES.name, why)


def _next_number(running: Revision | None) -> int:
    return running.number + 1 if running else 1


def _numbered(fresh: Revision, kept: Sequence[Revision]) -> Revision:
    """The same content is the same object, which is immutable: what runs keeps its number, an older one gets a new."""
    same = next((r for r in kept if r.name == fresh.name), None)
    if same is None or same is current(kept):
        return same or fresh
    return replace(same, number=fresh.number)


def _kept_as(plan: Plan, fresh: Revision, kept: Revision) -> Plan | None:
    """The plan if it is the one that a revision keeps: one that runs may have been made from other figures."""
    return plan if (fresh.name, fresh.plan) == (kept.name, kept.plan) else None


def _update(running: Revision, fresh: Revision) -> Problem | None:
    before, after = dict(running.plan["choice"]), dict(fresh.plan["choice"])
    changes = [*_changed_flags(before.pop("args"), after.pop("args"))]
    changes += [f"{k}: {before.get(k)} -> {v}" for k, v in after.items() if before.get(k) != v]
    made, runs = ([each.template, each.worker_template] for each in (fresh, running))
    if not changes and digest(runs) != digest(made):
        where = differs(fresh.template, running.template) or "fields left out"
        changes.append(f"pod template: {where}")
    if not changes:
        return None
    text = "; ".join(changes)[:DIFF_LIMIT]
    accept = f"apply with the annotation plimsoll.dev/accept-plan: {fresh.name}"
    why = " for the load that was observed (status.load)" if fresh.load and fresh.load != running.load else ""
    return Problem(reasons.NEWER_PLAN.name, f"planning again{why} would change {text}; {accept}")


def _changed_flags(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Each flag that differs, with both values; the rest of an argv is no news."""
    old, new = by_flag(before), by_flag(after)
    for flag in [*old, *(flag for flag in new if flag not in old)]:
        if flag not in new:
            yield f"{flag} dropped"
        elif flag not in old:
            yield f"{flag} {new[flag]}".rstrip() + " added"
        elif old[flag] != new[flag]:
            yield f"{flag}: {old[flag]} -> {new[flag]}"
