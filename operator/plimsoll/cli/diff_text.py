"""A difference as people read it: at a terminal, in a pull request, and as JSON for scripts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from plimsoll.cli.changes import Change, Cost, ServiceDiff
from plimsoll.cli.text import aligned

MARK = "<!-- plimsoll-diff -->"
"""First line of the markdown: by it a workflow finds its own comment and updates it."""


def table(found: Sequence[ServiceDiff]) -> Iterator[str]:
    """Lines for a terminal."""
    for each in _differing(found):
        yield f"{each.service}: {each.kind}"
        yield from (f"  {line}" for line in aligned((c.what, c.before, f"-> {c.after}") for c in _shown(each)))
        yield from ([f"  refused: {each.refusal}"] if each.refusal else [])
        yield f"  pods: {each.restarts}"
        yield f"  GPUs: {_gpus(each)}"
        yield from ([f"  cost: {_cost(each.cost)}"] if each.cost else [])
        yield ""
    yield summary(found)


def markdown(found: Sequence[ServiceDiff]) -> Iterator[str]:
    """A comment for a pull request."""
    yield MARK
    yield f"**Plimsoll:** {summary(found)}"
    for each in _differing(found):
        cost = f" · cost {_cost(each.cost)}" if each.cost else ""
        yield from (
            "",
            f"### `{each.service}` {each.kind}",
            "",
            f"Pods: **{each.restarts}** · GPUs {_gpus(each)}{cost}",
        )
        yield from (["", f"> Refused: {_cell(each.refusal)}"] if each.refusal else [])
        yield from ([] if each.kind == "removed" else ["", "| | before | after |", "|---|---|---|"])
        yield from (f"| {_cell(c.what)} | {_code(c.before)} | {_code(c.after)} |" for c in _shown(each))


def summary(found: Sequence[ServiceDiff]) -> str:
    """Everything in one sentence."""
    kinds = [(kind, sum(each.kind == kind for each in found)) for kind in ("added", "removed", "changed")]
    said = ", ".join(f"{number} {kind}" for kind, number in kinds if number)
    before, after = (sum(each.gpus[side] for each in found) for side in (0, 1))
    if not said:
        return f"nothing differs in {_services(len(found))} ({after} GPUs)"
    gpus = f"{before} -> {after} GPUs" if before != after else f"{after} GPUs as before"
    return f"{said} of {_services(len(found))}; {gpus}{_total_cost(found)}"


def as_json(found: Sequence[ServiceDiff]) -> dict[str, Any]:
    """One object: the totals, and every service that differs."""
    return {
        "differs": any(each.kind != "unchanged" for each in found),
        "gpus": {"before": sum(each.gpus[0] for each in found), "after": sum(each.gpus[1] for each in found)},
        "unchanged": sum(each.kind == "unchanged" for each in found),
        "services": [_service_json(each) for each in _differing(found)],
    }


def _service_json(each: ServiceDiff) -> dict[str, Any]:
    cost = each.cost
    return {
        "service": each.service,
        "kind": each.kind,
        "gpus": {"before": each.gpus[0], "after": each.gpus[1]},
        "cost": {"unit": cost.unit, "before": round(cost.before, 4), "after": round(cost.after, 4)} if cost else None,
        "restarts": each.restarts,
        "changes": [{"what": c.what, "before": c.before, "after": c.after} for c in each.changes],
        "refusal": each.refusal or None,
    }


def _differing(found: Iterable[ServiceDiff]) -> Iterator[ServiceDiff]:
    return (each for each in found if each.kind != "unchanged")


def _shown(each: ServiceDiff) -> Iterator[Change]:
    """A removed service needs no details; of a new one, what is as everywhere (sizes of 1) says nothing."""
    if each.kind == "removed":
        return iter(())
    plain = {"1", "no", "unknown"} if each.kind == "added" else set()
    return (c for c in each.changes if c.after not in plain)


def _gpus(each: ServiceDiff) -> str:
    before, after = each.gpus
    return f"{after} as before" if before == after else f"{before} -> {after}"


def _cost(cost: Cost) -> str:
    if cost.before == cost.after:
        return f"{cost.after:,.2f} {cost.unit}, as before"
    return f"{cost.before:,.2f} -> {cost.after:,.2f} {cost.unit} ({cost.after - cost.before:+,.2f})"


def _total_cost(found: Sequence[ServiceDiff]) -> str:
    costs = [each.cost for each in found if each.cost]
    units = {cost.unit for cost in costs}
    if len(units) != 1:
        return "; cost: some products have no --price, so there is no total" if units else ""
    total = Cost(costs[0].unit, sum(cost.before for cost in costs), sum(cost.after for cost in costs))
    return f"; cost {_cost(total)}"


def _services(number: int) -> str:
    return "1 service" if number == 1 else f"{number} services"


def _code(text: str) -> str:
    return text if text == "—" else f"`{_cell(text).replace('`', ' ')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
