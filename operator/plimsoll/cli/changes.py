"""What differs between two plans of a service, and what that does to its pods. Values in, values out."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.api import names
from plimsoll.cli.planning import Planned
from plimsoll.cli.prices import Prices
from plimsoll.core.drift import differs
from plimsoll.core.plan.extra_args import BadFlagError, argv_flags
from plimsoll.core.plan.result import Plan, Refusal
from plimsoll.core.request import FREE_OF_PLAN, read_request
from plimsoll.core.rollout import render
from plimsoll.facts import gpus
from plimsoll.facts.engines import EngineVersion

Kind = Literal["added", "removed", "changed", "unchanged"]
GIB: Final = 1 << 30
ABSENT: Final = "—"


@dataclass(frozen=True)
class Change:
    """One thing that differs, as text before and after."""

    what: str
    before: str
    after: str


@dataclass(frozen=True)
class Cost:
    """What the GPUs cost: money where every product has a price, else GPU memory held."""

    unit: Literal["per hour", "GiB of GPU memory"]
    before: float
    after: float


@dataclass(frozen=True)
class ServiceDiff:
    """What a change does to one service. ``restarts`` says which pods, or why none."""

    service: str
    kind: Kind
    changes: Sequence[Change] = ()
    restarts: str = "none"
    cost: Cost | None = None
    gpus: tuple[int, int] = (0, 0)
    refusal: str = ""


def compare(old: Sequence[Planned], new: Sequence[Planned], prices: Prices) -> list[ServiceDiff]:
    """Every service of either side by name; unchanged ones too, so that a total can be made."""
    before, after = ({each.full_name: each for each in side} for side in (old, new))
    return [_compare(before.get(name), after.get(name), prices) for name in sorted(before.keys() | after.keys())]


def _compare(old: Planned | None, new: Planned | None, prices: Prices) -> ServiceDiff:
    either = new or old
    assert either is not None  # noqa: S101 # the name came from one of the sides
    changes = tuple(_changes(old, new))
    kind: Kind = "added" if old is None else "removed" if new is None else "changed" if changes else "unchanged"
    return ServiceDiff(
        service=either.full_name,
        kind=kind,
        changes=changes,
        restarts=_restarts(old, new),
        cost=_cost(old, new, prices),
        gpus=(_gpus(old), _gpus(new)),
        refusal=_refusal(new),
    )


def _changes(old: Planned | None, new: Planned | None) -> Iterator[Change]:
    """What was written first, then what follows from it; a restart is never left without a word."""
    written = tuple(_differing(_written(old), _written(new))) if old and new else ()
    effects = tuple(_differing(_facts(old), _facts(new)))
    yield from (*written, *effects)
    before, after = _plan(old), _plan(new)
    if old and new and before and after and not effects:
        where = differs(_template(new, after), _template(old, before)) or differs(
            _template(old, before), _template(new, after)
        )
        if where:
            yield Change(f"pod template: {where}", "as it was", "another")


def _differing(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for what in dict.fromkeys((*before, *after)):
        if before.get(what) != after.get(what):
            yield Change(what, before.get(what, ABSENT), after.get(what, ABSENT))


def _written(planned: Planned) -> dict[str, str]:
    """What the user wrote, defaults filled in, as text by path; our annotations too."""
    annotations = (planned.manifest.get("metadata") or {}).get("annotations") or {}
    ours = {f"annotation {k}": str(v) for k, v in annotations.items() if str(k).startswith(f"{names.GROUP}/")}
    spec = planned.spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dict(_leaves(spec, "spec")) | ours


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - JSON
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield from _leaves(child, f"{path}.{key}")
    else:
        yield path, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _facts(planned: Planned | None) -> dict[str, str]:
    """What follows for the fleet, as text by what it is about."""
    if planned is None:
        return {}
    if not isinstance(planned.outcome, Plan):
        return {"feasible": f"no ({planned.outcome.reason})"}
    plan = planned.outcome
    return {"feasible": "yes", **_hardware(plan), **_capacity(plan), **_flags(plan)}


def _refusal(planned: Planned | None) -> str:
    outcome = planned.outcome if planned else None
    return f"{outcome.reason}: {outcome.message}" if isinstance(outcome, Refusal) else ""


def _hardware(plan: Plan) -> dict[str, str]:
    choice = plan.choice
    sizes = {
        "tensor parallel": choice.tensor_parallel,
        "pipeline parallel": choice.pipeline_parallel,
        "data parallel": choice.data_parallel,
        "decode context parallel": choice.decode_context_parallel,
        "nodes a replica": choice.nodes_per_replica,
    }
    return {
        "GPU": choice.gpu,
        "GPUs": str(choice.replicas * choice.gpus_per_replica),
        "replicas": str(choice.replicas),
        "GPUs a replica": str(choice.gpus_per_replica),
        **{name: str(size) for name, size in sizes.items()},
        "expert parallel": "yes" if choice.expert_parallel else "no",
        "vLLM": choice.engine_version,
    }


def _capacity(plan: Plan) -> dict[str, str]:
    kv = plan.kv
    found = {
        "KV tokens an engine": f"{kv.tokens:,}",
        "KV tokens in all": f"{kv.tokens * plan.choice.replicas * plan.choice.engines_per_replica:,}",
        "requests of the full context at once, an engine": f"{kv.max_concurrency:.2f}",
    }
    if kv.concurrency_at_load is not None:
        found["requests of the typical load at once, an engine"] = f"{kv.concurrency_at_load:.1f}"
    return found | {"SLO met": plan.slo_met}


def _flags(plan: Plan) -> dict[str, str]:
    try:
        flags = argv_flags(plan.choice.args, EngineVersion.parse(plan.choice.engine_version))
    except (BadFlagError, ValueError):
        return {"arguments": " ".join(plan.choice.args)}
    return {name: _value(value) for name, value in flags.items()}


def _value(value: Any) -> str:  # noqa: ANN401 - JSON
    if value is True:
        return "set"
    return value if isinstance(value, str) else json.dumps(value)


def _restarts(old: Planned | None, new: Planned | None) -> str:
    """Which pods a roll-out of the change replaces, by the very templates that the operator would render."""
    before, after = _plan(old), _plan(new)
    if new is None:
        return _pods(before, "deleted")
    if old is None or before is None:
        return _pods(after, "started") if after else "none: not feasible, nothing starts"
    if after is None:
        return "none: the new plan is refused, the previous fleet keeps running"
    if _template(old, before) != _template(new, after):
        return _pods(before, "replaced, a few at a time")
    if _planned_fields(old) != _planned_fields(new):
        return "none: the plan is made anew, with the same pods"
    return "none"


def _pods(plan: Plan | None, what: str) -> str:
    if plan is None:
        return "none"
    count = plan.choice.replicas * plan.choice.nodes_per_replica
    return f"all {count} pods {what}" if count > 1 else f"the one pod {what}"


def _template(planned: Planned, plan: Plan) -> Mapping[str, Any]:
    identity = {"name": planned.name, "namespace": planned.namespace, "uid": ""}
    meta = {**(planned.manifest.get("metadata") or {}), **identity}
    return render(read_request({**planned.manifest, "metadata": meta}), plan, 1).template


def _planned_fields(planned: Planned) -> dict[str, Any]:
    return {k: v for k, v in planned.manifest["spec"].items() if k not in FREE_OF_PLAN}


def _cost(old: Planned | None, new: Planned | None, prices: Prices) -> Cost | None:
    plans = (_plan(old), _plan(new))
    wanted = [plan.choice.gpu for plan in plans if plan]
    if not wanted:
        return None
    if prices and all(name in prices for name in wanted):
        return Cost("per hour", *(_count(plan) * prices[plan.choice.gpu] if plan else 0.0 for plan in plans))
    return Cost("GiB of GPU memory", *(_count(plan) * _memory_gib(plan.choice.gpu) if plan else 0.0 for plan in plans))


def _memory_gib(product: str) -> float:
    gpu = gpus.find(product)
    return gpu.memory_driver_bytes / GIB if gpu else 0.0


def _gpus(planned: Planned | None) -> int:
    return _count(_plan(planned))


def _count(plan: Plan | None) -> int:
    return plan.choice.replicas * plan.choice.gpus_per_replica if plan else 0


def _plan(planned: Planned | None) -> Plan | None:
    return planned.outcome if planned is not None and isinstance(planned.outcome, Plan) else None
