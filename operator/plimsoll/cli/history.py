"""The ledger of a service in order: from the operator's log, or from what a live service still knows of it."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from plimsoll.api import names
from plimsoll.cli.sources import MOST_BYTES, Bad
from plimsoll.core.experiment import word
from plimsoll.core.ledger import CORRECTION, EVENT, PLAN
from plimsoll.core.manifests.revision import Revision, read_revision
from plimsoll.core.plan.words import Section
from plimsoll.core.replay import UnreadableError, again
from plimsoll.core.rollout import sentence

Object = Mapping[str, Any]
Entry = Mapping[str, Any]
SAME: Final = "the same"
DIFFERS: Final = "differs"
NEAR_SECONDS: Final = 300.0
"""An experiment's end and the decision about it are written in one go, by two clocks."""
LOGGER: Final = "plimsoll.ledger"
SHOWN: Final = 5
LARGEST_FILE: Final = 64 * MOST_BYTES


def from_file(path: str, name: str = "", namespace: str = "") -> list[Entry] | Bad:
    """Entries of a file (``-``: standard input), of one service where it is named.

    The file is a log of the operator, or services as kubectl prints them.
    """
    text = _read(path)
    if isinstance(text, Bad):
        return text
    found = list(logged(text.splitlines())) or list(_listed(text))
    if not found:
        wanted = "the operator's log (settings.logFormat json), or the output of kubectl get vllm -o json"
        return Bad(f"{path}: no entry of the ledger in it: give {wanted}")
    mine = [entry for entry in found if _is_of(entry, name, namespace)]
    if not mine:
        there = ", ".join(sorted({str(entry["service"]) for entry in found})[:SHOWN])
        return Bad(f"{path}: nothing about {'/'.join(filter(None, (namespace, name)))} in it; it has {there}")
    return in_order(mine)


def _read(path: str) -> str | Bad:
    try:
        if path == "-":
            return sys.stdin.buffer.read(LARGEST_FILE).decode("utf-8", "replace")
        if Path(path).stat().st_size > LARGEST_FILE:
            return Bad(f"{path}: more than {LARGEST_FILE >> 20} MiB; take out the lines of {LOGGER} with grep")
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Bad(f"{path}: {error.strerror or error}")


def logged(lines: Iterable[str]) -> Iterator[Entry]:
    """Entries among the lines of a log; what stands before the JSON (``kubectl logs --prefix``) is passed over."""
    for line in lines:
        start = line.find("{")
        if start < 0 or EVENT not in line:
            continue
        try:
            told = json.loads(line[start:])
        except (ValueError, RecursionError):
            continue
        if isinstance(told, Mapping) and told.get("event") == EVENT and isinstance(told.get("entry"), Mapping):
            yield {"service": str(told.get("service", "")), **told["entry"]}


def of_service(service: Object, revisions: Sequence[Object] = ()) -> list[Entry]:
    """What a live service still knows: its last decisions and experiments, and the plans that are kept."""
    meta, status = _part(service, "metadata"), _part(service, "status")
    decisions = [dict(entry) for entry in status.get("decisions") or () if isinstance(entry, Mapping)]
    past = [_ended(each) for each in _part(status, "tuning").get("past") or () if isinstance(each, Mapping)]
    found = [*decisions, *(each for each in past if not any(_same(each, other) for other in decisions))]
    found += _plans(revisions)
    where = f"{meta.get('namespace', 'default')}/{meta.get('name')}"
    return in_order({"service": where, **entry} for entry in found)


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """By time, what was logged twice once; each with what the law says of it now where its grounds are known."""
    once = {json.dumps(entry, sort_keys=True): entry for entry in entries}
    return [{**entry, **_again(entry)} for entry in sorted(once.values(), key=_seconds)]


def differing(entries: Iterable[Entry]) -> list[Entry]:
    """Entries that would be decided otherwise now."""
    return [entry for entry in entries if entry.get("again") == DIFFERS]


def history_sections(entries: Sequence[Entry]) -> Iterator[Section]:
    """A section a service, a row an entry; below it what else there was."""
    services: dict[str, list[tuple[str, ...]]] = {}
    for entry in entries:
        services.setdefault(str(entry.get("service")), []).extend(_rows(entry))
    yield from (Section(f"{service}, oldest first", tuple(rows)) for service, rows in services.items())
    judged = [entry["again"] for entry in entries if entry.get("again") in (SAME, DIFFERS)]
    if judged:
        same = judged.count(SAME)
        text = f"{same} of {len(judged)} recorded decisions come out the same when they are made again"
        yield Section("Made again", ((text,),))


def _rows(entry: Entry) -> Iterator[tuple[str, ...]]:
    step = " -> ".join(str(entry[key]) for key in ("from", "to") if key in entry)
    words = (entry.get("time"), entry.get("kind"), step, entry.get("reason"), entry.get("message"))
    yield tuple(str(word or "") for word in words)
    yield from (("", "", "", "", f"instead: {text}") for text in entry.get("alternatives") or ())
    if entry.get("again") not in (None, SAME):
        yield "", "", "", "", f"made again: {entry.get('againSays')}"


def _again(entry: Entry) -> dict[str, str]:
    """Whether the recorded decision comes out the same; nothing where it was not recorded what it rests on."""
    try:
        made = again(entry)
    except UnreadableError as error:
        return {"again": "unknown", "againSays": f"it cannot be: {error}"}
    if made is None:
        return {}
    if made.same_as(entry):
        return {"again": SAME}
    says = " ".join(filter(None, (made.reason, made.after, made.message)))
    return {"again": DIFFERS, "againSays": says}


def _plans(revisions: Sequence[Object]) -> Iterator[Entry]:
    """The kept plans, and what was learned for them from an engine that failed."""
    known = [(revision, obj) for obj in revisions if (revision := _revision(obj)) is not None]
    before: Revision | None = None
    for revision, obj in sorted(known, key=lambda each: each[0].number):
        time = {"time": str(_part(obj, "metadata").get("creationTimestamp", ""))}
        if because := _part(revision.learned, "correction").get("because"):
            yield {**time, "kind": CORRECTION, "reason": "EngineFigures", "message": str(because)}
        was = {"from": before.name} if before else {}
        flags = {"flags": json.dumps(revision.tuned["flags"])} if revision.tuned.get("flags") else {}
        reason = "Experiment" if flags else "Kept"
        told = {"kind": PLAN, **was, "to": revision.name, "reason": reason, "message": sentence(revision)}
        yield {**time, **told, **({"inputs": flags} if flags else {})}
        before = revision


def _revision(obj: Object) -> Revision | None:
    """The revision of an object that a file may hold in any form."""
    try:
        found = read_revision(obj)
        return found if found is not None and sentence(found) else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _ended(past: Object) -> Entry:
    """An experiment's end as a decision about it."""
    flag = past.get("flag")
    step = {"from": f"{flag} {past.get('from')}", "to": f"{flag} {past.get('to')}"}
    return {
        "time": past.get("time"),
        "kind": "Retune",
        **step,
        "reason": word(str(past.get("outcome", ""))),
        "message": past.get("why"),
    }


def _same(past: Entry, decision: Entry) -> bool:
    return (
        decision.get("kind") == past["kind"]
        and decision.get("reason") == past["reason"]
        and abs(_seconds(decision) - _seconds(past)) < NEAR_SECONDS
    )


def _listed(text: str) -> Iterator[Entry]:
    """Entries of services in YAML or JSON, a list of them or one."""
    if len(text) > MOST_BYTES:
        return
    try:
        documents = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, ValueError, RecursionError):
        return
    items = [i for each in documents if isinstance(each, Mapping) for i in each.get("items") or [each]]
    objects = [each for each in items if isinstance(each, Mapping)]
    revisions = [each for each in objects if each.get("kind") == "ControllerRevision"]
    for service in (each for each in objects if each.get("kind") == names.KIND):
        mine = _part(service, "metadata")
        yield from of_service(service, [each for each in revisions if _owned(each) == mine.get("name")])


def _owned(revision: Object) -> object:
    return _part(_part(revision, "metadata"), "labels").get(names.LABEL_SERVICE)


def _is_of(entry: Entry, name: str, namespace: str) -> bool:
    where, _, who = str(entry.get("service", "")).rpartition("/")
    return name in ("", who) and namespace in ("", where)


def _seconds(entry: Entry) -> float:
    try:
        return datetime.fromisoformat(str(entry.get("time"))).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _part(obj: Object, key: str) -> Object:
    value = obj.get(key)
    return value if isinstance(value, Mapping) else {}
