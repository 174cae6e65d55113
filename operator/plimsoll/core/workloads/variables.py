"""Variables of a container: literal ones, those of ConfigMaps that are at hand, and the names of all others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from plimsoll.core.workloads.launch import expand
from plimsoll.core.workloads.neighbours import Neighbours
from plimsoll.core.workloads.tree import Tree, entries, part, text

SECRET: Final = "secret"  # noqa: S105 - where a value comes from
UNKNOWN: Final = "unknown"
LITERAL: Final = "literal"
CONFIG_MAP: Final = "config map"


@dataclass(frozen=True)
class Variable:
    """One variable. ``value`` is None where it is not in the files; ``source`` says where it comes from."""

    name: str
    value: str | None
    source: str
    place: str


def variables_of(container: Tree, namespace: str, around: Neighbours) -> dict[str, Variable]:
    """By name; later ones win, and may refer to earlier ones."""
    found: dict[str, Variable] = {}
    for index, source in enumerate(entries(container, "envFrom")):
        for variable in _from_source(source, namespace, around, f"envFrom[{index}]"):
            found[variable.name] = variable
    for name, entry, place in _entries(container):
        _add(found, _one(name, entry, place, namespace, around))
    return found


def _entries(container: Tree) -> Iterator[tuple[str, Tree, str]]:
    """(name, entry, place) of ``env``: the list of Kubernetes, or the map that charts take."""
    written = container.get("env")
    if isinstance(written, Mapping):
        for key, value in written.items():
            yield str(key), value if isinstance(value, Mapping) else {"value": value}, f"env.{key}"
    for index, entry in enumerate(entries(container, "env")):
        name = text(entry, "name")
        if name:
            yield name, entry, f"env[{index}]"


def literals(variables: Mapping[str, Variable]) -> dict[str, str]:
    """Values that are known."""
    return {name: each.value for name, each in variables.items() if each.value is not None}


def _add(found: dict[str, Variable], variable: Variable) -> None:
    if variable.value is not None:
        variable = Variable(variable.name, expand(variable.value, literals(found)), variable.source, variable.place)
    found[variable.name] = variable


def _one(name: str, entry: Tree, place: str, namespace: str, around: Neighbours) -> Variable:
    reference = part(entry, "valueFrom", "configMapKeyRef")
    if reference:
        data = around.config_map(namespace, text(reference, "name") or "")
        return Variable(name, (data or {}).get(text(reference, "key") or ""), CONFIG_MAP, place)
    if part(entry, "valueFrom", "secretKeyRef"):
        return Variable(name, None, SECRET, place)
    if "valueFrom" in entry:
        return Variable(name, None, UNKNOWN, place)
    value = entry.get("value")
    if isinstance(value, bool):
        value = str(value).lower()
    return Variable(name, "" if value is None else str(value), LITERAL, place)


def _from_source(source: Tree, namespace: str, around: Neighbours, place: str) -> list[Variable]:
    prefix = text(source, "prefix") or ""
    name = text(source, "configMapRef", "name")
    data = around.config_map(namespace, name) if name else None
    return [Variable(prefix + key, value, CONFIG_MAP, place) for key, value in (data or {}).items()]
