"""Values of Helm releases, and other YAML that stands in texts."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import yaml

from plimsoll.core.workloads.tree import Tree, is_small, part, text

LONGEST_YAML: Final = 1 << 20
MOST_VALUES: Final = 100_000
KEPT_TEXTS: Final = 8
"""Finding the engines and every rule about charts ask for the same values."""


def values_of(document: Tree) -> tuple[Tree, str] | None:
    """(values, their path) of a values file, or of a release that carries values; None for other objects."""
    kind = document.get("kind")
    if kind is None:
        return document, ""
    if kind == "HelmRelease":
        return part(document, "spec", "values"), "spec.values"
    if kind == "HelmChart":
        return _loaded(text(document, "spec", "valuesContent")), "spec.valuesContent"
    if kind == "Application":
        source = part(document, "spec", "source", "helm")
        if part(source, "valuesObject"):
            return part(source, "valuesObject"), "spec.source.helm.valuesObject"
        return _loaded(text(source, "values")), "spec.source.helm.values"
    return None


def engine_flags_of(written: str, section: str = "") -> Iterator[str]:
    """The flags of a YAML file as ``--config`` reads it: ``key: value`` for each, true alone for a switch."""
    loaded = part(_loaded(written), section) if section else _loaded(written)
    for key, value in loaded.items():
        if value is True:
            yield f"--{key}"
        elif value is not False and value is not None:
            yield f"--{key}"
            yield from _flag_values(value)


def _flag_values(value: object) -> Iterator[str]:
    if isinstance(value, list):
        yield from (str(each) for each in value)
    elif isinstance(value, Mapping):
        yield json.dumps(value)
    else:
        yield str(value)


@lru_cache(maxsize=KEPT_TEXTS)
def _loaded(written: str | None) -> Tree:
    if not written or len(written) > LONGEST_YAML:
        return {}
    try:
        found = yaml.safe_load(written)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) and is_small(found, MOST_VALUES) else {}
