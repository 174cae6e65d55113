"""What etcd keeps: objects, one version counter over all of them, and every change there ever was.

Objects are values: nobody changes one in place, so they are handed out as they are.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from plimsoll.adapters.ports import Kind

Object = dict[str, Any]
Type = Literal["ADDED", "MODIFIED", "DELETED"]


class Address(NamedTuple):
    """Where an object stands within its kind."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Event:
    """One change. ``before`` is what the object was, None when it is new."""

    version: int
    kind: Kind
    type: Type
    object: Object
    before: Object | None


@dataclass
class Store:
    """All objects by kind and address. ``oldest``: versions before it cannot be watched from any more."""

    version: int = 1000
    oldest: int = 1000
    objects: dict[Kind, dict[Address, Object]] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    _by_kind: dict[Kind, list[Event]] = field(default_factory=dict)
    listeners: list[Callable[[Event], None]] = field(default_factory=list)

    def get(self, kind: Kind, address: Address) -> Object | None:
        """The object as it is."""
        return self.objects.get(kind, {}).get(address)

    def all(self, kind: Kind, namespace: str | None = None) -> Iterator[Object]:
        """Objects of a kind in the order of their names."""
        for address, obj in sorted(self.objects.get(kind, {}).items()):
            if namespace in (None, address.namespace):
                yield obj

    def put(self, kind: Kind, obj: Object) -> Object:
        """Keep an object under the next version."""
        address = address_of(obj)
        before = self.get(kind, address)
        kept = self._versioned(obj)
        self.objects.setdefault(kind, {})[address] = kept
        self._tell(kind, "MODIFIED" if before else "ADDED", kept, before)
        return kept

    def drop(self, kind: Kind, obj: Object) -> None:
        """Remove an object; its last words carry the version of its end."""
        before = self.objects[kind].pop(address_of(obj))
        self._tell(kind, "DELETED", self._versioned(before), before)

    def compact(self) -> None:
        """Forget how it came to what is: whoever watches from before now gets 410."""
        self.oldest = self.version

    def events(self, kind: Kind, since: int) -> list[Event]:
        """Changes of a kind after a version."""
        return [*takewhile(lambda event: event.version > since, reversed(self._by_kind.get(kind, ())))][::-1]

    def as_of(self, kind: Kind, version: int) -> dict[Address, Object]:
        """The objects of a kind as they were at a version."""
        found: dict[Address, Object] = {}
        for event in takewhile(lambda event: event.version <= version, self._by_kind.get(kind, ())):
            if event.type == "DELETED":
                found.pop(address_of(event.object), None)
            else:
                found[address_of(event.object)] = event.object
        return found

    def _versioned(self, obj: Object) -> Object:
        self.version += 1
        return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}

    def _tell(self, kind: Kind, of: Type, obj: Object, before: Object | None) -> None:
        event = Event(self.version, kind, of, obj, before)
        self.history.append(event)
        self._by_kind.setdefault(kind, []).append(event)
        for listener in self.listeners:
            listener(event)


def address_of(obj: Mapping[str, Any]) -> Address:
    """Namespace and name; cluster-wide objects have no namespace."""
    return Address(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
