"""Paths into an object as ``managedFields`` spell them: what an object says, merging along them, and removing."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tests.faults.world.shapes import KEY_DEFAULTS, SET, Shape, Where

Path = tuple[str, ...]
"""Steps as in ``fieldsV1``: ``f:name``, ``k:{...}``, ``v:...``; a last ``.`` is an entry of a list itself."""

Steps = Mapping[str, list[Path]]
"""First steps, and what follows each."""

MANAGED_METADATA: Final = ("labels", "annotations", "ownerReferences", "finalizers")


def owned(obj: Mapping[str, Any], shape: Shape) -> frozenset[Path]:
    """Paths of everything that an object says and that can be owned."""
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key in MANAGED_METADATA}
    body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
    found = [*_paths(body, shape, (), ())]
    for key, value in meta.items():
        found += _paths(value, shape, ("f:metadata", f"f:{key}"), ("metadata", key))
    return frozenset(found)


def _paths(value: Any, shape: Shape, at: Path, where: Where) -> Iterator[Path]:
    if isinstance(value, Mapping) and value and not shape.atomic(where):
        for key, inner in value.items():
            yield from _paths(inner, shape, (*at, f"f:{key}"), (*where, key))
    elif isinstance(value, Sequence) and not isinstance(value, str) and (keys := shape.keys(where)) and value:
        for entry in value:
            step = entry_step(entry, keys)
            if keys is SET:
                yield (*at, step)
                continue
            yield (*at, step, ".")
            yield from _paths(entry, shape, (*at, step), where)
    else:
        yield at


def entry_step(entry: Any, keys: tuple[str, ...]) -> str:
    """The step to an entry of a list."""
    if keys is SET:
        return f"v:{json.dumps(entry)}"
    key = {name: entry.get(name, KEY_DEFAULTS.get(name)) for name in sorted(keys)}
    return f"k:{json.dumps(key, separators=(',', ':'))}"


def merged(live: Any, wanted: Any, shape: Shape, where: Where = ()) -> Any:
    """The live value with everything that is wanted set on it."""
    if isinstance(wanted, Mapping) and isinstance(live, Mapping) and not shape.atomic(where):
        return {**live, **{key: merged(live.get(key), value, shape, (*where, key)) for key, value in wanted.items()}}
    if isinstance(wanted, list) and isinstance(live, list) and (keys := shape.keys(where)):
        by_key = {entry_step(entry, keys): entry for entry in live}
        for entry in wanted:
            step = entry_step(entry, keys)
            by_key[step] = merged(by_key.get(step), entry, shape, where)
        return list(by_key.values())
    return wanted


def without(value: Any, gone: Iterable[Path], shape: Shape, where: Where = ()) -> Any:
    """The value without what stands at these paths; entries go with their ``.``."""
    steps: dict[str, list[Path]] = {}
    for path in gone:
        steps.setdefault(path[0], []).append(path[1:])
    if isinstance(value, Mapping):
        return _fields_without(value, steps, shape, where)
    if isinstance(value, list) and (keys := shape.keys(where)):
        return _entries_without(value, steps, shape, where, keys)
    return value


def _fields_without(value: Mapping[str, Any], steps: Steps, shape: Shape, where: Where) -> Any:
    kept = {}
    for key, inner in value.items():
        rest = steps.get(f"f:{key}")
        if rest is None:
            kept[key] = inner
        elif () not in rest:
            left = without(inner, rest, shape, (*where, key))
            if left or not inner:
                kept[key] = left
    return kept


def _entries_without(value: list[Any], steps: Steps, shape: Shape, where: Where, keys: tuple[str, ...]) -> list[Any]:
    left = []
    for entry in value:
        rest = steps.get(entry_step(entry, keys))
        if rest is None:
            left.append(entry)
        elif () not in rest and (".",) not in rest:
            left.append(without(entry, rest, shape, where))
    return left


def at_path(value: Any, path: Path, shape: Shape, where: Where = ()) -> Any:
    """What stands at a path, or None."""
    for index, step in enumerate(path):
        if step == ".":
            return True
        if step.startswith("f:"):
            where = (*where, step[2:])
            value = value.get(step[2:]) if isinstance(value, Mapping) else None
        elif isinstance(value, list):
            keys = shape.keys(where)
            value = next((entry for entry in value if keys and entry_step(entry, keys) == step), None)
            if index == len(path) - 1 and step.startswith("v:"):
                return value is not None
        if value is None:
            return None
    return value


def to_fields(paths: Iterable[Path]) -> dict[str, Any]:
    """``fieldsV1`` of a set of paths."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        at = tree
        for step in path:
            at = at.setdefault(step, {})
    return tree


def from_fields(fields: Mapping[str, Any], at: Path = ()) -> Iterator[Path]:
    """The paths of ``fieldsV1``."""
    for step, inner in fields.items():
        if inner:
            yield from from_fields(inner, (*at, step))
        else:
            yield (*at, step)
