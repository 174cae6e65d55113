"""VLLMServices, and the ConfigMaps they refer to, from YAML and JSON documents.

One bad document never hides the good ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from plimsoll.api import names
from plimsoll.api.parse import lint_service
from plimsoll.cli.sources import Bad, texts
from plimsoll.cli.yaml_documents import Item, Place, items

_CLAIM: Final = "PersistentVolumeClaim"
_OURS: Final = (names.KIND, "ConfigMap", _CLAIM)


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
    for found in items(name, text):
        yield from [found] if isinstance(found, Bad) else _checked(found)


def _checked(item: Item) -> Iterator[Found]:
    place, manifest = item.place, item.value
    if not isinstance(manifest, Mapping):
        kind = type(manifest).__name__
        yield Bad(f"{place.at()}: a {kind}, not a Kubernetes object with apiVersion, kind and spec")
    elif "kind" not in manifest:
        start = f"a service starts with apiVersion: {names.API_VERSION}, kind: {names.KIND}"
        yield Bad(f"{place.at()}: no kind; {start}")
    elif manifest["kind"] not in _OURS:
        return
    elif item.twice is not None:
        yield Bad(item.said_twice)
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
