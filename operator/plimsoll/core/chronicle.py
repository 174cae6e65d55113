"""Plans and corrections as entries of the ledger: what a status says that the one before did not. Pure.

They stand in the status and in ControllerRevisions already, so their entries go to the log alone. Whoever writes the
status once makes each entry once.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from plimsoll.api import names
from plimsoll.core.ledger import CORRECTION, PLAN, Entry
from plimsoll.core.plan import correction

Status = Mapping[str, Any]
Grounds = Callable[[], Mapping[str, Any]]
"""What the planner's answer rests on; asked for only where it makes an entry."""
MOST_ALTERNATIVES: Final = 8
_TUNING: Final = ("Keeping", "Reverting")
"""Phases of an experiment in which a plan is made for its sake."""


def noted(before: Status, after: Status, spec: Mapping[str, Any], grounds: Grounds = dict) -> tuple[Entry, ...]:
    """What is new between two statuses of one service, whose ``spec`` this is."""
    return (
        *_plans(before, after, spec, grounds),
        *_refusals(before, after, spec, grounds),
        *_corrections(before, after),
        *_steps(before, after),
        *_loads(before, after),
    )


def _plans(before: Status, after: Status, spec: Mapping[str, Any], grounds: Grounds) -> Iterator[Entry]:
    """Another plan is in force."""
    was, now = (_part(each, "plan") for each in (before, after))
    if not now.get("revision") or now["revision"] == was.get("revision"):
        return
    rejected = (f"{r.get('choice')}: {r.get('reason')}, {r.get('message')}" for r in now.get("rejected") or ())
    yield Entry(
        PLAN,
        _why(before, after),
        _planned(after).get("message", "planned"),
        was.get("revision"),
        now["revision"],
        _asked(after, spec),
        tuple(rejected)[:MOST_ALTERNATIVES],
        grounds(),
    )


def _why(before: Status, after: Status) -> str:
    if not _part(before, "plan").get("revision"):
        return "FirstPlan"
    if _found_at_start(after) != _found_at_start(before):
        return "EngineFigures"
    if _part(_part(after, "tuning"), "experiment").get("phase") in _TUNING:
        return "Experiment"
    if before.get("observedGeneration") != after.get("observedGeneration"):
        return "SpecChanged"
    return "Requested"  # accept-plan or restart: annotations make no generation


def _refusals(before: Status, after: Status, spec: Mapping[str, Any], grounds: Grounds) -> Iterator[Entry]:
    """What was asked for is refused; what ran before goes on."""
    was, now = _planned(before), _planned(after)
    if now.get("status") != "False" or (was.get("status"), was.get("reason")) == ("False", now.get("reason")):
        return
    running = _part(after, "plan").get("revision")
    nearest = (f"{n.get('change')}: {n.get('message')}" for n in _part(after, "plan").get("nearest") or ())
    yield Entry(
        PLAN,
        str(now.get("reason")),
        str(now.get("message")),
        running,
        running,
        _asked(after, spec),
        tuple(nearest)[:MOST_ALTERNATIVES],
        grounds(),
    )


def _corrections(before: Status, after: Status) -> Iterator[Entry]:
    """Pods, or an engine that failed, teach another figure than was planned with."""
    was, now = (_part(_part(each, "observed"), "pool") for each in (before, after))
    if now and now != was:
        planned = _part(_part(after, "plan"), "kv").get("numBlocks")
        text = f"all engines of the plan report {now['numBlocks']:,} blocks; later plans of the same key start from it"
        told = {"key": str(now["key"])} | ({"plannedBlocks": f"{planned}"} if planned is not None else {})
        known = was.get("numBlocks") if was.get("key") == now["key"] else planned
        yield Entry(CORRECTION, "PoolObserved", text, _text(known), _text(now["numBlocks"]), told)
    item = _found_at_start(after)
    if item and item != _found_at_start(before):
        yield Entry(CORRECTION, "EngineFigures", str(item.get("from")), after=f"{item.get('bytes')} bytes less")


def _steps(before: Status, after: Status) -> Iterator[Entry]:
    """Pods teach how long a step takes."""
    was, now = (_part(_part(each, "observed"), "stepTimes") for each in (before, after))
    if now and now != was:
        text = f"decode steps take {now['factor']:g} of the predicted time; later plans of the same key count with it"
        known = was.get("factor", 1) if was.get("key", now["key"]) == now["key"] else 1
        yield Entry(CORRECTION, "StepTimesObserved", text, _text(known), _text(now["factor"]), {"key": str(now["key"])})


def _loads(before: Status, after: Status) -> Iterator[Entry]:
    """Another figure of the load counts than did before; one that nothing was observed of is as it was declared."""
    was, now = (_part(_part(each, "load"), "figures") for each in (before, after))
    for figure in sorted({*was, *now}):
        old, new = _part(was, figure), _part(now, figure)
        counted, counts = old.get("counts", new.get("declared")), new.get("counts", old.get("declared"))
        if counted == counts:
            continue
        text = "days of traffic have shown it" if new else "what was observed of it is too long ago"
        told = {key: str(new[key]) for key in ("declared", "observed") if key in new}
        yield Entry(
            CORRECTION,
            "LoadObserved",
            f"{figure}: {text}; the next plan and the autoscaler count with it",
            _text(counted),
            _text(counts),
            told,
        )


def _found_at_start(status: Status) -> Mapping[str, Any]:
    """What an engine that failed was short of, as an item of the plan that was made with it."""
    items = _part(status, "plan").get("memory") or ()
    return next((item for item in items if item.get("item") == correction.ITEM), {})


def _asked(after: Status, spec: Mapping[str, Any]) -> dict[str, str]:
    """What a plan answers: the parts of the spec that arithmetic rests on, none of which holds a secret."""
    told = {
        "generation": after.get("observedGeneration"),
        "model": _part(spec, "model").get("id"),
        **{f"hardware.{key}": value for key, value in _part(spec, "hardware").items()},
        **{key: spec.get(key) for key in ("contextTokens", "load", "slo", "objective")},
        "engine": _part(_part(after, "plan"), "choice").get("engineVersion"),
    }
    return {key: text for key, value in told.items() if (text := _text(value)) is not None}


def _planned(status: Status) -> Mapping[str, Any]:
    found = (c for c in status.get("conditions") or () if c.get("type") == names.PLANNED)
    return next(found, {})


def _part(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))
