"""Walking through objects whose shape nobody guarantees: what is not there, or is of another type, is absent."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

DEEPEST: Final = 40
Tree = Mapping[str, Any]
_NOTHING: Final[Tree] = {}


def part(value: object, *keys: str) -> Tree:
    """The mapping below some keys; empty when there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else _NOTHING


def at(value: object, *keys: str) -> Any:  # noqa: ANN401 - whatever the manifest holds
    """What stands below some keys, or None."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def entries(value: object, *keys: str) -> list[Tree]:
    """The mappings of the list below some keys."""
    found = at(value, *keys)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def as_list(value: object) -> list[Any]:
    """A list, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text(value: object, *keys: str) -> str | None:
    """The text below some keys; numbers are given as text, since people forget quotes."""
    found = at(value, *keys)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return None
    return str(found)


MOST_DIGITS: Final = 18
"""No field of Kubernetes holds a longer number."""


def whole(value: object) -> int | None:
    """A whole number, also where it is written as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return int(value) if math.isfinite(value) else None
    digits = value.strip() if isinstance(value, str) else ""
    return int(digits) if digits.isdecimal() and len(digits) <= MOST_DIGITS else None


def seconds(probe: Tree, key: str, default: int) -> int:
    """A field of a probe, or what Kubernetes takes where it is not written or 0 (``SetDefaults_Probe``)."""
    return whole(probe.get(key)) or default


def is_small(value: object, most: int) -> bool:
    """Whether a tree has at most so many values: aliases of aliases can stand for more than any memory holds."""
    waiting, count = [value], 0
    while waiting and count <= most:
        node = waiting.pop()
        count += 1
        if isinstance(node, Mapping):
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)
    return count <= most


def along(value: object, path: str) -> Iterator[Tree]:
    """The mappings on the way to a path of ``walk``, from below the root to its end; what is not there ends it."""
    for step in path.replace("[", ".[").split("."):
        if isinstance(value, list):
            at_index = step[1:-1]
            value = value[int(at_index)] if at_index.isdecimal() and int(at_index) < len(value) else None
        else:
            value = at(value, step)
        if isinstance(value, Mapping):
            yield value


def walk(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, Tree]]:
    """Every mapping of a tree with its path, parents first."""
    if depth > DEEPEST:
        return
    if isinstance(value, Mapping):
        yield path, value
        for key, child in value.items():
            if isinstance(child, Mapping | list):
                yield from walk(child, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from walk(child, f"{path}[{index}]", depth + 1)
