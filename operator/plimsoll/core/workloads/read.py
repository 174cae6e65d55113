"""Objects → vLLM servers."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from plimsoll.core.workloads.candidates import Candidate, candidates
from plimsoll.core.workloads.customs import customs
from plimsoll.core.workloads.helm import engine_flags_of, values_of
from plimsoll.core.workloads.images import Release
from plimsoll.core.workloads.launch import DEFAULT, Launch, container_of, launches
from plimsoll.core.workloads.neighbours import Neighbours
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import Tree, entries, text
from plimsoll.core.workloads.values import values_candidates
from plimsoll.core.workloads.variables import literals, variables_of

VALUES: Final = "values/operator"
_OWNED: Final = frozenset({"ReplicaSet", "Pod", "Job"})
"""Kinds that others make: with an owner they say nothing that the owner does not."""


@dataclass(frozen=True)
class Known:
    """What is known from outside the manifests: the GPU product; of running workloads, by ``key_of``, more."""

    product: str | None = None
    releases: Mapping[str, Release] = field(default_factory=dict)
    """What the engines say of themselves."""
    products: Mapping[str, str] = field(default_factory=dict)
    """The product of the nodes that the pods run on."""


NOTHING_KNOWN: Final = Known()


def servers_of(manifest: Tree, around: Neighbours, known: Known = NOTHING_KNOWN) -> list[Server]:
    """Every vLLM server of an object; none for other kinds, and for pods that a workload made."""
    if text(manifest, "kind") in _OWNED and entries(manifest, "metadata", "ownerReferences"):
        return []
    found = customs(manifest, around)
    if found is None and values_of(manifest) is not None:
        found = values_candidates(manifest)
    if found is None:
        found = candidates(manifest)
    return [server for candidate in found for server in _servers(candidate, around, known)]


def _servers(candidate: Candidate, around: Neighbours, known: Known) -> Iterator[Server]:
    namespace = text(candidate.manifest, "metadata", "namespace") or ""
    variables = variables_of(candidate.container, namespace, around)
    files = _mounted(candidate, namespace, around)
    container = container_of(candidate.container, literals(variables), files)
    if candidate.argv is not None:
        found = [Launch(VALUES, candidate.argv, positional_model=not _names_model(candidate.argv))]
    else:
        found = launches(container)
    if candidate.scope == "values":
        found = [each for each in found if each.form != DEFAULT]
    for launch in found:
        key = key_of(candidate.manifest)
        product, live = known.products.get(key, known.product), known.releases.get(key)
        yield Server(candidate, _with_config(launch, files), variables, around, product, live, len(found) - 1)


def key_of(manifest: Tree) -> str:
    """``namespace/kind/name``."""
    meta = "metadata"
    return f"{text(manifest, meta, 'namespace') or ''}/{manifest.get('kind')}/{text(manifest, meta, 'name') or ''}"


def _names_model(argv: Iterable[str]) -> bool:
    return any(word == "--model" or word.startswith("--model=") for word in argv)


def _mounted(candidate: Candidate, namespace: str, around: Neighbours) -> dict[str, str]:
    """Text files of ConfigMaps by the path at which the container sees them."""
    volumes = {text(volume, "name"): volume for volume in entries(candidate.pod, "volumes")}
    files: dict[str, str] = {}
    for mount in entries(candidate.container, "volumeMounts"):
        volume = volumes.get(text(mount, "name")) or {}
        name = text(volume, "configMap", "name")
        data = around.config_map(namespace, name) if name else None
        folder, sub = (text(mount, "mountPath") or "").rstrip("/"), text(mount, "subPath")
        renamed = {text(i, "key"): text(i, "path") for i in entries(volume, "configMap", "items")}
        for key, content in (data or {}).items():
            shown = renamed.get(key, key) if renamed else key
            if sub is None:
                files[f"{folder}/{shown}"] = content
            elif sub == shown:
                files[folder] = content
    return files


def _with_config(launch: Launch, files: Mapping[str, str]) -> Launch:
    """The words with those of ``--config`` files before the others: what the command line says wins."""
    argv = launch.argv or ()
    for index, word in enumerate(argv):
        path = word.partition("=")[2] if word.startswith("--config=") else None
        if word == "--config" and index + 1 < len(argv):
            path = argv[index + 1]
        if path is None:
            continue
        if path not in files:
            return replace(launch, why_unknown=f"{path} is not among the files: what it sets is not known")
        width = 1 if word != "--config" else 2
        own = list(engine_flags_of(files[path]))
        head = 1 if argv and not argv[0].startswith("-") else 0
        kept = argv[head:index] + argv[index + width :]
        place = launch.places[index] if index < len(launch.places) else ""
        kept_places = launch.places[head:index] + launch.places[index + width :]
        return replace(
            launch,
            argv=(*argv[:head], *own, *kept),
            places=(*launch.places[:head], *(place for _ in own), *kept_places),
        )
    return launch
