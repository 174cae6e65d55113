"""Who owns which fields of an object: sets of paths, kept in ``managedFields`` as the API server writes them.

The rules are those of structured-merge-diff. Apply: what the manifest names is set and owned; what the manager owned
before and does not name any more goes, unless somebody else owns it too; another owner of a *different* value is a
conflict, or loses the field when it is forced. Update: whoever changes a value takes the field from all others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.adapters.ports import ConflictError, InvalidError
from tests.faults.world.ownership import Path, at_path, leaves, merged, to_fields, without
from tests.faults.world.shapes import Custom, Shape
from tests.faults.world.store import Object

Owners = dict["Manager", frozenset[Path]]


@dataclass(frozen=True, order=True)
class Manager:
    """One writer: the same name through another door is another writer."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


def applied(before: Object | None, wanted: Object, who: Manager, shape: Shape, *, force: bool) -> tuple[Object, Owners]:
    """The object with a manifest applied to it, and who owns what then. ConflictError where that needs force."""
    live = before or {"metadata": {}}
    managers, says = managers_of(live), leaves(wanted, shape)
    had, claimed = managers.pop(who, frozenset()), frozenset(says)
    lost = {other: _taken(theirs & claimed, live, says, shape) for other, theirs in managers.items()}
    if any(lost.values()) and not force:
        names = ", ".join(sorted(f'"{other.name}"' for other, paths in lost.items() if paths))
        raise ConflictError(f"Apply failed: conflict with {names}", status=409)
    others = {other: theirs - lost[other] for other, theirs in managers.items()}
    of_others = frozenset[Path]().union(*others.values())
    within = {path[:length] for path in claimed for length in range(1, len(path))}
    gone = {path for path in had - claimed - of_others - within if not _in_use(path, of_others)}
    after = merged(live, wanted, shape)
    after = without(after, gone, shape) if gone else after
    if gone and isinstance(shape, Custom) and any(at_path(after, path, shape) is None for path in claimed):
        # An empty map in place of one that loses its last field: the real server is left with a null, and refuses it.
        raise InvalidError("Invalid value: null: must be of type object", status=422)
    return {"metadata": {}, **after}, {**others, who: claimed}


def _taken(both: frozenset[Path], live: Object, says: Mapping[Path, Any], shape: Shape) -> frozenset[Path]:
    """Of the paths that two name, those whose value the second one changes."""
    return frozenset(path for path in both if at_path(live, path, shape) != says[path])


def _in_use(path: Path, of_others: frozenset[Path]) -> bool:
    """An entry of a list stays for as long as somebody owns something in it."""
    return path[-1] == "." and any(other[: len(path) - 1] == path[:-1] for other in of_others)


class ManagedFields(list[Object]):
    """``metadata.managedFields``, and what it says, which is asked for at every write."""

    def __init__(self, entries: Iterable[Object], owners: Owners) -> None:
        super().__init__(entries)
        self.owners = owners


def managers_of(obj: Mapping[str, Any]) -> Owners:
    """Who owns what, as ``managedFields`` say."""
    found: ManagedFields | None = obj["metadata"].get("managedFields")
    return {**found.owners} if found else {}


def managers_after(before: Object | None, after: Object, who: Manager, shape: Shape) -> Owners:
    """Who owns what after an update: what has changed is the updater's alone, what is gone is nobody's."""
    if before is None:
        return {who: frozenset(leaves(after, shape))}
    was, now = (leaves(_through(who, obj), shape) for obj in (before, after))
    changed = {path for path, value in now.items() if path not in was or was[path] != value}
    lost = changed | (was.keys() - now.keys())
    found = {other: paths - lost for other, paths in managers_of(before).items()}
    return {**found, who: found.get(who, frozenset()) | changed}


def _through(who: Manager, obj: Object) -> Object:
    """The part of an object that this door changes."""
    return {"status": obj.get("status", {})} if who.subresource == "status" else obj


def _manager(entry: Mapping[str, Any]) -> Manager:
    return Manager(entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", ""))


def _entry(manager: Manager, paths: frozenset[Path], time: str) -> Object:
    found: Object = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": to_fields(paths),
    }
    return {**found, "subresource": manager.subresource} if manager.subresource else found


def managed_fields(before: Object | None, owners: Owners, now: str) -> ManagedFields:
    """``metadata.managedFields``; an entry's time moves only with what it owns."""
    old = {} if before is None else managers_of(before)
    stamps = {} if before is None else {_manager(e): e["time"] for e in before["metadata"].get("managedFields", ())}
    owning = {manager: paths for manager, paths in owners.items() if paths}
    entries = (_entry(who, paths, stamps[who] if old.get(who) == paths else now) for who, paths in owning.items())
    return ManagedFields(entries, owning)
