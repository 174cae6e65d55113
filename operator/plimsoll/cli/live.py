"""A live VLLMService object in plain words: what is planned, seen, wrong and decided. Object in, sections out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from plimsoll.api import metrics_reasons, names, reasons
from plimsoll.api.findings import FINDINGS
from plimsoll.api.reasons import REASONS
from plimsoll.api.status import NOT_OBSERVED
from plimsoll.core.plan.words import Section, sections

Object = Mapping[str, Any]
# The status that asks for nothing; of all others the runbook line is shown.
_GOOD: Final[Mapping[str, str]] = {
    names.READY: "True",
    names.RECONCILING: "False",
    names.STALLED: "False",
    names.PLANNED: "True",
    names.AVAILABLE: "True",
    names.PLAN_UPDATE_AVAILABLE: "False",
    names.METRICS_AVAILABLE: "True",
    names.SLO_MET: "True",
    names.SCALING_LIMITED: "False",
    names.KV_PREDICTION_ACCURATE: "True",
    names.EXPERIMENTING: "False",
    names.INTEGRATED: "True",
}
_NOT_TOLD: Final = tuple(
    reason.name
    for reason in (
        reasons.NO_OBSERVATION,
        reasons.DISABLED,
        metrics_reasons.NO_TARGETS,
        metrics_reasons.NO_REQUESTS,
        metrics_reasons.NOTHING_SERVES,
    )
)
_UNKNOWN: Final = "unknown"
_UNKNOWN_REASON: Final = "This version does not know the reason: use the plimsoll of the operator's own version."


def explain_object(service: Object) -> dict[str, Any]:
    """The live object's story as JSON: ``plan``, ``observed``, ``bottleneck``, ``attention``, ``decisions`` …"""
    status, spec = _part(service, "status"), _part(service, "spec")
    observed = _part(status, "observed")
    return {
        "service": full_name(service),
        "model": str(_part(spec, "model").get("id", _UNKNOWN)),
        "said": said(service),
        "plan": dict(_part(status, "plan")),
        "observed": dict(observed) | {k: status[k] for k in ("replicas", "readyReplicas") if k in status},
        "scaling": dict(_part(status, "scaling")),
        "recommendation": dict(_part(status, "recommendation")),
        "tuning": dict(_part(status, "tuning")),
        "load": dict(_part(status, "load")),
        "bottleneck": observed.get("bottleneck") or _UNKNOWN,
        "attention": list(attention(status)),
        "unobserved": unobserved(status),
        "decisions": list(_entries(status, "decisions")),
    }


def live_sections(told: Mapping[str, Any]) -> tuple[Section, ...]:
    """What ``explain_object`` found, in the order in which people ask."""
    found = (
        Section("Needs attention", tuple(_attention_rows(told["attention"]))),
        *sections(told["plan"], told["model"]),
        Section("Observed", tuple(_observed_rows(told))),
        Section("Load, declared and observed", tuple(_load_rows(told["load"]))),
        Section("What to turn next", tuple(_recommended_rows(told["recommendation"]))),
        Section("Experiments", tuple(_experiment_rows(told["tuning"]))),
        Section("Why it has this size", tuple(_size_rows(told["scaling"]))),
        Section("Last decisions, oldest first", tuple(map(_decision_row, told["decisions"]))),
        Section("The last one rests on", tuple(_grounds(told["decisions"]))),
    )
    return tuple(section for section in found if section.rows)


def full_name(service: Object) -> str:
    """``namespace/name``."""
    meta = _part(service, "metadata")
    return f"{meta.get('namespace', 'default')}/{meta.get('name')}"


def said(service: Object) -> str:
    """How it stands, in one sentence."""
    status = _part(service, "status")
    if status.get("observedGeneration", NOT_OBSERVED) == NOT_OBSERVED:
        return "the operator has not looked at it yet: is it running, and does it watch this namespace?"
    generation, seen = _part(service, "metadata").get("generation"), status.get("observedGeneration")
    behind = f" (as of generation {seen}; the spec is at {generation})" if seen != generation else ""
    ready = next((c for c in _entries(status, "conditions") if c.get("type") == names.READY), None)
    if ready is None:
        return f"no condition Ready is reported{behind}"
    word = {"True": "ready", "False": "not ready"}.get(str(ready.get("status")), "of unknown readiness")
    return f"{word}: {ready.get('message') or ready.get('reason')}{behind}"


def attention(status: Object) -> Iterator[dict[str, Any]]:
    """Conditions that are not as they should be, those of one cause together, each with what to do about it."""
    causes: dict[tuple[str, str], list[str]] = {}
    for condition in _entries(status, "conditions"):
        kind, state, reason = (str(condition.get(key, "")) for key in ("type", "status", "reason"))
        if kind in _GOOD and state != _GOOD[kind] and reason not in _NOT_TOLD:
            causes.setdefault((reason, str(condition.get("message", ""))), []).append(f"{kind} {state}")
    for (reason, message), conditions in causes.items():
        runbook = REASONS[reason].runbook if reason in REASONS else _UNKNOWN_REASON
        yield {"conditions": conditions, "reason": reason, "message": message, "runbook": runbook}


def unobserved(status: Object) -> list[str]:
    """Conditions about which nothing is known yet."""
    return [str(c.get("type")) for c in _entries(status, "conditions") if c.get("reason") in _NOT_TOLD]


def _attention_rows(found: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    for each in found:
        yield each["reason"], ", ".join(each["conditions"])
        yield "", each["message"]
        yield "", f"What to do: {each['runbook']}"


def _observed_rows(told: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    seen = told["observed"]
    yield "replicas", f"{_figure(seen.get('readyReplicas'))} ready of {_figure(seen.get('replicas'))}"
    planned = (told["plan"].get("kv") or {}).get("tokens")
    real = seen.get("kvTokensPerPod")
    beside = f" (planned for an engine: {planned:,})" if real is not None and planned is not None else ""
    yield "KV tokens a pod", f"{_figure(real)}{beside}"
    yield "KV tokens needed", _figure(seen.get("demandTokens"))
    if (use := seen.get("kvUsePercent")) is not None:
        yield "KV cache in use", f"{use} %"
    if (factor := _part(seen, "stepTimes").get("factor")) is not None:
        yield "time of a step", f"{factor:g} of what was predicted"
    yield "bottleneck", told["bottleneck"]
    if finding := FINDINGS.get(told["bottleneck"]):
        yield "", finding.meaning
        if seen.get("evidence"):
            yield "", f"Since {seen.get('since', _UNKNOWN)}: {seen['evidence']}"
        yield "", f"What to do: {finding.runbook}"
    if told["unobserved"]:
        yield "not known yet", ", ".join(told["unobserved"])


def _load_rows(load: Object) -> Iterator[tuple[str, ...]]:
    """Each figure, then what it rests on."""
    figures = _part(load, "figures")
    for key, name in _LOAD.items():
        if row := _part(figures, key):
            said = (f"{word} {row[word]:,}" if word in row else "" for word in ("declared", "observed"))
            counts = f"counts {row['counts']:,}" if "counts" in row else "not counted"
            yield name, f"{', '.join(filter(None, said))}: {counts}"
    for day in _entries(load, "days"):
        yield str(day.get("date")), f"{_figure(day.get('requests'))} requests at least, watched {day.get('hours')} h"


_LOAD: Final[Mapping[str, str]] = {
    "concurrency": "requests at once",
    "requestsPerSecond": "requests a second",
    "promptTokens": "prompt tokens",
    "outputTokens": "output tokens",
    "prefixHitTokens": "of them in the cache",
}


def _recommended_rows(advice: Object) -> Iterator[tuple[str, ...]]:
    if advice:
        yield str(advice.get("flag")), f"{advice.get('from')} -> {advice.get('to')}"
        yield from (
            (name, str(advice[name]))
            for name in ("why", "expected", "risk", "judgedBy", "undo", "patch")
            if name in advice
        )


def _experiment_rows(tuning: Object) -> Iterator[tuple[str, ...]]:
    """What is tried now, and what became of the last ones."""
    for each in _entries(tuning, "past"):
        yield str(each.get("time")), f"{_tried(each)}: {each.get('outcome')}", str(each.get("why"))
    if now := _part(tuning, "experiment"):
        yield str(now.get("since")), f"{_tried(now)}: {now.get('phase')}", str(now.get("verdict") or now.get("why"))
    if lent := _part(tuning, "lent"):
        count = f"{lent.get('replicas')} of {lent.get('of')} replicas lent"
        yield "now", count, "the fleet is whole again once canary and control are gone"


def _tried(experiment: Object) -> str:
    return f"{experiment.get('flag')} {experiment.get('from')} -> {experiment.get('to')}"


def _size_rows(scaling: Object) -> Iterator[tuple[str, ...]]:
    named = {"set by": "setBy", "why": "why", "recommended": "recommendedReplicas"}
    named |= {"grows when": "growsWhen", "shrinks when": "shrinksWhen"}
    for name, key in named.items():
        if key in scaling:
            yield name, str(scaling[key])


def _grounds(decisions: Sequence[Object]) -> Iterator[tuple[str, ...]]:
    """Inputs and alternatives of the newest decision that has some."""
    newest = next((each for each in reversed(decisions) if each.get("inputs")), {})
    yield from ((str(name), str(value)) for name, value in _part(newest, "inputs").items())
    for text in newest.get("alternatives") or ():
        yield "instead", str(text)


def _decision_row(decision: Mapping[str, Any]) -> tuple[str, ...]:
    step = " -> ".join(str(decision[key]) for key in ("from", "to") if key in decision)
    words = (decision.get("time"), decision.get("kind"), step, decision.get("reason"), decision.get("message"))
    return tuple(str(word or "") for word in words)


def _figure(value: int | None) -> str:
    return _UNKNOWN if value is None else f"{value:,}"


def _part(obj: Object, key: str) -> Object:
    value = obj.get(key)
    return value if isinstance(value, Mapping) else {}


def _entries(obj: Object, key: str) -> Sequence[Mapping[str, Any]]:
    return [entry for entry in obj.get(key) or () if isinstance(entry, Mapping)]
