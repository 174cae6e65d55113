"""Objects from files, folders and stdin for ``audit`` and ``import``: what is broken is one line, the rest is read."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from plimsoll.cli.sources import Bad, texts
from plimsoll.cli.yaml_documents import Item, Place, items
from plimsoll.core.workloads.neighbours import Neighbours, gathered
from plimsoll.core.workloads.read import NOTHING_KNOWN, Known, servers_of
from plimsoll.core.workloads.server import Server
from plimsoll.core.workloads.tree import is_small

_MARKER: Final = re.compile(r"^(<{7} |={7}$|>{7} )", re.MULTILINE)
_TEMPLATE: Final = re.compile(r"\{\{-?\s*[.\w$\"/(]")
_HEREDOC: Final = re.compile(r"<<-?\s*['\"]?[A-Z_]+['\"]?")
_OURS: Final = re.compile(r"^\s*(- )?\"?'?kind\"?'?\s*:|vllm|servingEngineSpec", re.MULTILINE | re.IGNORECASE)
MOST_VALUES: Final = 1_000_000
_LINE: Final = re.compile(r":(\d+): ")


@dataclass(frozen=True)
class Found:
    """An object and where it stands."""

    manifest: Mapping[str, Any]
    place: Place


@dataclass
class Reading:
    """Everything that some paths hold. ``bad`` are lines for a person; ``notes`` say what was left out on purpose."""

    objects: list[Found] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def around(self) -> Neighbours:
        """What stands beside the workloads."""
        return gathered(each.manifest for each in self.objects)

    def servers(self, known: Known = NOTHING_KNOWN) -> list[tuple[Server, Place]]:
        """Every vLLM server with the place of its object."""
        around = self.around()
        return [(server, each.place) for each in self.objects for server in servers_of(each.manifest, around, known)]


def read_objects(paths: Iterable[str]) -> Reading:
    """The objects of files, folders and stdin (``-``)."""
    reading = Reading()
    for path in paths:
        asked_for = path == "-" or not Path(path).is_dir()
        for name, content in texts(path):
            if isinstance(content, Bad):
                _unreadable(reading, content, asked_for=asked_for)
            elif asked_for or _OURS.search(content):
                _read(reading, name, content, asked_for=asked_for)
    return reading


def _unreadable(reading: Reading, bad: Bad, *, asked_for: bool) -> None:
    empty_folder = not asked_for and "file in this folder" in bad.message
    (reading.notes if empty_folder else reading.bad).append(bad.message)


def _read(reading: Reading, name: str, content: str, *, asked_for: bool) -> None:
    marker = _MARKER.search(content)
    if marker:
        line = content.count("\n", 0, marker.start()) + 1
        reading.bad.append(f"{name}:{line}: a merge-conflict marker ({marker[0].strip()}): resolve the conflict first")
    broken: list[str] = []
    for found in items(name, content):
        if isinstance(found, Bad):
            broken.append(found.message)
        else:
            _add(reading, found, asked_for=asked_for)
    if broken and not marker:
        _explain(reading, name, content, broken)


def _add(reading: Reading, item: Item, *, asked_for: bool) -> None:
    value, place = item.value, item.place
    if not isinstance(value, Mapping):
        if asked_for:
            reading.bad.append(f"{place.at()}: a {type(value).__name__}, not a Kubernetes object")
        return
    if not is_small(value, MOST_VALUES):
        reading.bad.append(f"{place.at()}: more than {MOST_VALUES:,} values in one document; aliases of aliases?")
        return
    if item.twice is not None and "kind" in value:
        reading.bad.append(f"{item.said_twice}; one counts")
    if "kind" in value and "apiVersion" not in value:
        reading.bad.append(f"{place.at()}: no apiVersion: the API server refuses this {value['kind']}")
    reading.objects.append(Found(value, place))


def _explain(reading: Reading, name: str, content: str, broken: list[str]) -> None:
    """One line for what is no YAML, in words that say what to do."""
    if _TEMPLATE.search(content):
        said = f"{name}: a template ({{{{ … }}}}): render it first, as in helm template CHART | plimsoll audit -"
        (reading.notes if _of_chart(name) else reading.bad).append(said)
        return
    for message in broken:
        line = _LINE.search(message)
        number = int(line[1]) if line else 1
        reading.bad.append(_in_words(name, content, number) or message)


def _in_words(name: str, content: str, number: int) -> str | None:
    lines = content.splitlines()
    for at in (number, number - 1):
        if 0 < at <= len(lines) and re.match(r"[ ]*\t", lines[at - 1]):
            return f"{name}:{at}: not YAML: a tab where only spaces may stand"
    shell = _HEREDOC.search(content)
    if shell:
        line = content.count("\n", 0, shell.start()) + 1
        return f"{name}:{line}: a shell here-document: keep only what stands between {shell[0]} and its end"
    return None


def _of_chart(name: str) -> bool:
    """Whether a file is one of a Helm chart's templates."""
    return any((folder / "Chart.yaml").exists() for folder in Path(name).parents if folder.name)
