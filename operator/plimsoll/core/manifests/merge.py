"""A pod template merged into ours the way Kubernetes merges: maps by key, lists by the key of their entries.

Source of the keys: ``patchMergeKey`` in Kubernetes' ``core/v1`` types. Lists without one are replaced, tolerations
added to. What may be merged at all is checked before (``core/podtemplate``).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
_REPLACED: Final = frozenset({"volumes", "env", "imagePullSecrets", "ports"})
"""Entries that are one thing or another (a value or a reference): theirs takes the place of ours."""
_ADDED: Final = frozenset({"tolerations", "envFrom"})

Object = Mapping[str, Any]


def merged(base: Object, patch: Object) -> dict[str, Any]:
    """``patch`` over ``base``: ours keeps its order, what is new comes after it in its own."""
    found = dict(base)
    for key, value in patch.items():
        found[key] = _value(key, found[key], value) if key in found else value
    return found


def _value(key: str, ours: Any, theirs: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return merged(ours, theirs)
    if isinstance(ours, Sequence) and isinstance(theirs, Sequence) and not isinstance(theirs, str):
        if key in _KEYS:
            return _by_key(_KEYS[key], ours, theirs, replace=key in _REPLACED)
        if key in _ADDED:
            return [*ours, *(entry for entry in theirs if entry not in ours)]
    return theirs


def _by_key(key: str, ours: Sequence[Object], theirs: Sequence[Object], *, replace: bool) -> list[Object]:
    found = {entry[key]: entry for entry in ours}
    for entry in theirs:
        known = found.get(entry[key])
        found[entry[key]] = entry if known is None or replace else merged(known, entry)
    return list(found.values())
