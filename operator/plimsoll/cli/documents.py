"""VLLMServices, and the ConfigMaps they refer to, from YAML and JSON files, folders and stdin (text or tar).

One bad document never hides the good ones.
"""

import io
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from plimsoll.api import names
from plimsoll.api.parse import lint_service

SUFFIXES: Final = (".yaml", ".yml", ".json")
MOST_BYTES: Final = 16 * 2**20
_TAR_MAGIC: Final = slice(257, 262)
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML was built with it
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
class Bad:
    """Something that could not be read, in a sentence that names file, line or field, and what is allowed."""

    message: str


def read_documents(paths: Iterable[str]) -> Iterator[Document | ConfigMap | Bad]:
    """Every VLLMService and ConfigMap in the files (``-`` is stdin) and folders; other kinds are passed over."""
    for path in paths:
        for name, text in _texts(path):
            yield from [Bad(text.message)] if isinstance(text, Bad) else _documents(name, text)


def _texts(path: str) -> Iterator[tuple[str, str | Bad]]:
    if path == "-":
        yield from _standard_input()
        return
    where = Path(path)
    if where.is_dir():
        found = sorted(p for p in where.rglob("*") if p.suffix in SUFFIXES and p.is_file())
        if not found:
            yield path, Bad(f"{path}: no {', '.join(SUFFIXES)} file in this folder")
        yield from ((str(p), _text(p)) for p in found)
    else:
        yield path, _text(where)


def _standard_input() -> Iterator[tuple[str, str | Bad]]:
    """Text, or a tar archive as ``git archive`` makes one: that is how a folder of another revision is piped in."""
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) <= _TAR_MAGIC.stop or not content[_TAR_MAGIC].startswith(b"ustar"):
        yield "stdin", _decoded("stdin", content)
        return
    try:
        yield from _archived(content)
    except tarfile.TarError as error:
        yield "stdin", Bad(f"stdin: not a readable tar archive: {error}")


def _archived(content: bytes) -> Iterator[tuple[str, str | Bad]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        members = [m for m in archive if m.isfile() and m.name.endswith(SUFFIXES)]
        for member in sorted(members, key=lambda m: m.name):
            file = archive.extractfile(member)
            yield f"stdin:{member.name}", _decoded(f"stdin:{member.name}", file.read() if file else b"")


def _text(path: Path) -> str | Bad:
    try:
        with path.open("rb") as file:
            return _decoded(str(path), file.read(MOST_BYTES + 1))
    except OSError as error:
        return Bad(f"{path}: {error.strerror or error}")
    except ValueError as error:
        return Bad(f"{path!r}: not a path: {error}")


def _decoded(name: str, content: bytes) -> str | Bad:
    if len(content) > MOST_BYTES:
        return Bad(f"{name}: more than the {MOST_BYTES} bytes that are read")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Bad(f"{name}: not UTF-8 text (byte {error.start})")


def _documents(name: str, text: str) -> Iterator[Document | ConfigMap | Bad]:
    for line, chunk in _chunks(text):
        try:
            value = yaml.load(chunk, _LOADER)  # noqa: S506 - both are safe loaders
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            yield Bad(_yaml_error(name, line, error))
            continue
        for manifest in _items(value):
            yield from _checked(f"{name}:{line + 1}", manifest)


def _chunks(text: str) -> Iterator[tuple[int, str]]:
    """(lines before it, text) of every document, so that a broken one does not end the file."""
    start = 0
    for found in [*_SEPARATOR.finditer(text), None]:
        end = found.start() if found else len(text)
        chunk = text[start:end]
        if chunk.strip():
            blank = len(chunk) - len(chunk.lstrip("\n"))
            yield text.count("\n", 0, start) + blank, chunk[blank:]
        start = found.end() if found else end


def _yaml_error(name: str, line: int, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    at = line + mark.line + 1 if mark else line + 1
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or str(error).splitlines()[0]
    return f"{name}:{at}: not YAML: {problem}"


def _items(value: object) -> Iterator[Any]:
    if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List"):
        items = value.get("items")
        yield from items if isinstance(items, list) else ()
    elif value is not None:
        yield value


def _checked(where: str, manifest: object) -> Iterator[Document | ConfigMap | Bad]:
    if not isinstance(manifest, Mapping):
        yield Bad(f"{where}: a {type(manifest).__name__}, not a Kubernetes object with apiVersion, kind and spec")
        return
    if manifest.get("kind") == "ConfigMap":
        yield from _config_map(manifest)
        return
    if manifest.get("kind") != names.KIND:
        if "kind" not in manifest:
            yield Bad(f"{where}: no kind; a service starts with apiVersion: {names.API_VERSION}, kind: {names.KIND}")
        return
    errors = lint_service(manifest)
    if errors:
        yield from (Bad(f"{where}: {error}") for error in errors)
    else:
        yield Document(where, manifest)


def _config_map(manifest: Mapping[str, Any]) -> Iterator[ConfigMap]:
    meta, data = manifest.get("metadata"), manifest.get("data")
    if isinstance(meta, Mapping) and isinstance(data, Mapping):
        texts = {str(key): value for key, value in data.items() if isinstance(value, str)}
        yield ConfigMap(str(meta.get("namespace") or "default"), str(meta.get("name")), texts)
