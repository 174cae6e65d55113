"""How lists and maps of a kind merge, and who owns which part: what the OpenAPI schema's ``x-kubernetes-*`` say.

For built-in kinds a short table of the exceptions; everything else is a granular map or an atomic list, as in
Kubernetes' own schema. ``e2e/test_world.py`` compares the outcome with the real API server. For VLLMServices the CRD.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Where = tuple[str, ...]
"""Names of the fields on the way; entries of lists add nothing."""

SET: Final = ("",)
"""Merge keys of a list whose entries are their own keys."""

_BY_NAME: Final = ("name",)
_KEYED: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": _BY_NAME,
    "initContainers": _BY_NAME,
    "env": _BY_NAME,
    "volumes": _BY_NAME,
    "imagePullSecrets": _BY_NAME,
    "volumeMounts": ("mountPath",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "finalizers": SET,
}
_PORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("containerPort", "protocol"),
    "initContainers": ("containerPort", "protocol"),
    "spec": ("port", "protocol"),
}
_ATOMIC: Final = ("selector", "labelSelector", "nodeSelector", "secretKeyRef", "configMapKeyRef", "fieldRef")
KEY_DEFAULTS: Final[Mapping[str, Any]] = {"protocol": "TCP"}


@dataclass(frozen=True)
class BuiltIn:
    """A kind of Kubernetes itself."""

    raw: bool = False
    """``data`` is one value, as in a ControllerRevision."""

    def keys(self, where: Where) -> tuple[str, ...] | None:
        """Fields that tell a list's entries apart; None: the list is one value."""
        if where[-1] == "ports":
            return _PORTS.get(where[-2])
        return _KEYED.get(where[-1])

    def atomic(self, where: Where) -> bool:
        """Whether a map is one value."""
        if self.raw and where == ("data",):
            return True
        return bool(where) and where[-1] in _ATOMIC and where[0] != "metadata"


@dataclass(frozen=True)
class Custom:
    """A kind with a CRD: the schema says it at the place."""

    schema: Mapping[str, Any]
    _found: dict[Where, Mapping[str, Any]] = field(default_factory=dict)

    def keys(self, where: Where) -> tuple[str, ...] | None:
        if where[0] == "metadata":
            return _KEYED.get(where[-1])
        at = self._at(where)
        kind = at.get("x-kubernetes-list-type", "atomic")
        if kind == "map":
            return tuple(at["x-kubernetes-list-map-keys"])
        return SET if kind == "set" else None

    def atomic(self, where: Where) -> bool:
        if not where or where[0] == "metadata":
            return False
        return self._at(where).get("x-kubernetes-map-type") == "atomic"

    def _at(self, where: Where) -> Mapping[str, Any]:
        if where not in self._found:
            self._found[where] = self._look(where)
        return self._found[where]

    def _look(self, where: Where) -> Mapping[str, Any]:
        at: Mapping[str, Any] = self.schema
        for name in where:
            at = at.get("items") or at
            inner = (at.get("properties") or {}).get(name)
            rest = at.get("additionalProperties")
            at = inner or (rest if isinstance(rest, Mapping) else {})
        return at


Shape = BuiltIn | Custom
