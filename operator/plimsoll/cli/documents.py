"""VLLMServices, and the ConfigMaps they refer to, from YAML and JSON documents.

One bad document never hides the good ones.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final

import yaml

from plimsoll.api import names
from plimsoll.api.parse import lint_service
from plimsoll.cli.lines import Duplicate, child, children, duplicate_key, line_of
from plimsoll.cli.sources import Bad, texts

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML was built with it
_CLAIM: Final = "PersistentVolumeClaim"
_OURS: Final = (names.KIND, "ConfigMap", _CLAIM)
_SEPARATOR: Final = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """One VLLMService manifest and where it stands."""

    where: str
    manifest: Mapping[str, Any]


@dataclass(frozen=True)
class ConfigMap:
    """A ConfigMap that stands beside the services; a service's ``configRef`` may name it."""

    namespace: str
    name: str
    data: Mapping[str, str]


@dataclass(frozen=True)
class VolumeClaim:
    """A PersistentVolumeClaim that stands beside the services; their pods may mount it."""

    namespace: str
    name: str
    access_modes: tuple[str, ...]


Found = Document | ConfigMap | VolumeClaim | Bad


def read_documents(paths: Iterable[str]) -> Iterator[Found]:
    """Every VLLMService, ConfigMap and claim in the files (``-`` is stdin) and folders; other kinds are passed over."""
    for path in paths:
        for name, text in texts(path):
            yield from [Bad(text.message)] if isinstance(text, Bad) else _documents(name, text)


def _documents(name: str, text: str) -> Iterator[Found]:
    for line, chunk in _chunks(text):
        try:
            tree, twice, value = _parsed(chunk)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            yield Bad(_yaml_error(name, line, error))
            continue
        for manifest, node in _items(value, tree):
            yield from _checked(Place(name, line, node), manifest, twice)


def _parsed(chunk: str) -> tuple[yaml.Node | None, Duplicate | None, Any]:
    """One document as the tree that knows lines, what stands twice in it, and plain values.

    In this order: construction writes merged (``<<``) keys into the tree, where they may stand twice rightly.
    """
    loader = _LOADER(chunk)
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
        items = value.get("items")
        nodes = children(child(tree, "items"))
        yield from zip_longest(items, nodes[: len(items)]) if isinstance(items, list) else ()
    elif value is not None:
        yield value, tree


@dataclass(frozen=True)
class Place:
    """Where an object stands: the file, the lines before its document, its node."""

    name: str
    lines_before: int
    node: yaml.Node | None

    def at(self, path: str = "") -> str:
        """``file:line`` of a field, or of the nearest thing around it that is there."""
        return self.on(line_of(self.node, path))

    def on(self, line: int) -> str:
        """``file:line`` of a line of the document."""
        return f"{self.name}:{self.lines_before + line + 1}"


def _checked(place: Place, manifest: object, twice: Duplicate | None) -> Iterator[Found]:
    if not isinstance(manifest, Mapping):
        kind = type(manifest).__name__
        yield Bad(f"{place.at()}: a {kind}, not a Kubernetes object with apiVersion, kind and spec")
    elif "kind" not in manifest:
        start = f"a service starts with apiVersion: {names.API_VERSION}, kind: {names.KIND}"
        yield Bad(f"{place.at()}: no kind; {start}")
    elif manifest["kind"] not in _OURS:
        return
    elif twice is not None:
        yield Bad(
            f"{place.on(twice.line)}: {twice.key}: stands here and at line {place.lines_before + twice.first + 1}"
        )
    elif manifest["kind"] == names.KIND:
        yield from _service(place, manifest)
    elif manifest["kind"] == _CLAIM:
        yield from _claim(manifest)
    else:
        yield from _config_map(manifest)


def _service(place: Place, manifest: Mapping[str, Any]) -> Iterator[Document | Bad]:
    errors = lint_service(manifest)
    yield from (Bad(f"{place.at(error.path)}: {error}") for error in errors)
    if not errors:
        yield Document(place.at(), manifest)


def _config_map(manifest: Mapping[str, Any]) -> Iterator[ConfigMap]:
    meta, data = manifest.get("metadata"), manifest.get("data")
    if isinstance(meta, Mapping) and isinstance(data, Mapping):
        texts = {str(key): value for key, value in data.items() if isinstance(value, str)}
        yield ConfigMap(str(meta.get("namespace") or "default"), str(meta.get("name")), texts)


def _claim(manifest: Mapping[str, Any]) -> Iterator[VolumeClaim]:
    meta, spec = manifest.get("metadata"), manifest.get("spec")
    modes = spec.get("accessModes") if isinstance(spec, Mapping) else None
    if isinstance(meta, Mapping) and isinstance(modes, list):
        yield VolumeClaim(str(meta.get("namespace") or "default"), str(meta.get("name")), tuple(map(str, modes)))
