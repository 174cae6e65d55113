"""Paths into an object as ``managedFields`` spell them: what an object says, merging along them, and removing."""

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from tests.faults.world.shapes import KEY_DEFAULTS, SET, Shape, Where

Path = tuple[str, ...]
"""Steps as in ``fieldsV1``: ``f:name``, ``k:{...}``, ``v:...``; a last ``.`` is an entry of a list itself."""

Steps = Mapping[str, list[Path]]
"""First steps, and what follows each."""

MANAGED_METADATA: Final = ("labels", "annotations", "ownerReferences", "finalizers")


def leaves(obj: Mapping[str, Any], shape: Shape) -> dict[Path, Any]:
    """Everything that an object says and that can be owned: the path to it, and what stands there."""
    found: dict[Path, Any] = {}
    for key, value in obj.items():
        if key == "metadata":
            for name in MANAGED_METADATA:
                if name in value:
                    _leaves(value[name], shape, ("f:metadata", f"f:{name}"), ("metadata", name), found)
        elif key not in ("apiVersion", "kind"):
            _leaves(value, shape, (f"f:{key}",), (key,), found)
    return found


def _leaves(value: Any, shape: Shape, at: Path, where: Where, found: dict[Path, Any]) -> None:
    if isinstance(value, dict) and value and not shape.atomic(where):
        for key, inner in value.items():
            _leaves(inner, shape, (*at, f"f:{key}"), (*where, key), found)
    elif isinstance(value, list) and value and (keys := shape.keys(where)):
        for entry in value:
            step = entry_step(entry, keys)
            if keys is SET:
                found[*at, step] = True
                continue
            found[*at, step, "."] = True
            _leaves(entry, shape, (*at, step), where, found)
    else:
        found[at] = value


def entry_step(entry: Any, keys: tuple[str, ...]) -> str:
    """The step to an entry of a list."""
    if keys is SET:
        return f"v:{json.dumps(entry)}"
    return _keyed_step(*((name, entry.get(name, KEY_DEFAULTS.get(name))) for name in keys))


@lru_cache(maxsize=10_000, typed=True)
def _keyed_step(*key: tuple[str, Any]) -> str:
    return f"k:{json.dumps(dict(sorted(key)), separators=(',', ':'))}"


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
