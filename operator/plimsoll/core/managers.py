"""Who changed a field of ours, read from an object's ``managedFields``. Pure.

For each writer the API server keeps the fields it last set (``FieldsV1``: ``f:name`` a field, ``k:{…}`` an entry of a
list by its keys, ``v:…`` an entry of a set, ``.`` the entry itself; Kubernetes' documentation on server-side apply).
A writer that changes the value of a field takes it from all others. What admission changes on a request's way in is
recorded nowhere: the field then belongs to whoever sent the request, with a value that he did not send.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from plimsoll.api import names
from plimsoll.core.drift import Path

Cause = Literal["manager", "admission", "nobody"]

NONE: Final = 0
ANY_ENTRY: Final = 1
THIS: Final = 2


@dataclass(frozen=True)
class Setter:
    """Why a field is not what we wrote.

    ``manager``: others set it. ``admission``: it is still ours, so our own write was changed on its way. ``nobody``: it
    was removed.
    """

    cause: Cause
    names: tuple[str, ...] = ()


def setter(obj: Mapping[str, Any], path: Path) -> Setter:
    """Who is behind the value that the field has now."""
    scores: dict[str, int] = {}
    for entry in obj["metadata"].get("managedFields") or ():
        name = str(entry.get("manager"))
        found = (_match(path, owned, exactly) for owned, exactly in _owned(entry.get("fieldsV1") or {}))
        scores[name] = max(scores.get(name, NONE), max(found, default=NONE))
    ours = max((score for name, score in scores.items() if name in names.MANAGERS), default=NONE)
    theirs = {name: score for name, score in scores.items() if name not in names.MANAGERS}
    best = max(theirs.values(), default=NONE)
    if best > ours or best == ANY_ENTRY:
        return Setter("manager", tuple(sorted(name for name, score in theirs.items() if score == best)))
    return Setter("admission") if ours else Setter("nobody")


def holders(obj: Mapping[str, Any], *path: str) -> list[str]:
    """Who set this field (steps of plain fields, ``spec``, ``replicas``), by name. Empty: a default, or nobody."""
    entries = obj["metadata"].get("managedFields") or ()
    return sorted({str(e.get("manager")) for e in entries if _holds(e.get("fieldsV1") or {}, path)})


def _holds(fields: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    inner: Any = fields
    for step in path:
        inner = inner.get(f"f:{step}")
        if inner is None:
            return False
    return True


def _match(path: Path, owned: Path, exactly: bool) -> int:
    """Whether owning one path is owning the field: itself, or a value around it that is only set as a whole.

    An entry of a list may go by other keys there than here: the same field of any entry is a weaker match.
    """
    if len(owned) > len(path) or (exactly and len(owned) < len(path)):
        return NONE
    pairs = [*zip(path, owned, strict=False)]
    if all(a == b for a, b in pairs):
        return THIS
    return ANY_ENTRY if all(a == b or (a[:1] == b[:1] == "[") for a, b in pairs) else NONE


def _owned(fields: Mapping[str, Any], at: Path = ()) -> Iterator[tuple[Path, bool]]:
    """Every path of a set of fields, and whether it stands for the thing itself, without what is in it."""
    for key, inner in fields.items():
        step = _step(key)
        if step is None:
            yield at, True
        elif inner:
            yield from _owned(inner, (*at, step))
        else:
            yield (*at, step), False


def _step(key: str) -> str | None:
    """One step of a path as ``drift`` writes it; None for the thing itself."""
    kind, _, text = key.partition(":")
    if kind == "f":
        return text
    if kind == "k":
        return f"[{next(iter(json.loads(text).values()))}]"
    return f"[{json.loads(text)}]" if kind == "v" else None
