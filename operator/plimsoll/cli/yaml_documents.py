"""YAML and JSON documents with their places: one bad document never hides the good ones around it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, ClassVar, Final

import yaml

from plimsoll.cli.lines import Duplicate, child, children, duplicate_key, line_of, node_at
from plimsoll.cli.sources import Bad

_SAFE: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML was built with it
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$")
_SEPARATOR: Final = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


class _Loader(_SAFE):  # type: ignore[misc]
    """Reads as kubectl does: 18:00 is text, and not 1080, which YAML 1.1 makes of it."""

    yaml_implicit_resolvers: ClassVar = {
        first: [("tag:yaml.org,2002:str", _BASE_60), *rules] if first in "-+0123456789" else rules
        for first, rules in _SAFE.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True)
class Place:
    """Where an object stands: the file, the lines before its document, its node."""

    name: str
    lines_before: int
    node: yaml.Node | None
    """None for what no file holds."""

    def at(self, path: str = "") -> str:
        """``file:line`` of a field, or of the nearest thing around it that is there."""
        return self.on(line_of(self.node, path))

    def on(self, line: int) -> str:
        """``file:line`` of a line of the document."""
        return f"{self.name}:{self.lines_before + line + 1}"

    def line(self, path: str = "") -> int:
        """The line in the file, from 1; behind a ``#`` may stand what to look for in a text of several lines."""
        path, _, word = path.partition("#")
        return self.lines_before + line_of(self.node, path) + (_line_within(self.node, path, word) if word else 0) + 1


@dataclass(frozen=True)
class Item:
    """One object of a document; ``twice`` is a key that the document has two times."""

    place: Place
    value: Any
    twice: Duplicate | None

    @property
    def said_twice(self) -> str:
        """Where which key stands twice; empty where none does."""
        found, place = self.twice, self.place
        if found is None:
            return ""
        return f"{place.on(found.line)}: {found.key}: stands here and at line {place.lines_before + found.first + 1}"


def items(name: str, text: str) -> Iterator[Item | Bad]:
    """The objects of a text; a List is taken apart."""
    for line, chunk in _chunks(text):
        try:
            tree, twice, value = _parsed(chunk)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            yield Bad(_yaml_error(name, line, error))
            continue
        for manifest, node in _items(value, tree):
            yield Item(Place(name, line, node), manifest, twice)


def _line_within(node: yaml.Node | None, path: str, word: str) -> int:
    """How many lines below its beginning a word stands in a literal block; 0 where it is none, or has no such word."""
    scalar = node_at(node, path)
    if not isinstance(scalar, yaml.ScalarNode) or scalar.style != "|":
        return 0
    lines = scalar.value.splitlines()
    return next((at + 1 for at, line in enumerate(lines) if word in line and not line.lstrip().startswith("#")), 0)


def _parsed(chunk: str) -> tuple[yaml.Node | None, Duplicate | None, Any]:
    """One document as the tree that knows lines, what stands twice in it, and plain values.

    In this order: construction writes merged (``<<``) keys into the tree, where they may stand twice rightly.
    """
    loader = _Loader(chunk)
    try:
        tree = loader.get_single_node()
        twice = duplicate_key(tree)
        return tree, twice, loader.construct_document(tree) if tree is not None else None
    finally:
        loader.dispose()


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """(lines before it, text) of every document, so that a broken one does not end the file."""
    start = lines = 0
    for found in chain(_SEPARATOR.finditer(text), [None]):
        end = found.start() if found else len(text)
        chunk = text[start:end]
        if chunk.strip():
            blank = len(chunk) - len(chunk.lstrip("\n"))
            yield lines + blank, chunk[blank:]
        lines += chunk.count("\n")
        start = found.end() if found else end


def _yaml_error(name: str, line: int, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    at = line + mark.line + 1 if mark else line + 1
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or str(error).splitlines()[0]
    return f"{name}:{at}: not YAML: {problem}"


def _items(value: object, tree: yaml.Node | None) -> Iterator[tuple[Any, yaml.Node | None]]:
    """The objects of a document, each with its place in the tree: itself, or the items of a List."""
    if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List"):
        entries = value.get("items")
        nodes = children(child(tree, "items"))
        yield from zip_longest(entries, nodes[: len(entries)]) if isinstance(entries, list) else ()
    elif value is not None:
        yield value, tree
