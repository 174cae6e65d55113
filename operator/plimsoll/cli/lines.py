"""Where things stand in a YAML document: the line of a field, and keys that stand twice."""

import re
from dataclasses import dataclass
from typing import Final

import yaml

_STEP: Final = re.compile(r"\[(\d+)\]|([^.\[]+)")


@dataclass(frozen=True)
class Duplicate:
    """A key that one mapping has twice; lines count from 0 within the document."""

    key: str
    first: int
    line: int


def line_of(node: yaml.Node | None, path: str) -> int:
    """The line, from 0 within the document, of ``spec.hardware.gpus[1]``, or of the nearest parent that is there."""
    line = node.start_mark.line if node is not None else 0
    for index, key in _STEP.findall(path):
        if isinstance(node, yaml.MappingNode) and key:
            line, node = next(((k.start_mark.line, v) for k, v in node.value if k.value == key), (line, None))
        elif isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
            line = node.start_mark.line
        else:
            break
    return line


def node_at(node: yaml.Node | None, path: str) -> yaml.Node | None:
    """The node at a path such as ``spec.containers[0].args[1]``, or None."""
    for index, key in _STEP.findall(path):
        node = child(node, key) if key else next(iter(children(node)[int(index) : int(index) + 1]), None)
    return node


def child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    """The node under a key, or None."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for name, value in pairs if name.value == key), None)


def children(node: yaml.Node | None) -> list[yaml.Node]:
    """The entries of a list."""
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def duplicate_key(root: yaml.Node | None) -> Duplicate | None:
    """The first key that stands twice in one mapping: YAML would silently keep the last, the API server refuses it."""
    waiting, seen = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            found = _twice(node)
            if found is not None:
                return found
            waiting += [value for _, value in node.value]
    return None


def _twice(node: yaml.MappingNode) -> Duplicate | None:
    lines: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        if key.value in lines:
            return Duplicate(key.value, lines[key.value], key.start_mark.line)
        lines[key.value] = key.start_mark.line
    return None
