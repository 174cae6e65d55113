"""What differs between two plans of a service, and what that does to its pods. Values in, values out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.api import names
from plimsoll.cli.fleets import Fleet, fleet_of
from plimsoll.cli.inventory import Prices
from plimsoll.cli.planning import Planned
from plimsoll.core.drift import differs
from plimsoll.core.plan.result import Refusal

Kind = Literal["added", "removed", "changed", "unchanged"]
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
    before, after = fleet_of(old), fleet_of(new)
    changes = (*_written_changes(old, new), *_effects(old, new, before, after))
    kind: Kind = "added" if old is None else "removed" if new is None else "changed" if changes else "unchanged"
    return ServiceDiff(
        service=either.full_name,
        kind=kind,
        changes=changes,
        restarts=_restarts(new, before, after),
        cost=_cost(before, after, prices),
        gpus=(before.gpus if before else 0, after.gpus if after else 0),
        refusal=_refusal(new),
    )


def _written_changes(old: Planned | None, new: Planned | None) -> Iterator[Change]:
    if old and new:
        yield from _differing(_written(old), _written(new))


def _effects(old: Planned | None, new: Planned | None, before: Fleet | None, after: Fleet | None) -> Iterator[Change]:
    """What follows for the fleet; a restart is never left without a word."""
    found = tuple(_differing(_facts(old, before), _facts(new, after)))
    yield from found
    if before and after and not found:
        ways = ((after.template, before.template), (before.template, after.template))
        where = next((path for path in (differs(*way) for way in ways) if path), None)
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


def _facts(planned: Planned | None, fleet: Fleet | None) -> dict[str, str]:
    """What follows for the fleet, as text by what it is about."""
    if fleet:
        return {"feasible": "yes", **fleet.facts()}
    return {"feasible": f"no ({planned.outcome.reason})"} if planned and isinstance(planned.outcome, Refusal) else {}


def _refusal(planned: Planned | None) -> str:
    outcome = planned.outcome if planned else None
    return f"{outcome.reason}: {outcome.message}" if isinstance(outcome, Refusal) else ""


def _restarts(new: Planned | None, before: Fleet | None, after: Fleet | None) -> str:
    """Which pods a roll-out of the change replaces, by the very templates that the operator would render."""
    if new is None:
        return _pods(before.pods, "deleted") if before else "none"
    if before is None:
        return _pods(after.pods, "started") if after else "none: not feasible, nothing starts"
    if after is None:
        return "none: the new plan is refused, the previous fleet keeps running"
    if before.template != after.template and before.pods:
        return _pods(before.pods, "replaced, a few at a time")
    more = after.pods - before.pods
    return f"no restart; {_pods(abs(more), 'started' if more > 0 else 'stopped')}" if more else "none"


def _pods(count: int, what: str) -> str:
    return {0: "none", 1: f"1 pod {what}"}.get(count, f"{count} pods {what}")


def _cost(before: Fleet | None, after: Fleet | None, prices: Prices) -> Cost | None:
    fleets = [fleet for fleet in (before, after) if fleet]
    if not fleets:
        return None
    if all(fleet.plan.choice.gpu in prices for fleet in fleets):
        return Cost("per hour", *(fleet.cost(prices) if fleet else 0.0 for fleet in (before, after)))
    return Cost("GiB of GPU memory", *(fleet.memory_gib if fleet else 0.0 for fleet in (before, after)))
